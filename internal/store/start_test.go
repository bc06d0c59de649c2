package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

// starting is the recorded intent of a session with two worktrees and a runtime.
func (b *bundle) starting(id string) teardown.StartStep {
	b.t.Helper()
	n := b.manifest(id, "/wt/"+id, "/wt/"+id+"/lib")
	n.Starting = true
	n.Runtimes = []store.NewRuntime{{ID: "r-" + id, Handle: tmuxHandle("")}}
	b.add(n)
	return teardown.StartStep{SessionID: id, Generation: 1}
}

func tmuxHandle(sessionID string) teardown.Runtime {
	return teardown.Runtime{Kind: teardown.KindTmux, Role: teardown.RoleAgent, Socket: "/run/s", Session: "agent", Identity: &teardown.RuntimeIdentity{
		SessionID: sessionID, ServerPID: 10, ServerStartTime: 20, BootID: "boot", Tag: "tag", EnvTag: "UNWIND_RUN_ID=tag"}}
}

func processHandle(pid int) teardown.Runtime {
	return teardown.Runtime{Kind: teardown.KindProcess, PID: pid, StartTime: 7, Identity: &teardown.RuntimeIdentity{BootID: "boot"}}
}

func (b *bundle) half() (ids []string) {
	b.t.Helper()
	half, err := b.HalfStarted(ctx, host, "", 10)
	require.NoError(b.t, err)
	for _, due := range half.Rows {
		ids = append(ids, due.SessionID)
	}
	return ids
}

func (b *bundle) complete(start teardown.StartStep) {
	b.t.Helper()
	for _, path := range []string{"/wt/" + start.SessionID, "/wt/" + start.SessionID + "/lib"} {
		require.NoError(b.t, b.WorktreeCreated(ctx, start, idOf(path), "agent/"+start.SessionID))
	}
	require.NoError(b.t, b.RuntimeStarted(ctx, start, "r-"+start.SessionID, tmuxHandle("$1")))
}

func (b *bundle) release1(id string) []string {
	b.t.Helper()
	step := b.begin(id)
	b.runtimeGone(step, "r-"+id)
	return b.release(step)
}

