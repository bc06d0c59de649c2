package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/config"
	"unwind/internal/store"
	"unwind/internal/temporalclient"
	"unwind/teardown"
)

// warnings are what an examination of a kind says, without the results.
func (b *bench) warnings(what string, environ []string, examine func(*examination, config.Config)) []string {
	b.Helper()
	b.environment = b.environment.with(environ...)
	p, stdout, _ := b.program("")
	c, err := p.config()
	require.NoError(b, err)
	examine(&examination{program: p}, c)
	var found []string
	for _, line := range strings.Split(strings.TrimSpace(stdout.String()), "\n") {
		if text, ok := strings.CutPrefix(line, "warn\t"+what+"\t"); ok {
			found = append(found, text)
		}
	}
	return found
}

func TestDoctorExplainsDatabaseURLs(t *testing.T) {
	t.Parallel()
	const sound = "UNWIND_DATABASE_URL=postgres://u:hush@127.0.0.1:5432/unwind?sslmode=disable"
	for name, c := range map[string]struct {
		environ []string
		here    place
		want    []string
	}{
		"sound":                      {environ: []string{sound}},
		"sqlite":                     {},
		"another variable":           {environ: []string{"DATABASE_URL=postgres://x:hush@db/x"}, want: []string{"DATABASE_URL is set, but not read"}},
		"the same in both":           {environ: []string{sound, strings.TrimPrefix(sound, "UNWIND_")}},
		"Postgres's variables":       {environ: []string{"PGHOST=db", "PGUSER=u"}, want: []string{"(PGHOST, PGUSER) are not heeded"}},
		"another host":               {environ: []string{sound, "PGHOST=db"}, want: []string{"PGHOST is not heeded"}},
		"the same host":              {environ: []string{sound, "PGHOST=127.0.0.1"}},
		"a variable fills in":        {environ: []string{"UNWIND_DATABASE_URL=postgres://127.0.0.1/unwind?sslmode=disable", "PGUSER=u"}, want: []string{"has no user, so PGUSER decides"}},
		"no user":                    {environ: []string{"UNWIND_DATABASE_URL=postgres://127.0.0.1/unwind?sslmode=disable"}, want: []string{"has no user, so it is"}},
		"no database":                {environ: []string{"UNWIND_DATABASE_URL=postgres://u@127.0.0.1?sslmode=disable"}, want: []string{"has no database, so it is"}},
		"no host":                    {environ: []string{"UNWIND_DATABASE_URL=postgres://u@/unwind?sslmode=disable"}, want: []string{"has no host, so it is localhost"}},
		"a socket":                   {environ: []string{"UNWIND_DATABASE_URL=postgres://u@/unwind?host=/run/postgresql"}},
		"remote without sslmode":     {environ: []string{"UNWIND_DATABASE_URL=postgres://u@db.example/unwind"}, want: []string{"has no sslmode"}},
		"remote in the clear":        {environ: []string{"UNWIND_DATABASE_URL=postgres://u@db.example/unwind?sslmode=prefer"}, want: []string{"not encrypted for certain"}},
		"remote and verified":        {environ: []string{"UNWIND_DATABASE_URL=postgres://u@db.example/unwind?sslmode=verify-full"}},
		"a container beside another": {environ: []string{"UNWIND_DATABASE_URL=postgres://u@postgres/unwind?sslmode=disable"}, here: place{container: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := setup(t).warnings("database", c.environ, func(e *examination, cfg config.Config) { e.databaseURL(cfg, c.here) })
			require.Len(t, found, len(c.want), found)
			for i, want := range c.want {
				require.Contains(t, found[i], want)
			}
			require.NotContains(t, strings.Join(found, " "), "hush")
		})
	}
}

