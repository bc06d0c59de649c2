package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

var parkPromises = []promise{
	{"parking is recorded once, and answers what is known", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.preserve(step, "/wt/s1")
		in := teardown.ParkInput{Step: step, Reason: teardown.ReasonPreserved,
			Failure: teardown.Failure{Code: teardown.CodeModified, Message: "Work is left in /wt/s1."}}
		parked, err := b.Park(ctx, in)
		require.NoError(t, err)
		require.Equal(t, teardown.OutcomePreserved, parked.Result.Outcome)
		require.Equal(t, in.Failure, parked.Result.Failure)
		require.Equal(t, 1, parked.Result.Attempts)
		first := b.finalization(step)
		in.Reason = teardown.ReasonCancelled
		_, err = b.Park(ctx, in)
		require.NoError(t, err)
		require.Equal(t, first, b.finalization(step))
	}},
	{"fault 13: a step of an older round or generation does not park", func(t *testing.T, b *bundle) {
		step := b.terminated("s1", "/wt/s1")
		newer := b.retry(step)
		parked, err := b.Park(ctx, teardown.ParkInput{Step: step, Reason: teardown.ReasonPreserved})
		require.NoError(t, err)
		require.True(t, parked.Superseded)
		require.Nil(t, b.finalization(newer).ParkedAt)
		b.restored("s1")
		parked, err = b.Park(ctx, teardown.ParkInput{Step: newer, Reason: teardown.ReasonPreserved})
		require.NoError(t, err)
		require.True(t, parked.Superseded)
		parked, err = b.Park(ctx, teardown.ParkInput{Step: teardown.Step{SessionID: "s1", Generation: 2, Round: 1}, Reason: teardown.ReasonPreserved})
		require.NoError(t, err)
		require.True(t, parked.Superseded, "live")
	}},
	{"fault 14: nothing is parked for a person while it is being removed", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/a", "/wt/b")
		b.preserve(step, "/wt/a")
		for _, reason := range []string{teardown.ReasonPreserved, teardown.ReasonRefused, teardown.ReasonRuntimeRefused, teardown.ReasonCancelled} {
			_, err := b.Park(ctx, teardown.ParkInput{Step: step, Reason: reason})
			requireCode(t, teardown.CodeInternal, false, err)
		}
		require.Nil(t, b.finalization(step).ParkedAt)
		b.park(step, teardown.ReasonHostUnreachable)
		require.Equal(t, teardown.DispositionPending, b.disposition(step, "/wt/b"))
		require.Equal(t, store.WorktreeDeleting, b.state("/wt/b"))
	}},
	{"used-up attempts are failures of what is not decided", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/a", "/wt/b", "/wt/c")
		b.preserve(step, "/wt/c")
		require.NoError(t, b.AttemptFailed(ctx, step, store.Attempt{Number: 10, Code: teardown.CodeInUse, WorktreeID: idOf("/wt/a")}))
		parked, err := b.Park(ctx, teardown.ParkInput{Step: step, Reason: teardown.ReasonAttemptsExhausted, Failure: teardown.Failure{Code: teardown.CodeTimeout}})
		require.NoError(t, err)
		require.Equal(t, teardown.OutcomeFailed, parked.Result.Outcome)
		require.Equal(t, 10, parked.Result.Attempts)
		a, bb, c := b.result(step, "/wt/a"), b.result(step, "/wt/b"), b.result(step, "/wt/c")
		require.Equal(t, teardown.DispositionFailed, a.Disposition)
		require.Equal(t, teardown.CodeInUse, a.Code)
		require.True(t, a.Retryable)
		require.Equal(t, teardown.DispositionFailed, bb.Disposition)
		require.Equal(t, teardown.CodeTimeout, bb.Code)
		require.Equal(t, teardown.DispositionPreserved, c.Disposition)
		require.False(t, c.Retryable)
	}},
	{"used-up attempts at a runtime are its failure", func(t *testing.T, b *bundle) {
		step := b.withRuntimes("/wt/s1")
		b.runtimeGone(step, "r2")
		require.NoError(t, b.AttemptFailed(ctx, step, store.Attempt{Number: 10, Code: teardown.CodeRuntimeStillAlive, RuntimeID: "r1"}))
		b.park(step, teardown.ReasonAttemptsExhausted)
		result, err := b.Result(ctx, "s1", 1)
		require.NoError(t, err)
		require.Equal(t, teardown.RuntimeFailed, result.Runtimes[0].Outcome)
		require.Equal(t, teardown.CodeRuntimeStillAlive, result.Runtimes[0].Code)
		require.Equal(t, teardown.RuntimeReleased, result.Runtimes[1].Outcome)
		require.Equal(t, store.WorktreeActive, b.state("/wt/s1"), "no worktree is touched")
	}},
}

