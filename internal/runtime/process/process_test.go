//go:build linux

package process

import (
	"os"
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
