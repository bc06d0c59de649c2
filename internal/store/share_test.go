package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

// fork registers a child that shares the worktrees at these paths.
func (b *bundle) fork(parent, child string, paths ...string) {
	b.t.Helper()
	_, added, err := b.Fork(ctx, forkOf(parent, child, paths...))
	require.NoError(b.t, err)
	require.True(b.t, added)
}

func forkOf(parent, child string, paths ...string) store.Fork {
	f := store.Fork{Parent: parent, Child: child}
	for _, path := range paths {
		f.Seen = append(f.Seen, idOf(path))
	}
	return f
}

// releaseAll terminates a session, removes what its plan names, and finishes.
func (b *bundle) releaseAll(id string) teardown.Step {
	b.t.Helper()
	b.terminate(id)
	step := b.begin(id)
	for _, worktree := range b.release(step) {
		claim, err := b.Claim(ctx, step, worktree)
		require.NoError(b.t, err)
		require.True(b.t, claim.Go)
		_, err = b.Removed(ctx, step, worktree, teardown.WorktreeResult{Disposition: teardown.DispositionRemoved})
		require.NoError(b.t, err)
	}
	done, err := b.Finish(ctx, step)
	require.NoError(b.t, err)
	require.False(b.t, done.Superseded)
	return step
}

