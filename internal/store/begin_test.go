package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

// beginAgain begins as a run does that knows its generation and round.
func (b *bundle) beginAgain(step teardown.Step, requests ...teardown.RetryRequest) store.Begun {
	b.t.Helper()
	begun, err := b.Begin(ctx, teardown.BeginInput{SessionID: step.SessionID, Generation: step.Generation, Round: step.Round, Requests: requests})
	require.NoError(b.t, err)
	return begun
}

// beginAnew begins as a new run does.
func (b *bundle) beginAnew(id string, requests ...teardown.RetryRequest) store.Begun {
	b.t.Helper()
	return b.beginAgain(teardown.Step{SessionID: id}, requests...)
}

// parked is a session that waits because its worktree is modified.
func (b *bundle) parked(id, path string) teardown.Step {
	b.t.Helper()
	step := b.released(id, path)
	b.preserve(step, path)
	b.park(step, teardown.ReasonPreserved)
	return step
}

var beginPromises = []promise{
	{"begin answers what there is to do, auxiliary runtimes first", func(t *testing.T, b *bundle) {
		n := b.manifest("s1", "/wt/s1")
		n.Runtimes = []store.NewRuntime{
			{ID: "agent", Handle: teardown.Runtime{Kind: "tmux"}},
			{ID: "server", Handle: teardown.Runtime{Kind: "process", Role: teardown.RoleAuxiliary}}}
		n.Resources = []store.NewResource{{Kind: teardown.ResourceDir, Path: "/state/s1"}}
		b.add(n)
		b.terminate("s1")
		begun, err := b.Begin(ctx, teardown.BeginInput{SessionID: "s1", WorkflowID: "finalize-session-s1"})
		require.NoError(t, err)
		require.Equal(t, host, begun.Host)
		require.Equal(t, teardown.Step{SessionID: "s1", Generation: 1, Round: 1}, begun.Step)
		require.Empty(t, begun.Outcome)
		require.Empty(t, begun.ParkedReason)
		require.Equal(t, "server", begun.Runtimes[0].ID)
		require.Equal(t, "agent", begun.Runtimes[1].ID)
		require.True(t, begun.Resources)
		require.False(t, begun.Secrets)
		require.Equal(t, teardown.DispositionPending, begun.Result.Worktrees[0].Disposition)
		require.Zero(t, begun.Result.Attempts)
		require.NotNil(t, begun.Result.StartedAt)
		require.Equal(t, "finalize-session-s1", b.finalization(begun.Step).WorkflowID)
	}},
	{"a hold lets no further step begin, and what one has done is written", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/a", "/wt/b")
		b.mustClaim(step, "/wt/a")
		_, err := b.Hold(ctx, "s1", nil, "orchestrator")
		require.NoError(t, err)
		current, err := b.Current(ctx, step)
		require.NoError(t, err)
		require.False(t, current)
		require.Equal(t, teardown.DispositionSuperseded, b.claim(step, "/wt/b").Result.Disposition)
		plan, err := b.ReleaseLeases(ctx, step)
		require.NoError(t, err)
		require.True(t, plan.Superseded)
		written, err := b.Preserved(ctx, step, idOf("/wt/a"), teardown.WorktreeResult{
			Disposition: teardown.DispositionPreserved, Code: teardown.CodeModified}, false)
		require.NoError(t, err)
		require.True(t, written)
		_, err = b.Hold(ctx, "s1", nil, "")
		require.NoError(t, err)
		b.mustClaim(step, "/wt/b")
	}},
	{"a run that lost its history is told what its round has decided", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/a", "/wt/b", "/wt/c")
		b.preserve(step, "/wt/a")
		b.remove(step, "/wt/b")
		begun := b.beginAnew("s1")
		require.Equal(t, step, begun.Step)
		require.Equal(t, []string{idOf("/wt/c")}, b.release(begun.Step))
		plan, err := b.ReleaseLeases(ctx, begun.Step)
		require.NoError(t, err)
		require.Equal(t, "/wt/a", plan.Kept.Path, "what this round has kept is in no plan, but named")
		b.remove(step, "/wt/c")
		b.park(step, teardown.ReasonPreserved)
		next := b.beginAgain(step, teardown.RetryRequest{})
		plan, err = b.ReleaseLeases(ctx, next.Step)
		require.NoError(t, err)
		require.Nil(t, plan.Kept, "the next round tries it again")
		require.Len(t, plan.Removals, 1)
	}},
	{"who has seen that the runtimes are gone is known in that round only", func(t *testing.T, b *bundle) {
		step := b.terminated("s1")
		b.park(step, teardown.ReasonRuntimeRefused)
		_, recorded, err := b.Retry(ctx, "s1", store.RetryOptions{RuntimeConfirmedGone: true, By: "ann"})
		require.NoError(t, err)
		require.True(t, recorded)
		begun := b.beginAnew("s1")
		require.Equal(t, "ann", begun.ConfirmedGoneBy)
		b.park(begun.Step, teardown.ReasonRuntimeRefused)
		next := b.beginAgain(begun.Step, teardown.RetryRequest{})
		require.Empty(t, next.ConfirmedGoneBy)
		b.park(next.Step, teardown.ReasonRuntimeRefused)
		require.Equal(t, "unnamed", b.beginAgain(next.Step, teardown.RetryRequest{RuntimeConfirmedGone: true}).ConfirmedGoneBy)
	}},
	{"a retry for another reason than it is parked for does nothing", func(t *testing.T, b *bundle) {
		step := b.terminated("s1")
		b.park(step, teardown.ReasonCancelled)
		_, recorded, err := b.Retry(ctx, "s1", store.RetryOptions{IfParked: true, Reason: teardown.ReasonHostUnreachable})
		require.NoError(t, err)
		require.False(t, recorded)
		_, recorded, err = b.Retry(ctx, "s1", store.RetryOptions{IfParked: true, Reason: teardown.ReasonCancelled})
		require.NoError(t, err)
		require.True(t, recorded)
	}},
	{"begin again is the same round", func(t *testing.T, b *bundle) {
		step := b.terminated("s1", "/wt/s1")
		started := b.finalization(step).StartedAt
		require.Equal(t, step, b.begin("s1"))
		require.Equal(t, step, b.beginAgain(step).Step)
		require.Equal(t, started, b.finalization(step).StartedAt)
	}},
	{"a live session is refused", func(t *testing.T, b *bundle) {
		b.session("s1")
		_, err := b.Begin(ctx, teardown.BeginInput{SessionID: "s1"})
		requireCode(t, teardown.CodeSessionLive, false, err)
		_, err = b.Begin(ctx, teardown.BeginInput{SessionID: "s1", Generation: 1, Round: 1})
		requireCode(t, teardown.CodeSessionLive, false, err)
	}},
	{"a held session is deferred, and nothing touched", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		b.terminate("s1")
		_, err := b.Hold(ctx, "s1", soon(), "orchestrator")
		require.NoError(t, err)
		require.Equal(t, teardown.OutcomeDeferred, b.beginAnew("s1").Outcome)
		_, err = b.Hold(ctx, "s1", nil, "orchestrator")
		require.NoError(t, err)
		begun := b.beginAnew("s1", teardown.RetryRequest{SaveChanges: true})
		require.Equal(t, teardown.OutcomeDeferred, begun.Outcome)
		require.Equal(t, teardown.OutcomeDeferred, begun.Result.Outcome)
		detail, err := b.SessionDetail(ctx, "s1")
		require.NoError(t, err)
		require.Empty(t, detail.Finalizations)
		_, err = b.Hold(ctx, "s1", past(), "orchestrator")
		require.NoError(t, err)
		require.Empty(t, b.beginAnew("s1").Outcome)
	}},
	{"a finished finalization answers its result, also while held", func(t *testing.T, b *bundle) {
		step := b.terminated("s1")
		b.release(step)
		done, err := b.Finish(ctx, step)
		require.NoError(t, err)
		_, err = b.Hold(ctx, "s1", soon(), "x")
		require.NoError(t, err)
		begun := b.beginAnew("s1", teardown.RetryRequest{})
		require.Equal(t, teardown.OutcomeFinalized, begun.Outcome)
		require.Equal(t, done.Result, begun.Result)
	}},
	{"a run whose session was restored is told so", func(t *testing.T, b *bundle) {
		step := b.terminated("s1")
		b.restored("s1")
		begun := b.beginAgain(step)
		require.Equal(t, teardown.OutcomeRestored, begun.Outcome)
		require.Equal(t, step, begun.Step)
		require.Equal(t, teardown.OutcomeRestored, begun.Result.Outcome)
		_, err := b.Begin(ctx, teardown.BeginInput{SessionID: "s1"})
		requireCode(t, teardown.CodeSessionLive, false, err)
	}},
	{"a run of an older generation goes on with the newer one", func(t *testing.T, b *bundle) {
		step := b.terminated("s1")
		b.restored("s1")
		b.terminate("s1")
		begun := b.beginAgain(step, teardown.RetryRequest{})
		require.Equal(t, teardown.Step{SessionID: "s1", Generation: 2, Round: 1}, begun.Step)
	}},
	{"a run that begins on a parked finalization is told why, and touches nothing", func(t *testing.T, b *bundle) {
		step := b.parked("s1", "/wt/s1")
		begun := b.beginAnew("s1")
		require.Equal(t, teardown.ReasonPreserved, begun.ParkedReason)
		require.Equal(t, step, begun.Step)
		require.Equal(t, teardown.OutcomePreserved, begun.Result.Outcome)
		require.Equal(t, store.WorktreePreserved, b.state("/wt/s1"))
	}},
	{"a request of Temporal's own tools makes a round of its own", func(t *testing.T, b *bundle) {
		step := b.parked("s1", "/wt/s1")
		begun := b.beginAgain(step, teardown.RetryRequest{SaveChanges: true, RequestedBy: "ann"})
		require.Empty(t, begun.ParkedReason)
		require.Equal(t, int64(2), begun.Step.Round)
		require.True(t, begun.SaveRequested)
		f := b.finalization(begun.Step)
		require.Equal(t, "ann", f.RequestedBy)
		require.Nil(t, f.ParkedAt)
		require.Empty(t, f.ParkedReason)
		require.Empty(t, f.Outcome)
		// The answer was lost and the activity runs again with the same input.
		again := b.beginAgain(step, teardown.RetryRequest{SaveChanges: true, RequestedBy: "ann"})
		require.Equal(t, begun.Step, again.Step)
	}},
	{"such a request makes a round of its own though it is not parked", func(t *testing.T, b *bundle) {
		step := b.terminated("s1", "/wt/s1")
		require.Equal(t, int64(2), b.beginAgain(step, teardown.RetryRequest{}).Step.Round)
		require.Equal(t, int64(2), b.beginAgain(step, teardown.RetryRequest{}).Step.Round, "somebody did it already")
	}},
	{"a run that knows no round only wakes what is parked", func(t *testing.T, b *bundle) {
		b.terminated("s1", "/wt/s1")
		require.Equal(t, int64(1), b.beginAnew("s1", teardown.RetryRequest{}).Step.Round)
		b.parked("s2", "/wt/s2")
		require.Equal(t, int64(2), b.beginAnew("s2", teardown.RetryRequest{}).Step.Round)
		require.Equal(t, int64(2), b.beginAnew("s2", teardown.RetryRequest{}).Step.Round)
	}},
	{"a request that its sender recorded adds no round", func(t *testing.T, b *bundle) {
		step := b.parked("s1", "/wt/s1")
		next := b.retry(step)
		begun := b.beginAgain(step, teardown.RetryRequest{Round: next.Round})
		require.Equal(t, next, begun.Step)
	}},
	{"a request that asks only if parked adds no round while steps run", func(t *testing.T, b *bundle) {
		step := b.terminated("s1", "/wt/s1")
		begun := b.beginAgain(step, teardown.RetryRequest{IfParked: true, SaveChanges: true})
		require.Equal(t, int64(1), begun.Step.Round)
		require.False(t, begun.SaveRequested)
		parked := b.parked("s2", "/wt/s2")
		require.Equal(t, int64(2), b.beginAgain(parked, teardown.RetryRequest{IfParked: true}).Step.Round)
	}},
	{"fault 13: the flag of a request is not lost, whoever made the round", func(t *testing.T, b *bundle) {
		step := b.parked("s1", "/wt/s1")
		b.retry(step) // another's, without the flag
		begun := b.beginAgain(step, teardown.RetryRequest{SaveChanges: true})
		require.True(t, begun.SaveRequested)
		require.Equal(t, int64(3), begun.Step.Round)
		require.Equal(t, int64(3), b.beginAgain(step, teardown.RetryRequest{SaveChanges: true}).Step.Round)

		b.terminated("s2", "/wt/s2")
		running := b.beginAnew("s2", teardown.RetryRequest{SaveChanges: true})
		require.True(t, running.SaveRequested)

		b.session("s3", "/wt/s3")
		b.terminate("s3")
		first := b.beginAnew("s3", teardown.RetryRequest{SaveChanges: true})
		require.True(t, first.SaveRequested)
		require.Equal(t, int64(1), first.Step.Round)
	}},
}

