//go:build linux

package process

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"unwind/internal/runtime"
	"unwind/internal/runtime/runtimetest"
	"unwind/teardown"
)

// bench is one process under test.
type bench struct {
	*runtimetest.Stage
	rt    teardown.Runtime
	agent int
}

func setup(t *testing.T, script string) *bench {
	t.Helper()
	t.Parallel()
	b := &bench{Stage: runtimetest.NewStage(t)}
	b.Start(t, "/", script, b.EnvTag())
	b.register(t, b.PID(t, "agent"))
	return b
}

func (b *bench) register(t *testing.T, pid int) {
	t.Helper()
	rt, err := Kind{}.Pin(t.Context(), teardown.Runtime{Kind: teardown.KindProcess, PID: pid})
	if err != nil {
		t.Fatalf("Pin: %v", err)
	}
	b.rt, b.agent = rt, pid
}

func TestNumberUsedAgain(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.rt.StartTime -= 777
	b.rt.Identity.EnvTag = "UNWIND_RUN_ID=gone"
	b.wantOutcome(t, teardown.RuntimeAlreadyGone)
	b.wantAlive(t, b.agent)
}

func TestNumberUsedAgainWhileAProcessOfTheRunLives(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	other := b.Start(t, "/", "exec sleep 900")
	b.rt.PID, b.rt.StartTime = other, runtimetest.Ref(t, other).Start-777
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, b.agent)
	b.wantAlive(t, other)
}

// kill(pid, 0) succeeds for a zombie for ever.
func TestZombie(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	zombie := exec.Command("sleep", "900")
	zombie.Env = b.Environ()
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = zombie.Wait() }()
	b.register(t, zombie.Process.Pid)
	_ = zombie.Process.Kill()
	runtimetest.Eventually(t, "zombie", func() bool { return !runtimetest.Alive(zombie.Process.Pid) })
	b.wantOutcome(t, teardown.RuntimeAlreadyGone)
	if _, err := (Kind{}).Pin(t.Context(), b.rt); teardown.CodeOf(err) != teardown.CodeRuntimeUnroutable {
		t.Errorf("Pin: %v", err)
	}
}

// The kernel shows such a process as a zombie, and it lives.
func TestFirstThreadHasExited(t *testing.T) {
	t.Parallel()
	b := &bench{Stage: runtimetest.NewStage(t)}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(b.Environ(), firstThreadExits+"=1", b.EnvTag())
	cmd.Dir = b.Worktree
	b.Launch(t, cmd)
	pid := cmd.Process.Pid
	runtimetest.Eventually(t, "exit of the first thread", func() bool {
		stat, _ := os.ReadFile("/proc/" + itoa(pid) + "/stat")
		return strings.Contains(string(stat), ") Z ")
	})
	b.wantAlive(t, pid)
	b.register(t, pid)
	if b.rt.Identity.EnvTag != b.EnvTag() {
		t.Errorf("pinned %q", b.rt.Identity.EnvTag)
	}
	other := b.rt
	other.PID, other.StartTime = 4711, 1
	other.Identity = &teardown.RuntimeIdentity{Worktree: b.Worktree, BootID: b.rt.Identity.BootID}
	outcome, err := Kind{}.Destroy(t.Context(), other, runtime.Options{})
	if err != nil || outcome.Runtime.Code != teardown.CodeRuntimeOccupied {
		t.Errorf("it is not seen in the worktree: %+v %v", outcome, err)
	}
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, pid)
}

func TestProcessGroupIsSharedWithOthers(t *testing.T) {
	t.Parallel()
	b := &bench{Stage: runtimetest.NewStage(t)}
	leader := b.Start(t, "/", b.EnvTag()+` sh -c 'echo $$ >$STAGE/agent; exec sleep 900' & sh -c 'echo $$ >$STAGE/other; exec sleep 900' & exec sleep 900`)
	other := b.PID(t, "other")
	b.register(t, b.PID(t, "agent"))
	if b.rt.Identity.PGID != leader {
		t.Errorf("process group %d, want %d", b.rt.Identity.PGID, leader)
	}
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, b.agent)
	b.wantAlive(t, leader, other)
}

// A process that never led a kernel session has nobody in it, whoever leads one
// under its number now.
func TestSessionUnderTheNumberOfOneThatLedNone(t *testing.T) {
	b := setup(t, `trap '' HUP; sh -c 'trap "" HUP; echo $$ >$STAGE/member; exec sleep 900' & `+runtimetest.Plain)
	member := b.PID(t, "member")
	b.rt.Identity.PGID++
	b.rt.Identity.EnvTag = ""
	runtimetest.Kill(t, b.agent)
	b.wantOutcome(t, teardown.RuntimeAlreadyGone)
	b.wantAlive(t, member)
	b.rt.Identity.PGID--
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, member)
}

func TestChildrenWithoutTagInSessionsOfTheirOwn(t *testing.T) {
	b := setup(t, `setsid env -i STAGE=$STAGE sh -c 'echo $$ >$STAGE/child; setsid sleep 900 & echo $! >$STAGE/grandchild; wait' & `+runtimetest.Plain)
	child, grandchild := b.PID(t, "child"), b.PID(t, "grandchild")
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, b.agent, child, grandchild)
}