var forkPromises = []promise{
	{"a fork shares all that its parent holds, and again is a no-op", func(t *testing.T, b *bundle) {
		n := b.manifest("p", "/wt/a", "/wt/a/lib")
		n.TaskID = "t1"
		b.add(n)
		child, added, err := b.Fork(ctx, forkOf("p", "c", "/wt/a", "/wt/a/lib"))
		require.NoError(t, err)
		require.True(t, added)
		require.Equal(t, "t1", child.TaskID)
		require.Equal(t, host, child.Host)
		_, held, err := b.Held(ctx, "c")
		require.NoError(t, err)
		require.Len(t, held, 2)
		again, added, err := b.Fork(ctx, forkOf("p", "c", "/wt/a", "/wt/a/lib"))
		require.NoError(t, err)
		require.False(t, added)
		require.Equal(t, child, again)
		b.session("other")
		_, _, err = b.Fork(ctx, forkOf("p", "other"))
		requireCode(t, teardown.CodeConflict, false, err)
	}},
	{"a fork is known whatever has become of its parent", func(t *testing.T, b *bundle) {
		b.session("p", "/wt/a")
		_, _, known, err := b.KnownFork(ctx, forkOf("p", "c"))
		require.NoError(t, err)
		require.False(t, known)
		b.fork("p", "c", "/wt/a")
		b.releaseAll("p")
		_, _, err = b.DeleteSession(ctx, "p")
		require.NoError(t, err)
		child, worktrees, known, err := b.KnownFork(ctx, forkOf("p", "c"))
		require.NoError(t, err)
		require.True(t, known)
		require.Equal(t, b.live("c"), child)
		require.Len(t, worktrees, 1)
		_, added, err := b.Fork(ctx, forkOf("p", "c"))
		require.NoError(t, err)
		require.False(t, added)
		_, _, _, err = b.KnownFork(ctx, forkOf("another", "c"))
		requireCode(t, teardown.CodeConflict, false, err)
	}},
	{"the parent goes first: its worktree is retained, and the child's finalization removes it", func(t *testing.T, b *bundle) {
		b.session("p", "/wt/a")
		b.fork("p", "c", "/wt/a")
		step := b.releaseAll("p")
		require.Equal(t, teardown.DispositionRetained, b.disposition(step, "/wt/a"))
		require.Equal(t, store.WorktreeActive, b.state("/wt/a"))
		last := b.releaseAll("c")
		require.Equal(t, teardown.DispositionRemoved, b.disposition(last, "/wt/a"))
	}},
	{"the child goes first, just so", func(t *testing.T, b *bundle) {
		b.session("p", "/wt/a")
		b.fork("p", "c", "/wt/a")
		require.Equal(t, teardown.DispositionRetained, b.disposition(b.releaseAll("c"), "/wt/a"))
		require.Equal(t, teardown.DispositionRemoved, b.disposition(b.releaseAll("p"), "/wt/a"))
	}},
	{"a fork of what is not there to be shared is refused by name, and registers nothing", func(t *testing.T, b *bundle) {
		_, _, err := b.Fork(ctx, forkOf("nobody", "c"))
		requireCode(t, teardown.CodeSessionNotFound, false, err)
		b.session("p", "/wt/a")
		_, _, err = b.Fork(ctx, forkOf("p", "c"))
		requireCode(t, teardown.CodeBusy, true, err)
		for state, want := range map[string]struct {
			code   teardown.Code
			advice string
		}{
			"deleting": {teardown.CodeWorktreeDeleting, "use another one"},
			"removed":  {teardown.CodeWorktreeRemoved, "`git worktree add`"},
			"creating": {teardown.CodeWorktreeMissing, "try again"},
		} {
			b.exec("UPDATE worktrees SET state = ? WHERE id = ?", state, idOf("/wt/a"))
			_, _, err = b.Fork(ctx, forkOf("p", "c", "/wt/a"))
			requireCode(t, want.code, false, err)
			require.ErrorContains(t, err, want.advice)
		}
		b.exec("UPDATE worktrees SET state = 'active', quarantine_path = '/wt/.a.unwind-x' WHERE id = ?", idOf("/wt/a"))
		_, _, err = b.Fork(ctx, forkOf("p", "c", "/wt/a"))
		requireCode(t, teardown.CodeWorktreeMissing, false, err)
		require.ErrorContains(t, err, "retry")
		b.terminate("p")
		_, _, err = b.Fork(ctx, forkOf("p", "c", "/wt/a"))
		requireCode(t, teardown.CodeSessionTerminated, false, err)
		_, err = b.Session(ctx, "c")
		requireCode(t, teardown.CodeSessionNotFound, false, err)
	}},
	{"fault 17: a fork in a task whose barrier is set is refused", func(t *testing.T, b *bundle) {
		n := b.manifest("p", "/wt/a")
		n.TaskID = "t1"
		b.add(n)
		b.exec("UPDATE tasks SET state = 'archived' WHERE id = 't1'")
		_, _, err := b.Fork(ctx, forkOf("p", "c", "/wt/a"))
		requireCode(t, teardown.CodeTaskClosed, false, err)
	}},
	{"fault 7: no fork and no restore of a worktree while it is in quarantine", func(t *testing.T, b *bundle) {
		b.session("p", "/wt/a")
		step := b.released("s1", "/wt/b")
		b.mustClaim(step, "/wt/b")
		require.NoError(t, b.MovingAside(ctx, step, idOf("/wt/b"), "/wt/.b.unwind-x"))
		written, err := b.Preserved(ctx, step, idOf("/wt/b"), modified, true)
		require.NoError(t, err)
		require.True(t, written)
		requireCode(t, teardown.CodeWorktreeMissing, false, b.Lease(ctx, holder("p"), idOf("/wt/b")))
		// A restore that did not find it at its path gives no lease either.
		require.Len(t, b.restore(step).WorktreesGone, 1)
		require.Equal(t, "/wt/.b.unwind-x", b.worktree("/wt/b").QuarantinePath)
		_, held, err := b.Held(ctx, "s1")
		require.NoError(t, err)
		require.Empty(t, held)
	}},
	{"what was preserved and leased anew is retained for an older finalization", func(t *testing.T, b *bundle) {
		step := b.parked("s1", "/wt/a")
		b.session("s2")
		b.lease("s2", "/wt/a")
		next := b.retry(step)
		require.Empty(t, b.release(next))
		require.Equal(t, teardown.DispositionRetained, b.disposition(next, "/wt/a"))
		done, err := b.Finish(ctx, next)
		require.NoError(t, err)
		require.Equal(t, teardown.OutcomeFinalized, done.Result.Outcome)
	}},
}

