//go:build linux

package tmux

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unwind/internal/runtime"
	"unwind/internal/runtime/runtimetest"
	"unwind/teardown"
)

func TestMain(m *testing.M) { os.Exit(runtimetest.Main(m, Kind{})) }

func TestKind(t *testing.T) {
	t.Parallel()
	runtimetest.Run(t, runtimetest.Harness{
		Kind: Kind{},
		Start: func(t *testing.T, s *runtimetest.Stage, script string) teardown.Runtime {
			b := &bench{Stage: s, socket: filepath.Join(s.Dir, "s")}
			b.bystander(t)
			return b.session(t, "agent", script)
		},
		Contradict: func(rt *teardown.Runtime) { rt.Identity.Tag += "x" },
		Obscure: func(t *testing.T, rt teardown.Runtime) func() {
			server := runtimetest.Ref(t, rt.Identity.ServerPID)
			runtimetest.Signal(server, unix.SIGSTOP)
			return func() { runtimetest.Signal(server, unix.SIGCONT) }
		},
		Shows: true,
	})
}

// bench is a tmux server of one test.
type bench struct {
	*runtimetest.Stage
	socket string
	keep   int // the process of the bystander's pane
	rt     teardown.Runtime
	agent  int
}

// setup starts a server with a bystander's session and the session under test.
func setup(t *testing.T, script string) *bench {
	t.Helper()
	t.Parallel()
	s := runtimetest.NewStage(t)
	b := &bench{Stage: s, socket: filepath.Join(s.Dir, "s")}
	b.bystander(t)
	b.register(t, b.session(t, "agent", script))
	return b
}

func (b *bench) bystander(t *testing.T) {
	t.Helper()
	b.tmux(t, "new-session", "-d", "-s", "keep", "exec sleep 900")
	b.keep = b.number(t, "=keep:", "#{pane_pid}")
}

// session starts a session and returns it as a manifest names it.
func (b *bench) session(t *testing.T, name, script string) teardown.Runtime {
	t.Helper()
	b.tmux(t, "new-session", "-d", "-s", name, "-c", b.Worktree, "-e", b.EnvTag(), "sh", "-c", script)
	return teardown.Runtime{Kind: teardown.KindTmux, Role: teardown.RoleAgent, Socket: b.socket, Session: name,
		Identity: &teardown.RuntimeIdentity{Worktree: b.Worktree}}
}

func (b *bench) register(t *testing.T, bare teardown.Runtime) {
	t.Helper()
	b.agent = b.PID(t, "agent")
	rt, err := Kind{}.Pin(t.Context(), bare)
	if err != nil {
		t.Fatalf("Pin: %v", err)
	}
	b.rt = rt
}

// tmux runs one tmux command and returns what it printed.
func (b *bench) tmux(t *testing.T, args ...string) string {
	t.Helper()
	out, err := b.try(args...)
	if err != nil {
		t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return out
}

func (b *bench) try(args ...string) (string, error) {
	cmd := exec.Command("tmux", append([]string{"-u", "-f", "/dev/null", "-S", b.socket}, args...)...)
	cmd.Env = b.Environ()
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	return strings.TrimSuffix(string(out), "\n"), err
}

func (b *bench) number(t *testing.T, target, format string) int {
	t.Helper()
	n, err := strconv.Atoi(b.tmux(t, "display-message", "-p", "-t", target, format))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (b *bench) names() []string {
	out, err := b.try("list-sessions", "-F", "#{session_name}")
	if err != nil {
		return nil
	}
	return strings.Split(out, "\n")
}

func (b *bench) destroy(t *testing.T, options runtime.Options) (runtime.Outcome, error) {
	t.Helper()
	return Kind{}.Destroy(t.Context(), b.rt, options)
}
