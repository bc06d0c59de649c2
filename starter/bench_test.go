package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
	"unwind/test/pgtest"
)

// bench is an installation of its own below a temporary directory: state, roots,
// a SQLite database, and a Temporal that does not answer.
type bench struct {
	*testing.T
	environment environment
	root        string // the one root
	state       string
	database    string // its URL
}

func setup(t *testing.T) *bench {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	b := &bench{T: t, root: filepath.Join(dir, "root"), state: filepath.Join(dir, "state")}
	b.database = "sqlite://" + b.state + "/unwind.db"
	require.NoError(t, os.Mkdir(b.root, 0o700))
	b.environment = environment{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"), "USER=tester",
		"UNWIND_STATE_DIR=" + b.state, "UNWIND_ROOTS=" + b.root, "UNWIND_HOST=h1", "UNWIND_LOCK_WAIT=100ms",
		"TEMPORAL_ADDRESS=127.0.0.1:1", "TEMPORAL_CONFIG_FILE=" + filepath.Join(dir, "none.toml"),
	}
	return b
}

// onBoth are an installation with each database.
func onBoth(t *testing.T) map[string]*bench {
	t.Helper()
	onPostgres := setup(t)
	onPostgres.database = pgtest.Database(t)
	_, err := store.Migrate(t.Context(), onPostgres.database)
	require.NoError(t, err)
	onPostgres.environment = onPostgres.environment.with("UNWIND_DATABASE_URL=" + onPostgres.database)
	return map[string]*bench{"sqlite": setup(t), "postgres": onPostgres}
}

// in is the same installation in a subtest.
func (b *bench) in(t *testing.T) *bench {
	same := *b
	same.T = t
	return &same
}

// ran is what a command line came to.
type ran struct {
	code   exitCode
	stdout string
	stderr string
}

func (b *bench) program(stdin string) (*program, *bytes.Buffer, *bytes.Buffer) {
	var stdout, stderr bytes.Buffer
	return &program{
		streams:     streams{in: strings.NewReader(stdin), out: &stdout, err: &stderr},
		flags:       addSettings(pflag.NewFlagSet("test", pflag.ContinueOnError)),
		environment: b.environment,
		directory:   b.root,
		beside:      b.root,
	}, &stdout, &stderr
}

func (b *bench) run(args ...string) ran { return b.feed("", args...) }

// feed runs a command line with something on standard input.
func (b *bench) feed(stdin string, args ...string) ran {
	b.Helper()
	p, stdout, stderr := b.program(stdin)
	code := p.execute(b.Context(), args)
	return ran{exitCode(code), stdout.String(), stderr.String()}
}

func (b *bench) must(args ...string) string {
	b.Helper()
	r := b.run(args...)
	require.Equal(b, exitDone, r.code, "%s%s", r.stdout, r.stderr)
	return r.stdout
}

// store opens the database as a finalization would.
func (b *bench) store() *store.Store {
	b.Helper()
	s, err := store.Open(b.Context(), b.database)
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close() })
	return s
}

func (b *bench) git(dir string, args ...string) {
	b.Helper()
	command := exec.Command("git", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	text, err := command.CombinedOutput()
	require.NoError(b, err, "git %v: %s", args, text)
}

// repository makes a repository with one commit.
func (b *bench) repository(name string) string {
	b.Helper()
	dir := filepath.Join(b.root, name)
	require.NoError(b, os.Mkdir(dir, 0o700))
	b.git(dir, "init", "-q")
	b.git(dir, "commit", "-q", "--allow-empty", "-m", "one")
	return dir
}

// worktree adds a linked worktree with a branch of the same name.
func (b *bench) worktree(repository, name string) string {
	b.Helper()
	path := filepath.Join(b.root, name)
	b.git(repository, "worktree", "add", "-q", "-b", strings.ReplaceAll(name, "/", "-"), path)
	return path
}

func (b *bench) write(path, content string) string {
	b.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(b.root, path)
	}
	require.NoError(b, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// tmux starts a session on a server of its own and answers the server's socket.
func (b *bench) tmux(session, directory string) string {
	b.Helper()
	// A socket's path is bounded to about 100 bytes, a test's directory is not.
	dir, err := os.MkdirTemp("", "unwind-cli-")
	require.NoError(b, err)
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, err := filepath.EvalSymlinks(dir)
	require.NoError(b, err)
	socket = filepath.Join(socket, "s")
	tmux := func(args ...string) error {
		command := exec.Command("tmux", append([]string{"-S", socket, "-f", "/dev/null"}, args...)...)
		command.Env = append(os.Environ(), "TMUX=")
		return command.Run()
	}
	b.Cleanup(func() { _ = tmux("kill-server") })
	require.NoError(b, tmux("new-session", "-d", "-s", session, "-c", directory, "sleep", "600"))
	return socket
}

// process starts one in a directory. It lives as long as the test, unless end is
// called, which returns when it is gone.
func (b *bench) process(directory string) (pid int, end func()) {
	b.Helper()
	command := exec.Command("sleep", "600")
	command.Dir = directory
	require.NoError(b, command.Start())
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	end = func() {
		_ = command.Process.Kill()
		<-ended
	}
	b.Cleanup(end)
	return command.Process.Pid, end
}

func (b *bench) manifest(m teardown.Manifest) string {
	b.Helper()
	content, err := json.Marshal(m)
	require.NoError(b, err)
	return string(content)
}

// add registers a session and answers its manifest.
func (b *bench) add(m teardown.Manifest) string {
	b.Helper()
	content := b.manifest(m)
	r := b.feed(content, "session", "add", "-f", "-")
	require.Equal(b, exitDone, r.code, r.stderr)
	return content
}

// objects reads a line of JSON each.
func objects[T any](t *testing.T, text string) []T {
	t.Helper()
	var all []T
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		var one T
		require.NoError(t, json.Unmarshal([]byte(line), &one), line)
		all = append(all, one)
	}
	return all
}

func object[T any](t *testing.T, text string) T {
	t.Helper()
	all := objects[T](t, text)
	require.Len(t, all, 1)
	return all[0]
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