var unreadablePromises = []promise{
	{"a finalization that cannot be begun waits for a person, and may be retried", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		in := teardown.BeginInput{SessionID: "s1"}
		why := teardown.Failure{Code: teardown.CodeInternal, Message: "A row makes no sense."}
		require.NoError(t, b.ParkUnreadable(ctx, in, why))
		b.terminate("s1")
		step := b.begin("s1")
		require.Nil(t, b.finalization(step).ParkedAt, "it was live")
		require.NoError(t, b.ParkUnreadable(ctx, in, why))
		f := b.finalization(step)
		require.NotNil(t, f.ParkedAt)
		require.Equal(t, teardown.ReasonAttemptsExhausted, f.ParkedReason)
		require.Equal(t, why.Message, f.FailureMessage)
		require.NoError(t, b.ParkUnreadable(ctx, in, teardown.Failure{}))
		require.Equal(t, f, b.finalization(step), "again changes nothing")
		require.Nil(t, b.finalization(b.retry(step)).ParkedAt)

		b.session("s2")
		b.terminate("s2")
		require.NoError(t, b.ParkUnreadable(ctx, teardown.BeginInput{SessionID: "s2"}, why))
		due, err := b.NeverBegun(ctx, "", 10, time.Now())
		require.NoError(t, err)
		require.Empty(t, due.Rows)
		require.NoError(t, b.ParkUnreadable(ctx, teardown.BeginInput{SessionID: "s3"}, why), "there is none")
	}},
	{"a handle that is no JSON hides nothing of its session", func(t *testing.T, b *bundle) {
		n := b.manifest("s1")
		n.Runtimes = []store.NewRuntime{{ID: "r1", Handle: teardown.Runtime{Kind: "tmux"}}, {ID: "r2", Handle: teardown.Runtime{Kind: "process", PID: 7}}}
		b.add(n)
		b.exec("UPDATE runtimes SET handle = '{broken', details = 'nonsense' WHERE id = 'r1'")
		b.terminate("s1")
		begun, err := b.Begin(ctx, teardown.BeginInput{SessionID: "s1"})
		require.NoError(t, err)
		require.Len(t, begun.Runtimes, 2)
		require.Zero(t, begun.Runtimes[0].Handle.V)
		require.Equal(t, 7, begun.Runtimes[1].Handle.V.PID)
	}},
}

var finishPromises = []promise{
	{"finish completes the facts, and again answers the same", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.remove(step, "/wt/s1")
		done, err := b.Finish(ctx, step)
		require.NoError(t, err)
		require.False(t, done.Superseded)
		require.False(t, done.Again)
		require.Equal(t, teardown.OutcomeFinalized, done.Result.Outcome)
		require.Equal(t, 1, done.Result.Attempts)
		require.NotNil(t, done.Result.FinishedAt)
		again, err := b.Finish(ctx, step)
		require.NoError(t, err)
		require.Equal(t, done, again)
		f := b.finalization(step)
		require.NotNil(t, f.RuntimeReleasedAt)
		require.NotNil(t, f.ResourcesClearedAt)
	}},
	{"finish is superseded while anything is left", func(t *testing.T, b *bundle) {
		unfinished := func(step teardown.Step, why string) {
			t.Helper()
			done, err := b.Finish(ctx, step)
			require.NoError(t, err)
			require.True(t, done.Superseded, why)
			require.Nil(t, b.finalization(step).FinishedAt)
		}
		n := b.manifest("s1", "/wt/a", "/wt/b")
		n.Runtimes = []store.NewRuntime{{ID: "r1", Handle: teardown.Runtime{Kind: "tmux"}}}
		n.Resources = []store.NewResource{{ID: "dir", Kind: "dir", Path: "/state/s1"}}
		b.add(n)
		b.terminate("s1")
		step := b.begin("s1")
		unfinished(step, "a runtime is left")
		b.runtimeGone(step, "r1")
		unfinished(step, "leases are held")
		b.release(step)
		b.remove(step, "/wt/a")
		unfinished(step, "a worktree is deleting")
		b.preserve(step, "/wt/b")
		unfinished(step, "a worktree is preserved")
		b.park(step, teardown.ReasonPreserved)
		unfinished(step, "it is parked")
		next := b.retry(step)
		b.release(next)
		b.remove(next, "/wt/b")
		unfinished(next, "a resource is left")
		_, err := b.ResourceCleared(ctx, next, "dir")
		require.NoError(t, err)
		unfinished(step, "the round is older")
		done, err := b.Finish(ctx, next)
		require.NoError(t, err)
		require.False(t, done.Superseded)
	}},
	{"a finalization that was parked meanwhile is not finished", func(t *testing.T, b *bundle) {
		step := b.terminated("s1")
		b.park(step, teardown.ReasonCancelled)
		done, err := b.Finish(ctx, step)
		require.NoError(t, err)
		require.True(t, done.Superseded)
		require.Nil(t, b.finalization(step).FinishedAt)
	}},
	{"finish says when there is a newer generation to go on with", func(t *testing.T, b *bundle) {
		step := b.terminated("s1")
		done, err := b.Finish(ctx, step)
		require.NoError(t, err)
		require.False(t, done.Superseded)
		b.restored("s1")
		again, err := b.Finish(ctx, step)
		require.NoError(t, err)
		require.False(t, again.Again, "live")
		b.terminate("s1")
		again, err = b.Finish(ctx, step)
		require.NoError(t, err)
		require.True(t, again.Again)
		require.Equal(t, done.Result, again.Result)
	}},
	{"an older generation finishes nothing of a newer one", func(t *testing.T, b *bundle) {
		step := b.terminated("s1")
		b.restored("s1")
		b.terminate("s1")
		newer := b.begin("s1")
		done, err := b.Finish(ctx, step)
		require.NoError(t, err)
		require.True(t, done.Superseded)
		require.True(t, done.Again)
		require.Nil(t, b.finalization(newer).FinishedAt)
		require.Nil(t, b.finalization(step).FinishedAt)
	}},
}

