package config_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"unwind/internal/config"
	"unwind/teardown"
)

// environment returns a getenv over the pairs and a HOME, below which all state
// of the test lies, and that home in its canonical form.
func environment(t *testing.T, pairs ...string) (func(string) string, string) {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	values := map[string]string{"HOME": home, "TMPDIR": home}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return values[name] }, home
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	getenv, home := environment(t)
	c, err := config.Load(getenv)
	require.NoError(t, err)
	state := filepath.Join(home, ".local", "state", "unwind")
	require.NoError(t, teardown.ValidateID(c.Host))
	hostname, _ := os.Hostname()
	require.Equal(t, config.Config{
		DatabaseURL: "sqlite://" + state + "/unwind.db", StateDir: state, Host: c.Host, HostName: hostname,
		TaskQueue: "unwind", Roots: []string{home}, Home: home, IgnoredFiles: config.IgnoredKeepPrecious,
		Policy: teardown.Policy{InitialIntervalMS: 1000, MaximumIntervalMS: 60_000, MaximumAttempts: 10,
			StepTimeoutMS: 600_000, HeartbeatMS: 30_000, HostTimeoutMS: 900_000, Parallel: 4},
		Concurrency: 8, LockWait: 2 * time.Minute, StopTimeout: 30 * time.Second, ReconcileInterval: 30 * time.Second,
		SnapshotKeep: 30 * 24 * time.Hour, SnapshotSpace: 1 << 30, StartsPerSecond: 50,
		SearchAttributes: true, LogLevel: slog.LevelInfo, LogFormat: "text", Listen: "127.0.0.1:7391",
	}, c)
	require.Equal(t, filepath.Join(state, "locks"), string(c.Locks()))

	again, err := config.Load(getenv)
	require.NoError(t, err)
	require.Equal(t, c, again)
}

func TestEverythingSet(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(root, link))
	getenv, _ := environment(t,
		"UNWIND_DATABASE_URL", "postgres://u:p@db/unwind?sslmode=disable", "UNWIND_STATE_DIR", state+"/", "UNWIND_HOST", "h1",
		"UNWIND_TASK_QUEUE", "team.unwind", "UNWIND_ROOTS", link+"::"+root+"/later/still:"+root,
		"UNWIND_IGNORED_FILES", "discard", "UNWIND_RETRY_INITIAL", "20ms", "UNWIND_RETRY_MAX", "100ms", "UNWIND_RETRY_ATTEMPTS", "3",
		"UNWIND_STEP_TIMEOUT", "20s", "UNWIND_HEARTBEAT_TIMEOUT", "2s", "UNWIND_HOST_TIMEOUT", "5s", "UNWIND_PARALLEL", "1", "UNWIND_CONCURRENCY", "2",
		"UNWIND_LOCK_WAIT", "0", "UNWIND_STOP_TIMEOUT", "1s", "UNWIND_RECONCILE_INTERVAL", "200ms", "UNWIND_SEARCH_ATTRIBUTES", "off",
		"UNWIND_SNAPSHOT_KEEP", "36h", "UNWIND_SNAPSHOT_SPACE", "8", "UNWIND_START_RATE", "7",
		"UNWIND_LOG_LEVEL", "debug", "UNWIND_LOG_FORMAT", "json", "UNWIND_METRICS_ADDRESS", "127.0.0.1:0",
		"UNWIND_LISTEN", "[::1]:0", "UNWIND_TOKEN_FILE", "/etc/unwind/token", "UNWIND_WEBHOOK_SECRET_FILE", "/etc/unwind/webhook",
		"UNWIND_UI_URL", "https://temporal.example/ui/")
	c, err := config.Load(getenv)
	require.NoError(t, err)
	hostname, _ := os.Hostname()
	require.Equal(t, config.Config{
		DatabaseURL: "postgres://u:p@db/unwind?sslmode=disable", StateDir: state, Host: "h1", HostName: hostname,
		TaskQueue: "team.unwind", Roots: []string{root, root + "/later/still"}, Home: c.Home, IgnoredFiles: config.IgnoredDiscard,
		Policy: teardown.Policy{InitialIntervalMS: 20, MaximumIntervalMS: 100, MaximumAttempts: 3,
			StepTimeoutMS: 20_000, HeartbeatMS: 2000, HostTimeoutMS: 5000, Parallel: 1},
		Concurrency: 2, StopTimeout: time.Second, ReconcileInterval: 200 * time.Millisecond,
		SnapshotKeep: 36 * time.Hour, SnapshotSpace: 8 << 20, StartsPerSecond: 7,
		LogLevel: slog.LevelDebug, LogFormat: "json", MetricsAddress: "127.0.0.1:0",
		Listen: "[::1]:0", TokenFile: "/etc/unwind/token", WebhookSecretFile: "/etc/unwind/webhook",
		UIURL: "https://temporal.example/ui",
	}, c)
	require.Equal(t, "postgres://u:xxxxx@db/unwind?…", c.Database())
	require.NoFileExists(t, filepath.Join(state, "host-id"))
}