func TestDoctorSaysWhatIsKeptThatNobodyHolds(t *testing.T) {
	t.Parallel()
	b, app := leaky(t)
	b.session("s1", filepath.Join(b.root, "dirty"), app)
	b.forget("s1")
	s := b.store()
	doctor := func(e *examination, c config.Config) { e.leftOvers(t.Context(), s, c) }
	require.Empty(t, b.warnings("left-overs", nil, doctor))
	// As a restore leaves one that it did not take back.
	detail, err := s.SessionDetail(t.Context(), "s1")
	require.NoError(t, err)
	_, err = s.Restore(t.Context(), store.Restoration{SessionID: "s1", Generation: 1})
	require.NoError(t, err)
	id := detail.Worktrees[0].Worktree.ID
	claim, err := s.ClaimStray(t.Context(), id)
	require.NoError(t, err)
	require.True(t, claim.Go)
	require.NoError(t, s.PreservedStray(t.Context(), teardown.WorktreeResult{ID: id, Code: teardown.CodeUntracked, Details: []string{"note.txt"}}, false))
	found := b.warnings("left-overs", nil, doctor)
	require.Len(t, found, 1)
	require.Contains(t, found[0], filepath.Join(b.root, "dirty")+", and it is kept (untracked: note.txt)")
}

// A Postgres without TLS answers a request for it with one letter.
func TestDoctorExplainsAServerWithoutTLS(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(connection, make([]byte, 8))
			_, _ = connection.Write([]byte("N"))
			_ = connection.Close()
		}
	}()
	b := setup(t)
	b.environment = b.environment.with("UNWIND_DATABASE_URL=postgres://u@" + listener.Addr().String() + "/unwind")
	require.Contains(t, b.run("doctor").stdout, "fail\tdatabase\tThe Postgres server does not speak TLS")
	require.Contains(t, b.run("list").stderr, "add sslmode=disable to UNWIND_DATABASE_URL")
}

func TestDoctorNamesTheHostsThatShareASQLiteFile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	facts := b.store()
	require.NoError(t, facts.SeeHost(t.Context(), store.Host{ID: "h1"}))
	require.NoError(t, facts.SeeHost(t.Context(), store.Host{ID: "long-gone", LastSeen: now().Add(-2 * lately)}))
	require.NotContains(t, b.run("doctor").stdout, "a SQLite file serves one host")
	require.NoError(t, facts.SeeHost(t.Context(), store.Host{ID: "h2"}))
	require.Contains(t, b.run("doctor").stdout, "workers of h2 use it beside h1")
}

func TestDoctorSeesThatItIsInAContainer(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.Equal(t, place{}, placeAt(root))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc/self/ns"), 0o755))
	require.NoError(t, os.Symlink(firstPIDNamespace, filepath.Join(root, "proc/self/ns/pid")))
	require.NoError(t, os.WriteFile(filepath.Join(root, ".dockerenv"), nil, 0o600))
	require.Equal(t, place{container: true}, placeAt(root))
	require.NoError(t, os.Remove(filepath.Join(root, "proc/self/ns/pid")))
	require.NoError(t, os.Symlink("pid:[4026532847]", filepath.Join(root, "proc/self/ns/pid")))
	require.Equal(t, place{container: true, ownProcesses: true}, placeAt(root))
}

func TestDoctorExplainsAContainerWithoutTheHost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		here    place
		mounted string // part of the roots that are
		want    []string
	}{
		"no container":       {},
		"everything is seen": {here: place{container: true}, mounted: "/"},
		"nothing is mounted": {here: place{container: true}, mounted: "none", want: []string{"nothing of the host is mounted at its roots"}},
		"one is not mounted": {here: place{container: true}, mounted: "/root", want: []string{"mounted at /unwind-elsewhere"}},
		"its own processes":  {here: place{container: true, ownProcesses: true}, mounted: "/", want: []string{"does not see the processes of its host"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			found := b.warnings("container", []string{"UNWIND_ROOTS=" + b.root + ":/unwind-elsewhere"}, func(e *examination, cfg config.Config) {
				e.seesHost(cfg, c.here, func(root string) bool { return strings.Contains(root, c.mounted) })
			})
			require.Len(t, found, len(c.want), found)
			for i, want := range c.want {
				require.Contains(t, found[i], want)
			}
		})
	}
}

func TestDoctorExplainsAnAddressInsideAContainer(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]int{"localhost": 1, "::1": 1, "temporal": 0} {
		found := setup(t).warnings("container", nil, func(e *examination, _ config.Config) {
			e.unreachable(host, place{})
			e.unreachable(host, place{container: true})
		})
		require.Len(t, found, want, host)
	}
}