var attachPromises = []promise{
	{"attaching gives a live session more, and again is a no-op", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/a")
		n := b.manifest("s1", "/wt/a", "/wt/b")
		n.Worktrees[0].ID = "other"
		n.Runtimes = []store.NewRuntime{{Handle: teardown.Runtime{Kind: teardown.KindProcess, PID: 7}}}
		n.Resources = []store.NewResource{{Kind: teardown.ResourceDir, Path: "/state/s1"}}
		attached, err := b.Attach(ctx, n)
		require.NoError(t, err)
		require.Equal(t, []int{1, 1, 1}, []int{attached.Runtimes, attached.Worktrees, attached.Resources})
		again, err := b.Attach(ctx, n)
		require.NoError(t, err)
		require.Zero(t, again.Runtimes+again.Worktrees+again.Resources)
		_, held, err := b.Held(ctx, "s1")
		require.NoError(t, err)
		require.Len(t, held, 2)
	}},
	{"what is attached belongs to the session's generation", func(t *testing.T, b *bundle) {
		step := b.terminated("s1", "/wt/a")
		b.restore(step, "/wt/a")
		n := b.manifest("s1", "/wt/b")
		n.Runtimes = []store.NewRuntime{{Handle: teardown.Runtime{Kind: teardown.KindProcess, PID: 7}}}
		_, err := b.Attach(ctx, n)
		require.NoError(t, err)
		b.terminate("s1")
		begun, err := b.Begin(ctx, teardown.BeginInput{SessionID: "s1"})
		require.NoError(t, err)
		require.Len(t, begun.Runtimes, 1)
		require.Len(t, begun.Result.Worktrees, 2)
	}},
	{"attaching is refused as adding is, and all or nothing", func(t *testing.T, b *bundle) {
		_, err := b.Attach(ctx, b.manifest("nobody"))
		requireCode(t, teardown.CodeSessionNotFound, false, err)
		b.session("s1")
		b.session("s2", "/wt/a")
		_, err = b.Attach(ctx, b.manifest("s1", "/wt/b", "/wt/a"))
		requireCode(t, teardown.CodeConflict, false, err)
		_, held, err := b.Held(ctx, "s1")
		require.NoError(t, err)
		require.Empty(t, held)
		n := b.manifest("s1")
		n.Host = "elsewhere"
		_, err = b.Attach(ctx, n)
		requireCode(t, teardown.CodeForeignHost, false, err)
		b.terminate("s1")
		_, err = b.Attach(ctx, b.manifest("s1", "/wt/b"))
		requireCode(t, teardown.CodeSessionTerminated, false, err)
	}},
}

var turnPromises = []promise{
	{"of the sessions that share a worktree one runs a turn", func(t *testing.T, b *bundle) {
		b.session("p", "/wt/a")
		b.fork("p", "c", "/wt/a")
		b.session("else", "/wt/b")
		first, err := b.BeginTurn(ctx, "p", "t1", "me")
		require.NoError(t, err)
		again, err := b.BeginTurn(ctx, "p", "t1", "me")
		require.NoError(t, err)
		require.Equal(t, first, again)
		for _, session := range []string{"p", "c"} {
			_, err = b.BeginTurn(ctx, session, "t2", "me")
			requireCode(t, teardown.CodeBusy, true, err)
			require.ErrorContains(t, err, "Session p runs turn t1")
			require.ErrorContains(t, err, "unwind turn end p")
		}
		_, err = b.BeginTurn(ctx, "else", "t3", "me")
		require.NoError(t, err)
		_, _, err = b.EndTurn(ctx, "p", "t0")
		requireCode(t, teardown.CodeConflict, false, err)
		_, ended, err := b.EndTurn(ctx, "p", "t1")
		require.NoError(t, err)
		require.True(t, ended)
		_, ended, err = b.EndTurn(ctx, "p", "")
		require.NoError(t, err)
		require.False(t, ended)
		_, err = b.BeginTurn(ctx, "c", "t2", "me")
		require.NoError(t, err)
	}},
	{"a termination ends a turn, whoever records it", func(t *testing.T, b *bundle) {
		b.session("p", "/wt/a")
		b.fork("p", "c", "/wt/a")
		_, err := b.BeginTurn(ctx, "p", "t1", "me")
		require.NoError(t, err)
		b.exec("UPDATE sessions SET terminated_at = created_at WHERE id = 'p'")
		_, found, err := b.RunningTurn(ctx, "p")
		require.NoError(t, err)
		require.False(t, found)
		_, err = b.BeginTurn(ctx, "c", "t2", "me")
		require.NoError(t, err)
		_, err = b.BeginTurn(ctx, "p", "t3", "me")
		requireCode(t, teardown.CodeSessionTerminated, false, err)
		b.restore(teardown.Step{SessionID: "p", Generation: 1}, "/wt/a")
		_, found, err = b.RunningTurn(ctx, "p")
		require.NoError(t, err)
		require.False(t, found, "it was the older generation's")
	}},
	{"no turn for a session that is not there", func(t *testing.T, b *bundle) {
		_, err := b.BeginTurn(ctx, "nobody", "t1", "me")
		requireCode(t, teardown.CodeSessionNotFound, false, err)
		_, _, err = b.EndTurn(ctx, "nobody", "")
		requireCode(t, teardown.CodeSessionNotFound, false, err)
	}},
}