func TestIncompleteRecords(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*teardown.Runtime){
		"no number":              func(rt *teardown.Runtime) { rt.PID = 0 },
		"everybody":              func(rt *teardown.Runtime) { rt.PID = -1 },
		"init":                   func(rt *teardown.Runtime) { rt.PID = 1 },
		"a group":                func(rt *teardown.Runtime) { rt.PID = -rt.PID },
		"no start time":          func(rt *teardown.Runtime) { rt.StartTime = 0 },
		"env_tag without a name": func(rt *teardown.Runtime) { rt.Identity.EnvTag = "x" },
		"unknown boot":           func(rt *teardown.Runtime) { rt.Identity.BootID = "unknown" },
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, runtimetest.Plain)
			change(&b.rt)
			outcome, err := Kind{}.Destroy(t.Context(), b.rt, runtime.Options{})
			if err != nil || outcome.Runtime.Outcome != teardown.RuntimeRefused || outcome.Runtime.Code != teardown.CodeRuntimeUnroutable {
				t.Errorf("%+v %v", outcome, err)
			}
			b.wantAlive(t, b.agent)
		})
	}
}

func TestConfirmedGoneIsNoLicenceForAnothersProcess(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.rt.Identity.EnvTag = "UNWIND_RUN_ID=another-run"
	outcome, err := Kind{}.Destroy(t.Context(), b.rt, runtime.Options{ConfirmedGoneBy: "somebody"})
	if err != nil || outcome.Runtime.Outcome != teardown.RuntimeAlreadyGone {
		t.Errorf("%+v %v", outcome, err)
	}
	b.wantAlive(t, b.agent)
}

// The kernel's "not permitted" is not its "no such process".
func TestOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to act as somebody else")
	}
	b := setup(t, runtimetest.Plain)
	answer := runtimetest.As(t, 65534, b.rt)
	if answer.Error == nil || answer.Error.Code != teardown.CodeRuntimeStillAlive || !answer.Error.Retryable ||
		len(answer.Error.Details) != 1 || !strings.HasPrefix(answer.Error.Details[0], itoa(b.agent)+" ") {
		t.Errorf("%+v %+v", answer, answer.Error)
	}
	b.wantAlive(t, b.agent)
}

func TestCallerInsideTheRuntime(t *testing.T) {
	b := setup(t, `echo $$ >$STAGE/agent; while ! [ -e $STAGE/go ]; do sleep .05; done; . $STAGE/go; exec sleep 900`)
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := runtimetest.DestroyEntry(t, b.rt) + ` '` + executable + `' >$STAGE/answer.new; mv $STAGE/answer.new $STAGE/answer` + "\n"
	if err := os.WriteFile(b.Dir+"/go.new", []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(b.Dir+"/go.new", b.Dir+"/go"); err != nil {
		t.Fatal(err)
	}
	runtimetest.Eventually(t, "answer", func() bool { return b.Has("answer") })
	if answer, _ := os.ReadFile(b.Dir + "/answer"); !strings.Contains(string(answer), string(teardown.CodeRuntimeStillAlive)) {
		t.Errorf("answer %s", answer)
	}
	b.wantAlive(t, b.agent)
}

func TestPinDoesNotTakeOverATagThatTheParentHas(t *testing.T) {
	t.Parallel()
	b := &bench{Stage: runtimetest.NewStage(t)}
	b.Start(t, "/", `sh -c 'echo $$ >$STAGE/agent; exec sleep 900' & wait`, b.EnvTag())
	b.register(t, b.PID(t, "agent"))
	if b.rt.Identity.EnvTag != "" {
		t.Errorf("pinned %q", b.rt.Identity.EnvTag)
	}
}

func TestPinRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*teardown.Runtime)
		want   teardown.Code
	}{
		"no number":     {func(rt *teardown.Runtime) { rt.PID = 0 }, teardown.CodeRuntimeUnroutable},
		"init":          {func(rt *teardown.Runtime) { rt.PID = 1 }, teardown.CodeRuntimeUnroutable},
		"another start": {func(rt *teardown.Runtime) { rt.StartTime-- }, teardown.CodeRuntimeIdentity},
		"another group": {func(rt *teardown.Runtime) { rt.Identity.PGID-- }, teardown.CodeRuntimeIdentity},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, runtimetest.Plain)
			c.change(&b.rt)
			if _, err := (Kind{}).Pin(t.Context(), b.rt); teardown.CodeOf(err) != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

func (b *bench) wantOutcome(t *testing.T, want teardown.RuntimeOutcome) {
	t.Helper()
	outcome, err := Kind{}.Destroy(t.Context(), b.rt, runtime.Options{})
	if err != nil || outcome.Runtime.Outcome != want {
		t.Fatalf("%+v %v, want %s", outcome, err, want)
	}
}

func (b *bench) wantDead(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if runtimetest.Alive(pid) {
			t.Errorf("process %d lives", pid)
		}
	}
}

func (b *bench) wantAlive(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if !runtimetest.Alive(pid) {
			t.Errorf("process %d is dead", pid)
		}
	}
}
