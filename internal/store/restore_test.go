package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

// restore makes a session live with the worktrees at these paths.
func (b *bundle) restore(step teardown.Step, intact ...string) store.Restored {
	b.t.Helper()
	restored, err := b.Restore(ctx, restoration(step, intact...))
	require.NoError(b.t, err)
	return restored
}

func restoration(step teardown.Step, intact ...string) store.Restoration {
	r := store.Restoration{SessionID: step.SessionID, Generation: step.Generation, By: "test"}
	for _, path := range intact {
		r.Intact = append(r.Intact, idOf(path))
	}
	return r
}

func (b *bundle) live(id string) store.Session {
	b.t.Helper()
	session, err := b.Session(ctx, id)
	require.NoError(b.t, err)
	require.Nil(b.t, session.TerminatedAt)
	return session
}

var restorePromises = []promise{
	{"a restore takes back what is active, preserved or not yet removed", func(t *testing.T, b *bundle) {
		step := b.terminated("s1", "/wt/a", "/wt/b", "/wt/c")
		b.session("s2")
		b.lease("s2", "/wt/a")
		b.release(step)
		b.preserve(step, "/wt/b")
		restored := b.restore(step, "/wt/a", "/wt/b", "/wt/c")
		require.Len(t, restored.Worktrees, 3)
		require.Empty(t, restored.WorktreesGone)
		require.Equal(t, int64(2), b.live("s1").Generation)
		for _, path := range []string{"/wt/a", "/wt/b", "/wt/c"} {
			w := b.worktree(path)
			require.Equal(t, store.WorktreeActive, w.State)
			require.Zero(t, w.Remover())
			_, held, _, err := b.WorktreeAt(ctx, host, path)
			require.NoError(t, err)
			require.Equal(t, store.Holder{Kind: store.HolderSession, ID: "s1", Generation: 2}, held[0].Holder)
		}
		require.Equal(t, teardown.OutcomeRestored, b.finalization(step).Outcome)
		require.Equal(t, "test", b.finalization(step).RequestedBy)
		require.Equal(t, teardown.DispositionPreserved, b.disposition(step, "/wt/b"), "what was found stays known")
	}},
	{"a restore again is a no-op with the same answer", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/a", "/wt/b")
		b.remove(step, "/wt/b")
		first := b.restore(step, "/wt/a")
		require.Equal(t, first, b.restore(step, "/wt/a"))
		require.Len(t, first.WorktreesGone, 1)
	}},
	{"a restore is refused of a live session and at another generation", func(t *testing.T, b *bundle) {
		b.session("s1")
		_, err := b.Restore(ctx, store.Restoration{SessionID: "s1", Generation: 1})
		requireCode(t, teardown.CodeSessionLive, false, err)
		_, err = b.Restore(ctx, store.Restoration{SessionID: "nobody", Generation: 1})
		requireCode(t, teardown.CodeSessionNotFound, false, err)
		b.terminate("s1")
		_, err = b.Restore(ctx, store.Restoration{SessionID: "s1", Generation: 2})
		requireCode(t, teardown.CodeConflict, false, err)
	}},
	{"a restore in a closed task is refused", func(t *testing.T, b *bundle) {
		n := b.manifest("s1", "/wt/s1")
		n.TaskID = "t1"
		b.add(n)
		b.terminate("s1")
		step := b.begin("s1")
		b.exec("UPDATE tasks SET terminated_at = ? WHERE id = 't1'", time.Now().UTC())
		_, err := b.Restore(ctx, restoration(step, "/wt/s1"))
		requireCode(t, teardown.CodeTaskClosed, false, err)
		session, err := b.Session(ctx, "s1")
		require.NoError(t, err)
		require.NotNil(t, session.TerminatedAt)
		require.Equal(t, int64(1), session.Generation)
	}},
	{"a restore before the finalization began is in the record, too", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		b.terminate("s1")
		step := teardown.Step{SessionID: "s1", Generation: 1}
		b.restore(step, "/wt/s1")
		require.Equal(t, teardown.OutcomeRestored, b.finalization(step).Outcome)
	}},
	{"a restore adopts a runtime whose start was not recorded as it was found", func(t *testing.T, b *bundle) {
		b.starting("s1")
		b.terminate("s1")
		found := store.Restoration{SessionID: "s1", Generation: 1, Alive: []string{"r-s1"}, Intact: []string{idOf("/wt/s1")},
			Found: map[string]teardown.Runtime{"r-s1": tmuxHandle("$7")}}
		n := b.manifest("s2")
		n.Runtimes = []store.NewRuntime{{ID: "r-s2", Handle: tmuxHandle("$7")}}
		b.add(n)
		_, err := b.Restore(ctx, found)
		requireCode(t, teardown.CodeConflict, false, err)
		b.terminate("s2")
		b.release1("s2")

		_, err = b.Restore(ctx, found)
		require.NoError(t, err)
		require.Empty(t, b.half(), "its start is over")
		detail, err := b.SessionDetail(ctx, "s1")
		require.NoError(t, err)
		require.Nil(t, detail.Session.TerminatedAt)
		require.Len(t, detail.Runtimes, 2)
		for _, r := range detail.Runtimes {
			require.Equal(t, "$7", r.Handle.V.Identity.SessionID)
			require.Equal(t, map[int64]string{1: store.RuntimeReleased, 2: store.RuntimeRunning}[r.Generation], r.State)
		}
		require.Equal(t, store.WorktreeActive, b.worktree("/wt/s1").State)
	}},
	{"a restore adopts what lives and closes what is gone", func(t *testing.T, b *bundle) {
		n := b.manifest("s1")
		n.Runtimes = []store.NewRuntime{{ID: "r1", Handle: teardown.Runtime{Kind: teardown.KindProcess, PID: 11}},
			{ID: "r2", Handle: teardown.Runtime{Kind: teardown.KindProcess, PID: 12, Role: teardown.RoleAuxiliary}}}
		n.Resources = []store.NewResource{{ID: "x1", Kind: teardown.ResourceDir, Path: "/state/s1"}, {ID: "x2", Kind: teardown.ResourceSecret, Path: "/state/s1/env"}}
		b.add(n)
		b.terminate("s1")
		step := b.begin("s1")
		_, err := b.ResourceCleared(ctx, step, "x2")
		require.NoError(t, err)
		r := restoration(step)
		r.Alive = []string{"r2"}
		restored, err := b.Restore(ctx, r)
		require.NoError(t, err)
		require.Equal(t, "r2", restored.Runtimes[0].ID)
		require.Equal(t, "r1", restored.RuntimesGone[0].ID)
		require.Equal(t, "x1", restored.Resources[0].ID)
		require.Equal(t, "x2", restored.ResourcesGone[0].ID)
		b.terminate("s1")
		begun, err := b.Begin(ctx, teardown.BeginInput{SessionID: "s1"})
		require.NoError(t, err)
		require.Len(t, begun.Runtimes, 1)
		require.Equal(t, 12, begun.Runtimes[0].Handle.V.PID)
		require.True(t, begun.Resources)
		require.False(t, begun.Secrets)
		require.Equal(t, teardown.ResourcesResult{Kept: 1}, begun.Result.Resources)
		old, err := b.Result(ctx, "s1", 1)
		require.NoError(t, err)
		require.Equal(t, teardown.ResourcesResult{Cleared: 1, Kept: 1}, old.Resources)
		require.Len(t, old.Runtimes, 2)
	}},
	{"a restore ends a hold", func(t *testing.T, b *bundle) {
		b.session("s1")
		_, err := b.Hold(ctx, "s1", nil, "me")
		require.NoError(t, err)
		b.terminate("s1")
		b.restore(teardown.Step{SessionID: "s1", Generation: 1})
		require.False(t, b.live("s1").Held(time.Now()))
	}},
	{"a restore takes back no ancestor that it never held", func(t *testing.T, b *bundle) {
		outer := b.terminated("outer", "/wt/s1")
		b.session("inner", "/wt/s1/lib")
		b.release(outer)
		require.False(t, b.claim(outer, "/wt/s1").Go)
		b.terminate("inner")
		step := b.begin("inner")
		b.release(step)
		require.Equal(t, []string{idOf("/wt/s1")}, b.remove(step, "/wt/s1/lib"))
		restored := b.restore(step, "/wt/s1", "/wt/s1/lib")
		require.Empty(t, restored.Worktrees)
		require.Equal(t, store.WorktreeDeleting, b.state("/wt/s1"))
	}},
	{"a restore below a worktree that is being removed is refused", func(t *testing.T, b *bundle) {
		b.session("inner", "/wt/s1/lib")
		b.released("outer", "/wt/s1")
		b.terminate("inner")
		step := b.begin("inner")
		_, err := b.Restore(ctx, restoration(step, "/wt/s1/lib"))
		requireCode(t, teardown.CodeWorktreeDeleting, false, err)
	}},
	{"fault 5: a restore reports as gone exactly what is not given back", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/a", "/wt/b", "/wt/c", "/wt/d")
		b.mustClaim(step, "/wt/a")
		require.NoError(t, b.MovingAside(ctx, step, idOf("/wt/a"), "/wt/.a.unwind-x")) // put back by the restore
		b.mustClaim(step, "/wt/b")
		require.NoError(t, b.MovingAside(ctx, step, idOf("/wt/b"), "/wt/.b.unwind-x"))
		require.NoError(t, b.Condemned(ctx, idOf("/wt/b")))
		b.remove(step, "/wt/c")
		// Whoever looked before a removal went on says that all is there.
		restored := b.restore(step, "/wt/a", "/wt/b", "/wt/c")
		require.Len(t, restored.Worktrees, 1)
		require.Len(t, restored.WorktreesGone, 3)
		require.Equal(t, store.WorktreeActive, b.state("/wt/a"))
		require.Empty(t, b.worktree("/wt/a").QuarantinePath)
		require.NotNil(t, b.worktree("/wt/b").CondemnedAt, "it is only ever deleted")
		require.Equal(t, store.WorktreeRemoved, b.state("/wt/c"))
		require.Equal(t, store.WorktreeDeleting, b.state("/wt/d"))
	}},
	{"fault 8: what a restore leaves deleting has a remover that is void", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.mustClaim(step, "/wt/s1")
		require.NoError(t, b.MovingAside(ctx, step, idOf("/wt/s1"), "/wt/.s1.unwind-x"))
		require.NoError(t, b.Condemned(ctx, idOf("/wt/s1")))
		b.restore(step)
		w := b.worktree("/wt/s1")
		require.Equal(t, store.WorktreeDeleting, w.State)
		require.NotEqual(t, b.live("s1").Generation, w.Remover().Generation)
		require.False(t, b.claim(step, "/wt/s1").Go, "its own finalization is over")
		current, err := b.Current(ctx, step)
		require.NoError(t, err)
		require.False(t, current)
		// The attempt that was cut off may come to its end all the same.
		_, err = b.Removed(ctx, step, idOf("/wt/s1"), teardown.WorktreeResult{Disposition: teardown.DispositionRemoved})
		require.NoError(t, err)
		require.Equal(t, store.WorktreeRemoved, b.state("/wt/s1"))
	}},
	{"fault 9: a step that began before a restore writes nothing after it", func(t *testing.T, b *bundle) {
		n := b.manifest("s1", "/wt/s1")
		n.Runtimes = []store.NewRuntime{{ID: "r1", Handle: teardown.Runtime{Kind: teardown.KindProcess, PID: 11}}}
		n.Resources = []store.NewResource{{ID: "x1", Kind: teardown.ResourceDir, Path: "/state/s1"}}
		b.add(n)
		b.terminate("s1")
		step := b.begin("s1")
		r := restoration(step, "/wt/s1")
		r.Alive = []string{"r1"}
		_, err := b.Restore(ctx, r)
		require.NoError(t, err)
		plan, err := b.ReleaseLeases(ctx, step)
		require.NoError(t, err)
		require.True(t, plan.Superseded)
		written, err := b.RuntimeReleased(ctx, step, "r1", "killed", "", teardown.RuntimeResult{Outcome: teardown.RuntimeReleased})
		require.NoError(t, err)
		require.False(t, written)
		written, err = b.ResourceCleared(ctx, step, "x1")
		require.NoError(t, err)
		require.False(t, written)
		may, err := b.MayClear(ctx, step)
		require.NoError(t, err)
		require.False(t, may)
		parked, err := b.Park(ctx, teardown.ParkInput{Step: step, Reason: teardown.ReasonPreserved})
		require.NoError(t, err)
		require.True(t, parked.Superseded)
		done, err := b.Finish(ctx, step)
		require.NoError(t, err)
		require.Equal(t, teardown.OutcomeRestored, done.Result.Outcome)
		require.Equal(t, store.WorktreeActive, b.state("/wt/s1"))
	}},
	{"restored and terminated again is a finalization with facts of its own", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.preserve(step, "/wt/s1")
		b.park(step, teardown.ReasonPreserved)
		b.restore(step, "/wt/s1")
		b.terminate("s1")
		next := b.begin("s1")
		require.Equal(t, teardown.Step{SessionID: "s1", Generation: 2, Round: 1}, next)
		require.Nil(t, b.finalization(next).ParkedAt)
		require.Equal(t, []string{idOf("/wt/s1")}, b.release(next))
		b.remove(next, "/wt/s1")
		done, err := b.Finish(ctx, next)
		require.NoError(t, err)
		require.Equal(t, teardown.OutcomeFinalized, done.Result.Outcome)
		old := b.finalization(step)
		require.Equal(t, teardown.OutcomeRestored, old.Outcome)
		require.NotNil(t, old.ParkedAt, "why it was parked stays known")
		require.Equal(t, teardown.DispositionPreserved, b.disposition(step, "/wt/s1"))
	}},
}
