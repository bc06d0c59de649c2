//go:build linux

package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"unwind/internal/runtime"
	"unwind/internal/runtime/proctable"
	"unwind/internal/runtime/runtimetest"
	"unwind/teardown"
)

// Only a control group finds what left the tag, the session and the parent
// behind.
func TestControlGroupFindsWhatHidesFromEverythingElse(t *testing.T) {
	group := newCgroup(t)
	b := setup(t, `echo $$ >`+group+`/cgroup.procs; setsid sh -c 'cd /; env -i sh -c "echo \$\$ >'$STAGE'/daemon; exec sleep 900" &' & `+runtimetest.Plain)
	daemon := b.PID(t, "daemon")
	b.rt.Identity.Cgroup = group
	runtimetest.Kill(t, b.agent)
	runtimetest.Eventually(t, "orphan", func() bool { return !tagged(parent(daemon), b.EnvTag()) })
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, daemon)
	if _, err := os.Stat(group); !os.IsNotExist(err) {
		t.Errorf("the control group is left: %v", err)
	}
	b.wantOutcome(t, teardown.RuntimeAlreadyGone)
}

func TestControlGroupWithTheCallerInIt(t *testing.T) {
	group := newCgroup(t)
	b := setup(t, runtimetest.Plain)
	b.rt.Identity.Cgroup = group
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	wrapper := exec.Command("sh", "-c", `echo $$ >`+group+`/cgroup.procs; exec "$0"`, executable)
	wrapper.Env = append(b.Environ(), runtimetest.DestroyEntry(t, b.rt))
	out, err := wrapper.Output()
	if err != nil || !strings.Contains(string(out), string(teardown.CodeRuntimeIdentity)) {
		t.Errorf("%s %v", out, err)
	}
	b.wantAlive(t, b.agent)
}

func TestControlGroupThatIsNone(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.rt.Identity.Cgroup = b.Dir
	outcome, err := Kind{}.Destroy(t.Context(), b.rt, runtime.Options{})
	if err != nil || outcome.Runtime.Code != teardown.CodeRuntimeIdentity {
		t.Errorf("%+v %v", outcome, err)
	}
	b.wantAlive(t, b.agent)
}

// newCgroup makes a control group where this user may.
func newCgroup(t *testing.T) string {
	t.Helper()
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(mount, "cgroup.procs")); err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(mount, "cgroup.subtree_control")); err != nil {
			continue
		}
		if group, err := os.MkdirTemp(mount, "unwind-test-"); err == nil {
			t.Cleanup(func() { _ = os.Remove(group) })
			return group
		}
	}
	t.Skip("no control groups can be made here")
	return ""
}

func parent(pid int) int {
	p, err := proctable.Read(pid)
	if err != nil {
		return 0
	}
	return p.Parent
}

func tagged(pid int, tag string) bool {
	environment, err := proctable.Environ(pid)
	return err == nil && environment.Has(tag)
}

func TestGivenControlGroupOfOthersIsRefused(t *testing.T) {
	group := newCgroup(t)
	bystander := exec.Command("sleep", "900")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bystander.Process.Kill(); _ = bystander.Wait() })
	join := func(pid int) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	join(bystander.Process.Pid)
	b := setup(t, runtimetest.Plain)
	b.rt.Identity.Cgroup = group
	for _, joined := range []bool{false, true} {
		if joined {
			join(b.agent)
		}
		_, err := Kind{}.Pin(t.Context(), b.rt)
		if teardown.CodeOf(err) != teardown.CodeRuntimeIdentity {
			t.Errorf("the agent is in it: %v; %v", joined, err)
		}
	}
	_ = bystander.Process.Kill()
	_ = bystander.Wait()
	if _, err := (Kind{}).Pin(t.Context(), b.rt); err != nil {
		t.Error(err)
	}
}
