//go:build linux

package process

import (
	"os"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"unwind/internal/runtime/runtimetest"
	"unwind/teardown"
)

// firstThreadExits makes the test binary, started again, a process whose first
// thread has exited while others run.
const firstThreadExits = "UNWIND_TEST_FIRST_THREAD_EXITS"

func init() {
	if os.Getenv(firstThreadExits) == "" {
		return
	}
	goruntime.LockOSThread() // init runs on the first thread
	go func() {
		goruntime.LockOSThread()
		for {
			time.Sleep(time.Minute)
		}
	}()
	time.Sleep(50 * time.Millisecond)
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
}

func TestMain(m *testing.M) { os.Exit(runtimetest.Main(m, Kind{})) }

func TestKind(t *testing.T) {
	t.Parallel()
	runtimetest.Run(t, runtimetest.Harness{
		Kind: Kind{},
		Start: func(t *testing.T, s *runtimetest.Stage, script string) teardown.Runtime {
			pid := s.Start(t, s.Worktree, script, s.EnvTag())
			return teardown.Runtime{Kind: teardown.KindProcess, Role: teardown.RoleAgent, PID: pid,
				Identity: &teardown.RuntimeIdentity{Worktree: s.Worktree}}
		},
		Contradict: func(rt *teardown.Runtime) { rt.Identity.EnvTag = "UNWIND_RUN_ID=another-run" },
	})
}

func itoa(n int) string { return strconv.Itoa(n) }

// A tag that an older process carries would end that one, too.
func TestGivenTagOfOthersIsRefused(t *testing.T) {
	tag := "SHARED_TAG=" + strconv.Itoa(os.Getpid())
	bystander := exec.Command("sleep", "900")
	bystander.Env = []string{tag}
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bystander.Process.Kill(); _ = bystander.Wait() })
	agent := exec.Command("sleep", "900")
	agent.Env = []string{tag}
	agent.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	time.Sleep(30 * time.Millisecond) // the kernel counts in hundredths of a second
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait() })
	given := teardown.Runtime{Kind: teardown.KindProcess, Role: teardown.RoleAgent, PID: agent.Process.Pid, Identity: &teardown.RuntimeIdentity{EnvTag: tag}}
	_, err := Kind{}.Pin(t.Context(), given)
	if teardown.CodeOf(err) != teardown.CodeRuntimeIdentity {
		t.Errorf("%v", err)
	}
}
