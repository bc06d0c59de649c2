package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"unwind/internal/store"
	"unwind/teardown"
	"unwind/test/devserver"
)

// patience bounds every wait of these tests; it is not a speed that is tested.
const patience = time.Minute

// installation is one installation of unwind: a host, a database, queues of its
// own on a Temporal server.
type installation struct {
	t        *testing.T
	dir      string
	host     string
	database string
	queue    string
	server   *devserver.Server
	client   client.Client
	programs string   // their directory
	env      []string // beside the usual
}

func install(t *testing.T) *installation {
	t.Helper()
	return installIn(t, "")
}

// installIn is install below another directory than the usual temporary one.
func installIn(t *testing.T, parent string) *installation {
	t.Helper()
	dir := realTempDir(t, parent)
	i := &installation{t: t, dir: dir, host: "h1", queue: "q-" + filepath.Base(dir), server: temporal, programs: programs,
		database: "sqlite://" + filepath.Join(dir, "unwind.db")}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "home"), 0o700))
	i.client = i.server.Client(t)
	return i
}

const directoryPrefix = "unwind-e2e-"

// realTempDir is short, for a tmux socket's path has to fit into 107 bytes.
func realTempDir(t *testing.T, parent string) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, directoryPrefix)
	require.NoError(t, err)
	dir, err = filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (i *installation) environment(extra ...string) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + filepath.Join(i.dir, "home"),
		"LC_ALL=C.UTF-8",
		"TEMPORAL_ADDRESS=" + i.server.Address,
		"UNWIND_STATE_DIR=" + filepath.Join(i.dir, "state-"+i.host),
		"UNWIND_DATABASE_URL=" + i.database,
		"UNWIND_HOST=" + i.host,
		"UNWIND_TASK_QUEUE=" + i.queue,
		"UNWIND_ROOTS=" + i.dir,
		"UNWIND_RETRY_INITIAL=200ms",
		"UNWIND_RETRY_MAX=1s",
		"UNWIND_HEARTBEAT_TIMEOUT=3s",
		"UNWIND_RECONCILE_INTERVAL=1s",
		"UNWIND_STOP_TIMEOUT=5s",
	}
	env = append(env, i.env...)
	return append(env, extra...)
}

// answer is what a command said.
type answer struct {
	code        int
	out, errors string
}

// unwind runs one command to its end.
func (i *installation) unwind(args ...string) answer {
	i.t.Helper()
	return i.unwindWith("", args...)
}

func (i *installation) unwindWith(input string, args ...string) answer {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(i.programs, "unwind"), args...)
	cmd.Env = i.environment()
	cmd.Dir = i.dir
	cmd.Stdin = strings.NewReader(input)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		i.t.Fatalf("unwind %v: %v", args, err)
	}
	return answer{code: cmd.ProcessState.ExitCode(), out: out.String(), errors: errs.String()}
}

// must runs a command that has to end with exit code 0.
func (i *installation) must(args ...string) answer {
	i.t.Helper()
	a := i.unwind(args...)
	require.Equal(i.t, 0, a.code, "unwind %v\n%s%s", args, a.out, a.errors)
	return a
}

// result runs a command that prints a result as JSON.
func (i *installation) result(code int, args ...string) teardown.Result {
	i.t.Helper()
	a := i.unwind(append(args, "--json")...)
	require.Equal(i.t, code, a.code, "unwind %v\n%s%s", args, a.out, a.errors)
	lines := strings.Split(strings.TrimSpace(a.out), "\n")
	var result teardown.Result
	require.NoError(i.t, json.Unmarshal([]byte(lines[len(lines)-1]), &result), a.out)
	return result
}

// worker is a running unwind-worker.
type worker struct {
	cmd  *exec.Cmd
	log  *syncBuffer
	done chan struct{}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (i *installation) worker(env ...string) *worker {
	i.t.Helper()
	w := &worker{cmd: exec.Command(filepath.Join(i.programs, "unwind-worker")), log: &syncBuffer{}, done: make(chan struct{})}
	w.cmd.Env = i.environment(env...)
	w.cmd.Dir = i.dir
	w.cmd.Stdout, w.cmd.Stderr = w.log, w.log
	require.NoError(i.t, w.cmd.Start())
	go func() {
		_ = w.cmd.Wait()
		close(w.done)
	}()
	i.t.Cleanup(func() {
		w.kill()
		if i.t.Failed() {
			i.t.Logf("worker %d:\n%s", w.cmd.Process.Pid, w.log)
		}
	})
	return w
}

// awaitDeath waits until the worker has killed itself at its fault point.
func (w *worker) awaitDeath(t *testing.T) {
	t.Helper()
	select {
	case <-w.done:
		require.False(t, w.cmd.ProcessState.Success())
	case <-time.After(patience):
		t.Fatal("the worker did not reach its fault point")
	}
}

func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	<-w.done
}

