//go:build linux

package runtimetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unwind/internal/runtime"
	"unwind/internal/runtime/proctable"
	"unwind/teardown"
)

// StarterKind is a kind that starts what it destroys.
type StarterKind interface {
	runtime.Kind
	runtime.Starter
}

// RunStarter asserts the sentences of runtime.Starter. Bare is a runtime of the
// kind that is yet to be planned.
func RunStarter(t *testing.T, kind StarterKind, bare func(*Stage) teardown.Runtime) {
	setup := func(t *testing.T) (*Stage, teardown.Runtime) {
		t.Helper()
		t.Parallel()
		s := NewStage(t)
		planned, err := kind.Plan(bare(s))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context()) // which has ended
			// A server that is just exiting cannot be asked.
			Eventually(t, "the end of what was started", func() bool {
				found, there, err := kind.Find(ctx, planned)
				if there && err == nil {
					_, err = kind.Destroy(ctx, found, runtime.Options{})
				}
				return err == nil
			})
		})
		return s, planned
	}
	start := func(t *testing.T, rt teardown.Runtime, launch runtime.Launch) teardown.Runtime {
		t.Helper()
		started, err := kind.Start(t.Context(), rt, launch)
		if err != nil {
			t.Fatal(err)
		}
		return started
	}
	t.Run("Plan starts nothing and plans another tag each time", func(t *testing.T) {
		s, planned := setup(t)
		again, err := kind.Plan(bare(s))
		if err != nil || again.Identity.EnvTag == planned.Identity.EnvTag {
			t.Errorf("%+v %v", again.Identity, err)
		}
		if boot, err := runtime.ThisBoot(); err != nil || planned.Identity.BootID != boot {
			t.Errorf("%q %v", planned.Identity.BootID, err)
		}
		if _, there, err := kind.Find(t.Context(), planned); there || err != nil {
			t.Errorf("%v %v", there, err)
		}
		if group := planned.Identity.Cgroup; group != "" {
			if _, err := os.Stat(group); err == nil {
				t.Error("the group is there")
			}
		}
	})
	t.Run("Start pins what it started, Find finds it, Destroy ends it", func(t *testing.T) {
		s, planned := setup(t)
		rt := start(t, planned, runtime.Launch{Command: []string{"sleep", "900"}, Directory: s.Worktree})
		if state, err := kind.Probe(t.Context(), rt); state != runtime.Alive || err != nil {
			t.Fatalf("%v %v", state, err)
		}
		found, there, err := kind.Find(t.Context(), planned)
		if err != nil || !there {
			t.Fatalf("%v %v", there, err)
		}
		if got, want := *found.Identity, *rt.Identity; got.SessionID != want.SessionID || found.PID != rt.PID || found.StartTime != rt.StartTime || got.Cgroup != want.Cgroup {
			t.Errorf("found %+v, not %+v", found, rt)
		}
		outcome, err := kind.Destroy(t.Context(), rt, runtime.Options{})
		if err != nil {
			t.Fatal(err)
		}
		wantOutcome(t, outcome, teardown.RuntimeReleased)
		if _, there, err := kind.Find(t.Context(), planned); there || err != nil {
			t.Errorf("%v %v", there, err)
		}
	})
	t.Run("the command gets its arguments, directory and environment as they are", func(t *testing.T) {
		s, planned := setup(t)
		dir := mkdir(t, filepath.Join(s.Worktree, "a #{pid} #(exit) b"))
		script := `printf '%s\n' "$@" >"$OUT.new"; pwd >>"$OUT.new"; env | grep ^UNWIND_ >>"$OUT.new"; mv "$OUT.new" "$OUT"; exec sleep 900`
		arguments := []string{"plain", "semicolon;", ";", `back\;`, "#{session_id}", "#(touch " + s.Dir + "/expanded)", "$(touch " + s.Dir + "/expanded)", "it's \"quoted\"", "-x", "*"}
		out := filepath.Join(s.Dir, "out")
		command := append([]string{"env", "OUT=" + out, "sh", "-c", script, "sh"}, arguments...)
		start(t, planned, runtime.Launch{Command: command, Directory: dir})
		Eventually(t, "the command's output", func() bool { _, err := os.Stat(out); return err == nil })
		got, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Join(append(arguments, dir, planned.Identity.EnvTag), "\n") + "\n"
		if string(got) != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if _, err := os.Stat(filepath.Join(s.Dir, "expanded")); err == nil {
			t.Error("something was expanded")
		}
	})
	t.Run("nothing of the caller's descriptors is handed on", func(t *testing.T) {
		s, planned := setup(t)
		held, err := os.Create(filepath.Join(s.Dir, "held"))
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		rt := start(t, planned, runtime.Launch{Command: []string{"sleep", "900"}})
		for _, pid := range []int{leaderOf(rt), rt.Identity.ServerPID} {
			if pid == 0 {
				continue
			}
			open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
			if err != nil || len(open) == 0 {
				t.Fatalf("%v %v", open, err)
			}
			for _, descriptor := range open {
				if at, _ := os.Readlink(descriptor); at == held.Name() {
					t.Errorf("process %d has %s", pid, at)
				}
			}
		}
	})
	t.Run("a process that hides from everything but its control group is found", func(t *testing.T) {
		s, planned := setup(t)
		if planned.Identity.Cgroup == "" {
			t.Skip("no control groups can be made here")
		}
		script := `cd /; env -i setsid sh -c 'sh -c "echo \$\$ >` + s.Dir + `/daemon; exec sleep 900" &' & exec sleep 900`
		rt := start(t, planned, runtime.Launch{Command: []string{"sh", "-c", script}})
		daemon := s.PID(t, "daemon")
		Eventually(t, "an orphan", func() bool {
			p, err := proctable.Read(daemon)
			above, _ := proctable.Read(p.Parent)
			return err == nil && !proctable.InCgroup(above.PID, planned.Identity.Cgroup)
		})
		if rt.Identity.Cgroup == "" {
			t.Fatal("the group is not recorded")
		}
		if _, err := kind.Destroy(t.Context(), rt, runtime.Options{}); err != nil {
			t.Fatal(err)
		}
		wantDead(t, daemon)
		if _, err := os.Stat(rt.Identity.Cgroup); err == nil {
			t.Error("the group is left")
		}
	})
	t.Run("what is left of a start is ended by its tag", func(t *testing.T) {
		s, planned := setup(t)
		rt := start(t, planned, runtime.Launch{Command: []string{"sh", "-c", `setsid sh -c 'echo $$ >` + s.Dir + `/child; exec sleep 900' & exec sleep 900`}})
		child := s.PID(t, "child")
		Kill(t, leaderOf(rt))
		Eventually(t, "the runtime gone", func() bool {
			state, err := kind.Probe(t.Context(), rt)
			return err == nil && state == runtime.Gone
		})
		planned.Gone = true
		outcome, err := kind.Destroy(t.Context(), planned, runtime.Options{})
		if err != nil {
			t.Fatal(err)
		}
		wantOutcome(t, outcome, teardown.RuntimeReleased)
		wantDead(t, child)
	})
	for name, c := range map[string]struct {
		launch runtime.Launch
		code   teardown.Code
	}{
		"a command that ends at once is said to have exited": {runtime.Launch{Command: []string{"true"}}, teardown.CodeRuntimeExited},
		"a program that is not there is refused":             {runtime.Launch{Command: []string{"no-such-program"}}, teardown.CodeInvalidManifest},
		"no command is refused":                              {runtime.Launch{}, teardown.CodeInvalidManifest},
		"a NUL in the command is refused":                    {runtime.Launch{Command: []string{"sleep", "9\x00"}}, teardown.CodeInvalidManifest},
		"a directory that is not there is refused":           {runtime.Launch{Command: []string{"sleep", "900"}, Directory: "/no/such/directory"}, teardown.CodeInvalidManifest},
	} {
		t.Run(name, func(t *testing.T) {
			_, planned := setup(t)
			var started teardown.Runtime
			var err error
			Eventually(t, "an answer that is not retryable", func() bool {
				started, err = kind.Start(t.Context(), planned, c.launch)
				return !runtime.Retryable(err)
			})
			if err == nil && c.code == teardown.CodeRuntimeExited {
				// It ended after it was pinned: then it is a runtime that is gone.
				Eventually(t, "its end", func() bool {
					state, err := kind.Probe(t.Context(), started)
					return err == nil && state == runtime.Gone
				})
				return
			}
			wantCode(t, err, c.code)
			Eventually(t, "nothing to be found", func() bool {
				_, there, err := kind.Find(t.Context(), planned)
				return err == nil && !there // a server that exits cannot be asked yet
			})
		})
	}
}

// leaderOf is the process that the command became.
func leaderOf(rt teardown.Runtime) int {
	if rt.Kind == teardown.KindProcess {
		return rt.PID
	}
	return rt.Identity.Panes[0].PID
}