func TestDoctorLooksForTheWebUI(t *testing.T) {
	t.Parallel()
	ui := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(ui.Close)
	for name, c := range map[string]struct {
		address, url string
		here         place
		want         []string
	}{
		"it answers":           {address: "127.0.0.1:7233", url: ui.URL},
		"nobody answers":       {address: "127.0.0.1:7233", url: "http://127.0.0.1:1", want: []string{"nothing answers at http://127.0.0.1:1/"}},
		"that of another":      {address: "temporal.example:7233", url: ui.URL, want: []string{"and Temporal is at temporal.example:7233"}},
		"for a browser":        {address: "temporal:7233", url: "http://localhost:1", here: place{container: true}},
		"nobody knows where":   {address: "temporal.example:7233"},
		"the dev server's own": {address: "127.0.0.1:1", want: []string{"set UNWIND_UI_URL"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := setup(t).warnings("web ui", []string{"UNWIND_UI_URL=" + c.url}, func(e *examination, cfg config.Config) {
				e.webUI(t.Context(), temporal{Connection: &temporalclient.Connection{Address: c.address, Namespace: "default"}}, cfg, c.here)
			})
			require.Len(t, found, len(c.want), found)
			for i, want := range c.want {
				require.Contains(t, found[i], want)
			}
		})
	}
}

// There is no systemd for users where tests run; this says what it would say.
func TestDoctorComparesWithTheUnit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says     string
		settings string // worker.env
		environ  []string
		want     []string
	}{
		"no unit":                   {says: "LoadState=not-found\nTimeoutStopUSec=1min"},
		"time enough":               {says: "LoadState=loaded\nTimeoutStopUSec=1min"},
		"the other order":           {says: "TimeoutStopUSec=1min 30s\nLoadState=loaded", environ: []string{"UNWIND_STOP_TIMEOUT=80s"}},
		"out of reach":              {says: "LoadState=loaded\nTimeoutStopUSec=1min 30s", environ: []string{"UNWIND_STOP_TIMEOUT=90s"}, want: []string{"systemd kills the worker after 1m30s"}},
		"no end":                    {says: "LoadState=loaded\nTimeoutStopUSec=infinity", environ: []string{"UNWIND_STOP_TIMEOUT=1h"}},
		"out of the worker's reach": {says: "LoadState=loaded\nTimeoutStopUSec=1min", settings: "UNWIND_STOP_TIMEOUT=5m", want: []string{"other values of", "(5m0s) is never reached"}},
		"another database": {settings: "# theirs\nUNWIND_DATABASE_URL='postgres://u:hush@db/unwind'\n; also\nUNWIND_HOST=\"h1\"",
			want: []string{"other values of UNWIND_DATABASE_URL, "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			home := b.environment.get("HOME")
			require.NoError(t, os.MkdirAll(filepath.Join(home, ".config/unwind"), 0o700))
			if c.settings != "" {
				require.NoError(t, os.WriteFile(filepath.Join(home, workerSettings), []byte(c.settings), 0o600))
			}
			found := b.warnings("worker unit", c.environ, func(e *examination, cfg config.Config) {
				e.unit(cfg, func() (string, error) { return sentence(c.says), nil })
			})
			require.Len(t, found, len(c.want), found)
			for i, want := range c.want {
				require.Contains(t, found[i], want)
			}
			require.NotContains(t, strings.Join(found, " "), "hush")
		})
	}
}

func TestDoctorChecksComposeFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sound := filepath.Join(b.root, "compose.yml")
	require.NoError(t, os.WriteFile(sound, []byte(`services: {worker: {image: "unwind:1", stop_grace_period: 1m, volumes: ["state:/var/lib/unwind"],
  environment: {TEMPORAL_ADDRESS: "temporal.example:7233"}}}
volumes: {state: {}}`), 0o600))
	require.Contains(t, b.must("doctor", "--compose", "compose.yml"), "ok\tcompose\tcompose.yml: nothing contradicts itself in 1 services")

	spoilt := filepath.Join(b.root, "spoilt.yml")
	require.NoError(t, os.WriteFile(spoilt, []byte(`services: {worker: {environment: {TEMPORAL_ADDRESS: "localhost:7233"}}}`), 0o600))
	r := b.run("doctor", "--compose", sound, "--compose", spoilt, "--json")
	require.Equal(t, exitRefused, r.code)
	found := objects[check](t, r.stdout)
	require.Len(t, found, 1)
	require.Contains(t, found[0].Message, "service worker: TEMPORAL_ADDRESS leads to localhost")

	r = b.run("doctor", "--compose", "none.yml")
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.stdout, "none.yml cannot be used")
}