var attemptPromises = []promise{
	{"the attempts are those of the step that was tried most", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/a", "/wt/b")
		at, next := time.Now(), time.Now().Add(time.Second)
		fail := func(n int, path string) {
			t.Helper()
			require.NoError(t, b.AttemptFailed(ctx, step, store.Attempt{Number: n, At: at, Next: &next,
				Code: teardown.CodeInUse, Message: "pid 7 uses " + path, WorktreeID: idOf(path)}))
		}
		fail(1, "/wt/a")
		fail(2, "/wt/a")
		fail(1, "/wt/b")
		f := b.finalization(step)
		require.Equal(t, 2, f.AttemptCount)
		require.Equal(t, "pid 7 uses /wt/a", f.FailureMessage)
		require.WithinDuration(t, next, *f.NextAttemptAt, time.Microsecond)
		fail(1, "/wt/a")
		require.Equal(t, 2, b.finalization(step).AttemptCount, "a late attempt")
		require.Equal(t, teardown.CodeInUse, b.result(step, "/wt/b").Code)
		require.True(t, b.result(step, "/wt/b").Retryable)

		require.NoError(t, b.AttemptDone(ctx, step, store.Attempt{Number: 3, At: at, WorktreeID: idOf("/wt/a")}))
		f = b.finalization(step)
		require.Equal(t, 3, f.AttemptCount)
		require.Empty(t, f.FailureCode)
		require.Nil(t, f.NextAttemptAt)
		fail(2, "/wt/b")
		f = b.finalization(step)
		require.Equal(t, 3, f.AttemptCount)
		require.Equal(t, "pid 7 uses /wt/b", f.FailureMessage)
	}},
	{"the success of one step leaves the failure of another", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/a", "/wt/b")
		require.NoError(t, b.AttemptFailed(ctx, step, store.Attempt{Number: 1, Code: teardown.CodeInUse, WorktreeID: idOf("/wt/a")}))
		require.NoError(t, b.AttemptDone(ctx, step, store.Attempt{Number: 2, WorktreeID: idOf("/wt/b")}))
		f := b.finalization(step)
		require.Equal(t, teardown.CodeInUse, f.FailureCode)
		require.Equal(t, 2, f.AttemptCount)
	}},
	{"a late attempt overwrites nothing", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/a")
		late := store.Attempt{Number: 5, Code: teardown.CodeTimeout, WorktreeID: idOf("/wt/a")}
		b.preserve(step, "/wt/a")
		require.NoError(t, b.AttemptFailed(ctx, step, late))
		require.Zero(t, b.finalization(step).AttemptCount, "decided by now")
		b.park(step, teardown.ReasonPreserved)
		require.NoError(t, b.AttemptFailed(ctx, step, store.Attempt{Number: 5, Code: teardown.CodeTimeout}))
		require.Equal(t, teardown.CodeModified, b.finalization(step).FailureCode, "parked")
		next := b.retry(step)
		require.NoError(t, b.AttemptFailed(ctx, step, store.Attempt{Number: 5, Code: teardown.CodeTimeout}))
		require.NoError(t, b.AttemptDone(ctx, step, store.Attempt{Number: 5}))
		require.Zero(t, b.finalization(next).AttemptCount, "of an older round")
		require.NoError(t, b.AttemptFailed(ctx, teardown.Step{SessionID: "nobody", Generation: 1, Round: 1}, late))
	}},
	{"a message from outside may hold anything", func(t *testing.T, b *bundle) {
		step := b.terminated("s1")
		long := make([]byte, 100_000)
		require.NoError(t, b.AttemptFailed(ctx, step, store.Attempt{Number: 1, Code: teardown.CodeIOError, Message: "\xff\x00" + string(long)}))
		require.Less(t, len(b.finalization(step).FailureMessage), 5000)
	}},
}