var retryPromises = []promise{
	{"a retry adds a round, wakes it and starts the attempts anew", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		require.NoError(t, b.AttemptFailed(ctx, step, store.Attempt{Number: 10, Code: teardown.CodeInUse, WorktreeID: idOf("/wt/s1")}))
		b.park(step, teardown.ReasonAttemptsExhausted)
		require.Equal(t, teardown.DispositionFailed, b.disposition(step, "/wt/s1"))
		round, recorded, err := b.Retry(ctx, "s1", store.RetryOptions{SaveChanges: true, By: "ann"})
		require.NoError(t, err)
		require.True(t, recorded)
		require.Equal(t, int64(2), round)
		f := b.finalization(step)
		require.Equal(t, int64(2), f.Round)
		require.True(t, f.SaveRequested)
		require.Equal(t, "ann", f.RequestedBy)
		require.Nil(t, f.ParkedAt)
		require.Zero(t, f.AttemptCount)
		require.Empty(t, f.FailureCode)
		require.Equal(t, teardown.DispositionPending, b.disposition(step, "/wt/s1"))
		require.Equal(t, store.WorktreeDeleting, b.state("/wt/s1"))
	}},
	{"the wish to save changes stays until the session is finalized", func(t *testing.T, b *bundle) {
		b.terminated("s1", "/wt/s1")
		_, _, err := b.Retry(ctx, "s1", store.RetryOptions{SaveChanges: true})
		require.NoError(t, err)
		_, _, err = b.Retry(ctx, "s1", store.RetryOptions{By: "reconcile"})
		require.NoError(t, err)
		require.True(t, b.beginAnew("s1").SaveRequested)
	}},
	{"a retry before the first run is kept for it", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		b.terminate("s1")
		round, recorded, err := b.Retry(ctx, "s1", store.RetryOptions{SaveChanges: true})
		require.NoError(t, err)
		require.True(t, recorded)
		begun := b.beginAnew("s1", teardown.RetryRequest{Round: round})
		require.Equal(t, round, begun.Step.Round)
		require.True(t, begun.SaveRequested)
		require.NotNil(t, begun.Result.StartedAt)
	}},
	{"a retry only if parked does nothing while steps run", func(t *testing.T, b *bundle) {
		step := b.terminated("s1", "/wt/s1")
		round, recorded, err := b.Retry(ctx, "s1", store.RetryOptions{IfParked: true, SaveChanges: true})
		require.NoError(t, err)
		require.False(t, recorded)
		require.Equal(t, step.Round, round)
		require.False(t, b.finalization(step).SaveRequested)
	}},
	{"a live session cannot be retried, nor a finalized one", func(t *testing.T, b *bundle) {
		b.session("s1")
		_, _, err := b.Retry(ctx, "s1", store.RetryOptions{})
		requireCode(t, teardown.CodeSessionLive, false, err)
		b.terminate("s1")
		step := b.begin("s1")
		b.release(step)
		_, err = b.Finish(ctx, step)
		require.NoError(t, err)
		_, _, err = b.Retry(ctx, "s1", store.RetryOptions{})
		requireCode(t, teardown.CodeConflict, false, err)
		require.ErrorContains(t, err, "already finalized")
	}},
	{"a retry starts the runtimes' outcomes anew", func(t *testing.T, b *bundle) {
		n := b.manifest("s1")
		n.Runtimes = []store.NewRuntime{{ID: "r1", Handle: teardown.Runtime{Kind: "tmux"}}}
		b.add(n)
		b.terminate("s1")
		step := b.begin("s1")
		written, err := b.RuntimeRefused(ctx, step, "r1", teardown.RuntimeResult{Code: teardown.CodeRuntimeIdentity}, "Not ours.")
		require.NoError(t, err)
		require.True(t, written)
		b.park(step, teardown.ReasonRuntimeRefused)
		b.retry(step)
		result, err := b.Result(ctx, "s1", 1)
		require.NoError(t, err)
		require.Equal(t, teardown.RuntimePending, result.Runtimes[0].Outcome)
		require.Equal(t, teardown.CodeRuntimeIdentity, result.Runtimes[0].Code, "what is known is kept until it is known better")
	}},
}