func (w *worker) stop() {
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	<-w.done
}

// store opens the installation's database for a look at the facts.
func (i *installation) store() *store.Store {
	i.t.Helper()
	s, err := store.Open(i.t.Context(), i.database)
	require.NoError(i.t, err)
	i.t.Cleanup(func() { _ = s.Close() })
	return s
}

// until waits for a condition; what is said when it does not come true.
func (i *installation) until(what string, condition func() bool) {
	i.t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			i.t.Fatalf("in vain: %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// finalization is the newest finalization of a session.
func finalization(t *testing.T, s *store.Store, session string) store.Finalization {
	t.Helper()
	detail, err := s.SessionDetail(t.Context(), session)
	require.NoError(t, err)
	if len(detail.Finalizations) == 0 {
		return store.Finalization{}
	}
	return detail.Finalizations[len(detail.Finalizations)-1]
}

func (i *installation) untilParked(s *store.Store, session, reason string) {
	i.t.Helper()
	i.until("parked as "+reason, func() bool {
		f := finalization(i.t, s, session)
		require.Nil(i.t, f.FinishedAt, "finished instead of being parked")
		return f.ParkedAt != nil && f.ParkedReason == reason
	})
}

func (i *installation) untilFinished(s *store.Store, session string) {
	i.t.Helper()
	i.until("finished", func() bool { return finalization(i.t, s, session).FinishedAt != nil })
}

// agent is a session on real things: one tmux session, a repository with one
// worktree, a worktree of another repository inside it, a directory and a secret.
type agent struct {
	id                  string
	repository, library string
	worktree, nested    string
	socket, tmuxSession string
	directory, secret   string
	manifest            teardown.Manifest
	serverPID, panePID  string
}

// agent makes the things of a session. All tests share a namespace of Temporal,
// so its id is this installation's own.
func (i *installation) agent(name string) *agent {
	i.t.Helper()
	id := name + "-" + strings.TrimPrefix(filepath.Base(i.dir), directoryPrefix)
	a := &agent{id: id,
		repository: filepath.Join(i.dir, id, "src", "app"), library: filepath.Join(i.dir, id, "src", "lib"),
		worktree: filepath.Join(i.dir, id, "wt"), nested: filepath.Join(i.dir, id, "wt", "lib"),
		socket: filepath.Join(i.dir, id+".sock"), tmuxSession: id,
		directory: filepath.Join(i.dir, id, "agent"), secret: filepath.Join(i.dir, id, "token"),
	}
	for _, repository := range []string{a.repository, a.library} {
		i.repository(repository)
	}
	i.git(a.repository, "worktree", "add", "-q", "-b", "agent/"+id, a.worktree)
	i.git(a.library, "worktree", "add", "-q", "-b", "agent/"+id, a.nested)
	require.NoError(i.t, os.WriteFile(filepath.Join(a.repository, ".git", "info", "exclude"), []byte("/lib/\n"), 0o600))
	require.NoError(i.t, os.MkdirAll(a.directory, 0o700))
	require.NoError(i.t, os.WriteFile(filepath.Join(a.directory, "prompt.md"), []byte("do it\n"), 0o600))
	require.NoError(i.t, os.WriteFile(a.secret, []byte("s3cret\n"), 0o600))
	i.tmux(a)
	a.manifest = teardown.Manifest{ID: id,
		Runtimes: []teardown.Runtime{{Kind: teardown.KindTmux, Role: teardown.RoleAgent, Socket: a.socket, Session: id}},
		Worktrees: []teardown.WorktreeSpec{
			{Repository: a.repository, Path: a.worktree, Branch: "agent/" + id},
			{Repository: a.library, Path: a.nested, Branch: "agent/" + id, Parent: a.worktree}},
		Resources: []teardown.ResourceSpec{{Kind: teardown.ResourceDir, Path: a.directory}, {Kind: teardown.ResourceSecret, Path: a.secret}},
	}
	return a
}

func (i *installation) repository(path string) {
	i.t.Helper()
	require.NoError(i.t, os.MkdirAll(path, 0o755))
	i.git(path, "init", "-q", "-b", "main")
	require.NoError(i.t, os.WriteFile(filepath.Join(path, "README.md"), []byte("# project\n"), 0o644))
	i.git(path, "add", ".")
	i.git(path, "commit", "-q", "-m", "first")
}

func (i *installation) git(dir string, args ...string) string {
	i.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(i.dir, "home"), "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org"}
	output, err := cmd.CombinedOutput()
	require.NoError(i.t, err, "git %v: %s", args, output)
	return strings.TrimSpace(string(output))
}

// tmux starts the agent's tmux session on a server of its own and sees to it
// that the server ends with the test.
func (i *installation) tmux(a *agent) {
	i.t.Helper()
	run := func(args ...string) string {
		cmd := exec.Command("tmux", append([]string{"-f", "/dev/null", "-S", a.socket}, args...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(i.dir, "home"), "TERM=xterm", "LC_ALL=C.UTF-8", "SHELL=/bin/sh"}
		output, err := cmd.CombinedOutput()
		require.NoError(i.t, err, "tmux %v: %s", args, output)
		return strings.TrimSpace(string(output))
	}
	// A session beside the agent's: it has to survive.
	run("new-session", "-d", "-s", "keep-"+a.id, "-c", "/", "exec sleep 3600")
	i.t.Cleanup(func() { _ = exec.Command("tmux", "-S", a.socket, "kill-server").Run() })
	run("new-session", "-d", "-s", a.tmuxSession, "-c", a.worktree, "echo working on it; exec sleep 3600")
	a.serverPID = run("display-message", "-p", "#{pid}")
	a.panePID = run("list-panes", "-s", "-t", "="+a.tmuxSession+":", "-F", "#{pane_pid}")
}

func (i *installation) add(a *agent) {
	i.t.Helper()
	manifest, err := json.Marshal(a.manifest)
	require.NoError(i.t, err)
	answer := i.unwindWith(string(manifest), "session", "add", "-f", "-")
	require.Equal(i.t, 0, answer.code, answer.errors)
}

// requireReleased checks on the machine itself that nothing is left of the agent
// and nothing else was touched.
func (i *installation) requireReleased(a *agent) {
	i.t.Helper()
	for _, path := range []string{a.worktree, a.nested, a.directory, a.secret} {
		require.NoFileExists(i.t, path)
		require.NoDirExists(i.t, path)
	}
	require.NotContains(i.t, i.git(a.repository, "worktree", "list"), a.worktree)
	require.NotContains(i.t, i.git(a.library, "worktree", "list"), a.nested)
	require.Contains(i.t, i.git(a.repository, "branch", "--list", "agent/*"), "agent/"+a.id, "a branch is never deleted")
	sessions, err := exec.Command("tmux", "-S", a.socket, "list-sessions", "-F", "#{session_name}").CombinedOutput()
	require.NoError(i.t, err, string(sessions))
	require.Equal(i.t, "keep-"+a.id, strings.TrimSpace(string(sessions)))
	entries, err := os.ReadDir(filepath.Join(i.dir, a.id))
	require.NoError(i.t, err)
	require.Len(i.t, entries, 1, "only src is left: %v", entries)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

func installWithOwnServer(t *testing.T) *installation {
	t.Helper()
	i := install(t)
	i.takeOwnServer(t)
	return i
}

// takeOwnServer is for a test that stops Temporal, or has it lose its data.
func (i *installation) takeOwnServer(t *testing.T) {
	t.Helper()
	i.server = devserver.Start(t, devserver.File(filepath.Join(i.dir, "temporal.db")))
	i.client = i.server.Client(t)
}

// killAgent kills the agent's tmux session under unwind.
func (i *installation) killAgent(a *agent) {
	i.t.Helper()
	output, err := exec.Command("tmux", "-S", a.socket, "kill-session", "-t", "="+a.tmuxSession).CombinedOutput()
	require.NoError(i.t, err, string(output))
}

func (i *installation) manifestOf(a *agent, host string) string {
	i.t.Helper()
	manifest := a.manifest
	manifest.ID, manifest.Host = a.id+"-again", host
	text, err := json.Marshal(manifest)
	require.NoError(i.t, err)
	return string(text)
}

// runtimeReleased is when the session's runtime was confirmed gone, or nil.
func (i *installation) runtimeReleased(s *store.Store, session string) *time.Time {
	i.t.Helper()
	detail, err := s.SessionDetail(i.t.Context(), session)
	require.NoError(i.t, err)
	return detail.Runtimes[0].ReleasedAt
}