var deletePromises = []promise{
	{"fault 12: a session is deleted only when it holds nothing", func(t *testing.T, b *bundle) {
		n := b.manifest("s1", "/wt/a")
		n.Runtimes = []store.NewRuntime{{ID: "r1", Handle: teardown.Runtime{Kind: teardown.KindProcess, PID: 7}}}
		b.add(n)
		refused := func(code teardown.Code) {
			t.Helper()
			_, deleted, err := b.DeleteSession(ctx, "s1")
			requireCode(t, code, false, err)
			require.False(t, deleted)
			_, err = b.Session(ctx, "s1")
			require.NoError(t, err)
		}
		refused(teardown.CodeSessionLive)
		b.terminate("s1")
		refused(teardown.CodeConflict)
		step := b.begin("s1")
		b.park(step, teardown.ReasonRuntimeRefused)
		refused(teardown.CodeConflict)
		step = b.retry(step)
		_, err := b.RuntimeReleased(ctx, step, "r1", "killed", "", teardown.RuntimeResult{Outcome: teardown.RuntimeReleased})
		require.NoError(t, err)
		b.release(step)
		b.park(step, teardown.ReasonAttemptsExhausted)
		refused(teardown.CodeConflict)
		step = b.retry(step)
		b.release(step)
		b.preserve(step, "/wt/a")
		b.park(step, teardown.ReasonPreserved)
		left, deleted, err := b.DeleteSession(ctx, "s1")
		require.NoError(t, err)
		require.True(t, deleted)
		require.Equal(t, "/wt/a", left.Worktrees[0].Worktree.Path)
		require.Equal(t, teardown.CodeModified, left.Worktrees[0].Lease.Code)
		require.Equal(t, store.WorktreePreserved, b.state("/wt/a"))
		_, deleted, err = b.DeleteSession(ctx, "s1")
		require.NoError(t, err)
		require.False(t, deleted)
		_, err = b.Leaves(ctx, "s1")
		requireCode(t, teardown.CodeSessionNotFound, false, err)
		result, err := b.Result(ctx, "s1", 1)
		require.NoError(t, err)
		require.Equal(t, teardown.OutcomePreserved, result.Outcome, "what was done stays known")
	}},
	{"an id that is used again begins at a generation of its own", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/a")
		b.releaseAll("s1")
		_, deleted, err := b.DeleteSession(ctx, "s1")
		require.NoError(t, err)
		require.True(t, deleted)
		n := b.manifest("s1", "/wt/a")
		n.Worktrees[0].ID = "second"
		b.add(n)
		require.Equal(t, int64(2), b.live("s1").Generation)
		b.terminate("s1")
		require.Equal(t, teardown.Step{SessionID: "s1", Generation: 2, Round: 1}, b.begin("s1"))
	}},
}