func TestDefaultsFitWhatIsSet(t *testing.T) {
	t.Parallel()
	getenv, _ := environment(t, "UNWIND_STEP_TIMEOUT", "10s", "UNWIND_RETRY_INITIAL", "5m")
	c, err := config.Load(getenv)
	require.NoError(t, err)
	require.Equal(t, 5*time.Second, c.LockWait)
	require.EqualValues(t, 10_000, c.Policy.HeartbeatMS)
	require.EqualValues(t, 300_000, c.Policy.MaximumIntervalMS)
}

func TestStateDirectoryFollowsXDG(t *testing.T) {
	t.Parallel()
	xdg := t.TempDir()
	getenv, _ := environment(t, "XDG_STATE_HOME", xdg)
	c, err := config.Load(getenv)
	require.NoError(t, err)
	require.Equal(t, xdg+"/unwind", c.StateDir)

	getenv, home := environment(t, "XDG_STATE_HOME", "relative/is/ignored")
	c, err = config.Load(getenv)
	require.NoError(t, err)
	require.Equal(t, home+"/.local/state/unwind", c.StateDir)
}

func TestDefaultDatabaseInADirectoryWithSpecialCharacters(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "a b?c#d%e")
	getenv, _ := environment(t, "UNWIND_STATE_DIR", state)
	c, err := config.Load(getenv)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(c.DatabaseURL, "/a%20b%3Fc%23d%25e/unwind.db"), c.DatabaseURL)
}

func TestBadValues(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	dangling := filepath.Join(t.TempDir(), "dangling")
	require.NoError(t, os.Symlink("nowhere", dangling))
	for _, bad := range []struct{ variable, value, allowed string }{
		{"UNWIND_DATABASE_URL", "mysql://db/unwind", "postgres://"},
		{"UNWIND_DATABASE_URL", "sqlite://unwind.db", "three slashes"},
		{"UNWIND_DATABASE_URL", "sqlite:unwind.db", "sqlite:///"},
		{"UNWIND_DATABASE_URL", "sqlite:///", "sqlite:///"},
		{"UNWIND_DATABASE_URL", "sqlite:///x.db?mode=memory", "sqlite:///"},
		{"UNWIND_DATABASE_URL", "/var/lib/unwind.db", "sqlite:///"},
		{"UNWIND_STATE_DIR", "state", "absolute"},
		{"UNWIND_STATE_DIR", "/", "other than /"},
		{"UNWIND_HOST", "build.example.org", "letters, digits"},
		{"UNWIND_TASK_QUEUE", "two words", "letters, digits"},
		{"UNWIND_ROOTS", "/tmp:worktrees", `"worktrees" is not an absolute path`},
		{"UNWIND_ROOTS", "/", "whole file system"},
		{"UNWIND_ROOTS", ":", "at least one"},
		{"UNWIND_ROOTS", file, "not a directory"},
		{"UNWIND_ROOTS", file + "/below", "not a directory"},
		{"UNWIND_ROOTS", dangling, "link to nothing"},
		{"UNWIND_IGNORED_FILES", "keep", "keep_precious, discard or preserve"},
		{"UNWIND_RETRY_INITIAL", "1", "duration such as"},
		{"UNWIND_RETRY_INITIAL", "-1s", "from 1ms to 24h"},
		{"UNWIND_RETRY_MAX", "10ms", "UNWIND_RETRY_INITIAL"},
		{"UNWIND_RETRY_ATTEMPTS", "0", "from 1 to"},
		{"UNWIND_RETRY_ATTEMPTS", "many", "whole number"},
		{"UNWIND_STEP_TIMEOUT", "1ms", "from 1s"},
		{"UNWIND_HEARTBEAT_TIMEOUT", "11m", "UNWIND_STEP_TIMEOUT"},
		{"UNWIND_HOST_TIMEOUT", "soon", "duration such as"},
		{"UNWIND_PARALLEL", "65", "from 1 to 64"},
		{"UNWIND_CONCURRENCY", "0", "from 1 to 1000"},
		{"UNWIND_LOCK_WAIT", "10m", "shorter than UNWIND_STEP_TIMEOUT"},
		{"UNWIND_STOP_TIMEOUT", "-1s", "from 0s to 24h"},
		{"UNWIND_RECONCILE_INTERVAL", "1ms", "from 100ms"},
		{"UNWIND_SEARCH_ATTRIBUTES", "yes", "on or off"},
		{"UNWIND_LOG_LEVEL", "verbose", "debug, info, warn or error"},
		{"UNWIND_LOG_FORMAT", "xml", "text or json"},
		{"UNWIND_METRICS_ADDRESS", "9464", "host:port"},
		{"UNWIND_METRICS_ADDRESS", "localhost:http", "host:port"},
		{"UNWIND_UI_URL", "localhost:8233", "http://"},
	} {
		t.Run(bad.variable+"="+bad.value, func(t *testing.T) {
			t.Parallel()
			getenv, home := environment(t, bad.variable, bad.value)
			_, err := config.Load(getenv)
			var e *teardown.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, teardown.CodeInvalidConfig, e.Code)
			require.False(t, e.Retryable)
			require.Contains(t, e.Message, bad.variable)
			require.Contains(t, e.Message, fmt.Sprintf("%q", bad.value))
			require.Contains(t, e.Message, bad.allowed)
			entries, err := os.ReadDir(home)
			require.NoError(t, err)
			require.Empty(t, entries, "nothing was made")
		})
	}
}