var startPromises = []promise{
	{"what is to be started is creating until it is there", func(t *testing.T, b *bundle) {
		start := b.starting("s1")
		b.session("s2")
		require.Equal(t, []string{"s1"}, b.half())
		require.NoError(t, b.Starting(ctx, start))
		w, held, found, err := b.WorktreeAt(ctx, host, "/wt/s1")
		require.NoError(t, err)
		require.True(t, found)
		require.Len(t, held, 1)
		require.Equal(t, store.WorktreeCreating, w.State)
		b.complete(start)
		require.Empty(t, b.half())
		r, err := b.Runtime(ctx, "r-s1")
		require.NoError(t, err)
		require.Equal(t, store.RuntimeRunning, r.State)
		require.Equal(t, "$1", r.Handle.V.Identity.SessionID)

		require.NoError(t, b.RuntimeStarted(ctx, start, "r-s1", tmuxHandle("$2")), "again is a no-op")
		r, err = b.Runtime(ctx, "r-s1")
		require.NoError(t, err)
		require.Equal(t, "$1", r.Handle.V.Identity.SessionID)
	}},
	{"terminating a half-started session releases all that is recorded", func(t *testing.T, b *bundle) {
		b.starting("s1")
		b.terminate("s1")
		require.Empty(t, b.half())
		require.Equal(t, []string{idOf("/wt/s1/lib"), idOf("/wt/s1")}, b.release1("s1"))
	}},
	{"fault 11: nothing more is made once the session is terminated", func(t *testing.T, b *bundle) {
		start := b.starting("s1")
		b.terminate("s1")
		for _, err := range []error{
			b.Starting(ctx, start),
			b.RuntimeStarted(ctx, start, "r-s1", tmuxHandle("$1")),
			b.WorktreeCreated(ctx, start, idOf("/wt/s1"), "x"),
			b.WorktreeNotCreated(ctx, start, idOf("/wt/s1")),
			errorOf(b.IntendResource(ctx, start, store.NewResource{Kind: "file", Path: "/state/s1"})),
		} {
			require.Equal(t, teardown.CodeSessionTerminated, teardown.CodeOf(err))
		}
		r, err := b.Runtime(ctx, "r-s1")
		require.NoError(t, err)
		require.Equal(t, store.RuntimeCreating, r.State)
		require.Equal(t, teardown.CodeSessionTerminated, teardown.CodeOf(b.Starting(ctx, teardown.StartStep{SessionID: "s1", Generation: 2})))
	}},
	{"a start fails only while it is not complete, and only one's own", func(t *testing.T, b *bundle) {
		_, begun, err := b.FailStart(ctx, "nosuch", "")
		require.NoError(t, err)
		require.False(t, begun)
		start := b.starting("s1")
		_, begun, err = b.FailStart(ctx, "s1", "another hash")
		require.NoError(t, err)
		require.False(t, begun)
		require.NoError(t, b.Starting(ctx, start))
		for range 2 {
			session, begun, err := b.FailStart(ctx, "s1", "hash of s1")
			require.NoError(t, err)
			require.True(t, begun)
			require.Equal(t, teardown.SourceStartFailed, session.TerminationSource)
		}
		b.complete(b.starting("s2"))
		_, begun, err = b.FailStart(ctx, "s2", "hash of s2")
		require.NoError(t, err)
		require.False(t, begun)
		session, err := b.Session(ctx, "s2")
		require.NoError(t, err)
		require.Nil(t, session.TerminatedAt)
	}},
	{"a task keeps nothing of a start that was taken back, and what is whole of one that was terminated", func(t *testing.T, b *bundle) {
		inTask := func(id string) teardown.StartStep {
			n := b.manifest(id, "/wt/"+id, "/wt/"+id+"/lib")
			n.Starting, n.TaskID = true, "t1"
			b.add(n)
			start := teardown.StartStep{SessionID: id, Generation: 1}
			require.NoError(t, b.WorktreeCreated(ctx, start, idOf("/wt/"+id), ""))
			return start
		}
		inTask("s1")
		_, begun, err := b.FailStart(ctx, "s1", "")
		require.NoError(t, err)
		require.True(t, begun)
		require.Equal(t, []string{idOf("/wt/s1/lib"), idOf("/wt/s1")}, b.release(b.begin("s1")))

		inTask("s2")
		b.terminate("s2")
		require.Equal(t, []string{idOf("/wt/s2/lib")}, b.release(b.begin("s2")), "the task holds the other one")
	}},
	{"a task keeps nothing that was not made for a session which somebody terminated in the database", func(t *testing.T, b *bundle) {
		inTask := func(id string) {
			n := b.manifest(id, "/wt/"+id, "/wt/"+id+"/lib")
			n.Starting, n.TaskID = true, "t1"
			b.add(n)
			require.NoError(t, b.WorktreeCreated(ctx, teardown.StartStep{SessionID: id, Generation: 1}, idOf("/wt/"+id), ""))
			b.exec("UPDATE sessions SET terminated_at = ? WHERE id = ?", time.Now(), id)
		}
		taken := func(id string) {
			t.Helper()
			_, held, _, err := b.WorktreeAt(ctx, host, "/wt/"+id+"/lib")
			require.NoError(t, err)
			for _, l := range held {
				require.NotEqual(t, store.HolderTask, l.Kind)
			}
			require.Equal(t, []string{idOf("/wt/" + id + "/lib")}, b.release(b.begin(id)), "the task holds the other one")
			unmade, err := b.unmade()
			require.NoError(t, err)
			require.Empty(t, unmade)
		}
		inTask("s1")
		_, begun, err := b.FailStart(ctx, "s1", "")
		require.NoError(t, err)
		require.True(t, begun)
		taken("s1")
		inTask("s2")
		b.begin("s2")
		taken("s2")
		inTask("s3")
		_, err = b.Restore(ctx, store.Restoration{SessionID: "s3", Generation: 1, Intact: []string{idOf("/wt/s3")}})
		require.NoError(t, err)
		unmade, err := b.unmade()
		require.NoError(t, err)
		require.Empty(t, unmade, "nobody makes what was gone when its session was restored")
	}},
	{"a worktree that was not made is nobody's to remove", func(t *testing.T, b *bundle) {
		start := b.starting("s1")
		require.NoError(t, b.WorktreeNotCreated(ctx, start, idOf("/wt/s1/lib")))
		require.NoError(t, b.WorktreeNotCreated(ctx, start, idOf("/wt/s1/lib")))
		_, _, found, err := b.WorktreeAt(ctx, host, "/wt/s1/lib")
		require.NoError(t, err)
		require.False(t, found)
		b.terminate("s1")
		require.Equal(t, []string{idOf("/wt/s1")}, b.release1("s1"))
	}},
	{"a start is taken back also if all that it had was not made", func(t *testing.T, b *bundle) {
		start := b.starting("s1")
		b.exec("DELETE FROM runtimes")
		for _, path := range []string{"/wt/s1/lib", "/wt/s1"} {
			require.NoError(t, b.WorktreeNotCreated(ctx, start, idOf(path)))
		}
		half, err := b.HalfStarted(ctx, host, "", 10)
		require.NoError(t, err)
		require.Len(t, half.Rows, 1)
		_, begun, err := b.FailStart(ctx, "s1", "")
		require.NoError(t, err)
		require.True(t, begun)
	}},
	{"a worktree that is being made cannot be leased", func(t *testing.T, b *bundle) {
		b.starting("s1")
		b.session("s2")
		err := b.Lease(ctx, store.Holder{Kind: store.HolderSession, ID: "s2", Generation: 1}, idOf("/wt/s1"))
		require.Equal(t, teardown.CodeWorktreeMissing, teardown.CodeOf(err))
	}},
	{"a resource is recorded before it is made, and forgotten if it was not", func(t *testing.T, b *bundle) {
		start := b.starting("s1")
		_, found, err := b.IntendedResource(ctx, start, "/state/s1")
		require.NoError(t, err)
		require.False(t, found)
		id, err := b.IntendResource(ctx, start, store.NewResource{Kind: "secret", Path: "/state/s1"})
		require.NoError(t, err)
		again, found, err := b.IntendedResource(ctx, start, "/state/s1")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, id, again)
		require.NoError(t, b.ForgetResource(ctx, start, id))
		_, found, err = b.IntendedResource(ctx, start, "/state/s1")
		require.NoError(t, err)
		require.False(t, found)
		_, err = b.IntendResource(ctx, start, store.NewResource{Kind: "dir", Path: "/wt"})
		require.Equal(t, teardown.CodeConflict, teardown.CodeOf(err), "it holds a worktree")
	}},
	{"a runtime has one session, from when it is registered until it is released", func(t *testing.T, b *bundle) {
		with := func(id string, handle teardown.Runtime) store.NewSession {
			n := b.manifest(id)
			n.Runtimes = []store.NewRuntime{{ID: "r-" + id, Handle: handle}}
			return n
		}
		b.add(with("s1", tmuxHandle("$1")))
		b.add(with("s2", processHandle(5)))
		renamed := tmuxHandle("$1")
		renamed.Session, renamed.Socket = "other", "/other/way/to/s"
		_, err := b.AddSession(ctx, with("s3", renamed))
		require.Equal(t, teardown.CodeConflict, teardown.CodeOf(err))
		require.ErrorContains(t, err, "held by session s1")
		_, err = b.AddSession(ctx, with("s3", processHandle(5)))
		require.ErrorContains(t, err, "process 5 is held by session s2")
		_, err = b.Session(ctx, "s3")
		require.Equal(t, teardown.CodeSessionNotFound, teardown.CodeOf(err), "nothing is registered")

		gone, later, elsewhere := processHandle(5), processHandle(5), with("s6", processHandle(5))
		gone.Gone, later.StartTime, elsewhere.Host = true, 8, "host2"
		b.add(with("s4", gone))
		b.add(with("s5", later))
		b.add(elsewhere)
		start := b.starting("s7")
		require.ErrorContains(t, b.RuntimeStarted(ctx, start, "r-s7", tmuxHandle("$1")), "held by session s1")

		b.terminate("s2")
		_, err = b.AddSession(ctx, with("s8", processHandle(5)))
		require.Equal(t, teardown.CodeConflict, teardown.CodeOf(err), "its end is under way")
		b.runtimeGone(b.begin("s2"), "r-s2")
		b.add(with("s8", processHandle(5)))
	}},
	{"of two that register one runtime at once one is refused", func(t *testing.T, b *bundle) {
		errs := make([]error, 4)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() {
				n := b.manifest("s" + string(rune('a'+i)))
				n.Runtimes = []store.NewRuntime{{Handle: processHandle(5)}}
				_, errs[i] = b.AddSession(ctx, n)
			})
		}
		all.Wait()
		added := 0
		for _, err := range errs {
			if err == nil {
				added++
				continue
			}
			require.Equal(t, teardown.CodeConflict, teardown.CodeOf(err))
		}
		require.Equal(t, 1, added)
	}},
}

func errorOf(_ string, err error) error { return err }