func TestAllBadValuesAreNamedAtOnce(t *testing.T) {
	t.Parallel()
	getenv, _ := environment(t, "UNWIND_PARALLEL", "x", "UNWIND_LOG_LEVEL", "y")
	_, err := config.Load(getenv)
	var e *teardown.Error
	require.ErrorAs(t, err, &e)
	require.Len(t, e.Details, 2)
	require.Contains(t, e.Message, "--parallel")
	require.Contains(t, e.Message, "--log-level")
}

// What another machine is to be told is checked without a trace on this one.
func TestCheck(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	values := map[string]string{"UNWIND_STATE_DIR": state, "UNWIND_ROOTS": "/no/such/root", "UNWIND_STOP_TIMEOUT": "5s"}
	c, problems := config.Check(func(name string) string { return values[name] })
	require.Empty(t, problems)
	require.Equal(t, 5*time.Second, c.StopTimeout)
	require.Equal(t, []string{"/no/such/root"}, c.Roots)
	require.Empty(t, c.Host)
	require.NoDirExists(t, state)

	values["UNWIND_PARALLEL"] = "many"
	values["UNWIND_LOG_FORMAT"] = "xml"
	_, problems = config.Check(func(name string) string { return values[name] })
	require.Len(t, problems, 2)
}

func TestPasswordsAreNotShown(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"mysql://u:geheim@db/x", "mysql://db/x?password=geheim", "postgres://u:geheim@db:port:x/%zz", "u:geheim"} {
		getenv, _ := environment(t, "UNWIND_DATABASE_URL", value)
		_, err := config.Load(getenv)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "geheim")
	}
}

func TestHostIDIsMadeOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "state")
	var group sync.WaitGroup
	ids := make([]string, 16)
	for i := range ids {
		group.Go(func() {
			id, err := config.HostID(dir)
			if err != nil {
				t.Error(err)
			}
			ids[i] = id
		})
	}
	group.Wait()
	require.NoError(t, teardown.ValidateID(ids[0]))
	require.Regexp(t, `^[a-z0-9-]+-[0-9a-f]{6}$`, ids[0])
	for _, id := range ids {
		require.Equal(t, ids[0], id)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestHostIDThatIsNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "host-id"), []byte("\n"), 0o600))
	_, err := config.HostID(dir)
	require.Equal(t, teardown.CodeInvalidConfig, teardown.CodeOf(err))
	require.ErrorContains(t, err, "put the former id back")

	getenv, _ := environment(t, "UNWIND_STATE_DIR", dir)
	_, err = config.Load(getenv)
	require.Equal(t, teardown.CodeInvalidConfig, teardown.CodeOf(err))

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = config.HostID(filepath.Join(file, "state"))
	require.ErrorContains(t, err, "UNWIND_STATE_DIR")
}

func TestFlagsWinOverVariables(t *testing.T) {
	t.Parallel()
	getenv, _ := environment(t, "UNWIND_PARALLEL", "2", "UNWIND_TASK_QUEUE", "q", "UNWIND_METRICS_ADDRESS", "127.0.0.1:1")
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags := config.AddFlags(set)
	require.NoError(t, set.Parse([]string{"--parallel", "3", "--metrics-address="}))
	c, err := config.Load(flags.Over(getenv))
	require.NoError(t, err)
	require.Equal(t, 3, c.Policy.Parallel)
	require.Equal(t, "q", c.TaskQueue)
	require.Empty(t, c.MetricsAddress)
}

func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"UNWIND_PARALLELS", "UNWIND_ROOT"}, config.Unknown([]string{
		"UNWIND_ROOT=/x", "UNWIND_ROOTS=/x", "UNWIND_RUN_ID=1", "HOME=/", "UNWIND_PARALLELS=2", "UNWIND_TEST_POSTGRES_URL=x"}))
	require.Empty(t, config.Unknown(nil))
}

func TestDocumentationListsEverySetting(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	var rows []string
	for _, s := range config.Settings() {
		def := s.Default
		if !strings.Contains(def, " ") {
			def = "`" + def + "`"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | `--%s` | %s | %s |", s.Variable, s.Flag, def, s.Help))
	}
	if table := strings.Join(rows, "\n"); !strings.Contains(string(page), table) {
		t.Errorf("docs/configuration.md has another table of settings than the code; it should hold:\n%s", table)
	}
}
