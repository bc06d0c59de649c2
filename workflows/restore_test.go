package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"unwind/teardown"
)

// keeping is a world whose one worktree is kept.
func keeping(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.removals = parentAndTwoChildren[:1]
	w.onRemove = func(string, int) (teardown.WorktreeResult, error) { return preserved(teardown.CodeModified) }
	return w
}

func requireType(t *testing.T, code teardown.Code, retryable bool, err error) {
	t.Helper()
	var application *temporal.ApplicationError
	require.ErrorAs(t, err, &application)
	require.Equal(t, string(code), application.Type())
	require.Equal(t, !retryable, application.NonRetryable())
}

func TestRestoreEndsAParkedFinalization(t *testing.T) {
	t.Parallel()
	w := keeping(t)
	restored := w.restoreAfter(time.Hour)
	result, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeRestored, result.Outcome)
	require.Equal(t, int64(2), restored.result.Generation)
	require.Equal(t, []string{"park preserved", "restore generation 1", "begin"}, w.log[len(w.log)-3:])
}

func TestRestoreIsRefusedWhileAStepIsUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.runtimes = []teardown.RuntimeRef{{ID: "agent", Kind: "tmux", Role: "agent", Name: "s1"}}
	w.onDestroy = func(string, teardown.DestroyRuntimeInput) (teardown.DestroyRuntimeResult, error) {
		return teardown.DestroyRuntimeResult{}, retryable(teardown.CodeRuntimeStillAlive)
	}
	refused := w.restoreAfter(500 * time.Millisecond) // between two attempts of the step
	restored := w.restoreAfter(time.Hour)             // attempts used up, parked
	result, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	requireType(t, teardown.CodeBusy, true, refused.rejected)
	require.ErrorContains(t, refused.rejected, "Destroy agent tmux s1")
	require.True(t, restored.completed)
	require.Equal(t, teardown.OutcomeRestored, result.Outcome)
}

func TestRestoreStopsTheNextStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.runtimes = []teardown.RuntimeRef{{ID: "agent", Kind: "tmux", Role: "agent"}}
	w.removals = parentAndTwoChildren[:1]
	restored := w.restoreAfter(0) // with the start, before anything was begun
	result, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	require.NoError(t, restored.failed)
	require.Equal(t, teardown.OutcomeRestored, result.Outcome)
	require.NotContains(t, w.log, "destroy agent")
	require.NotContains(t, w.log, "remove child-a")
}

func TestRestoreThatIsRefusedLeavesTheFinalizationAsItIs(t *testing.T) {
	t.Parallel()
	w := keeping(t)
	w.onRestore = func(teardown.RestoreSessionInput) (teardown.RestoreResult, error) {
		return teardown.RestoreResult{}, refusal(teardown.CodePathOccupied)
	}
	restored := w.restoreAfter(time.Hour)
	w.RegisterDelayedCallback(func() {
		require.Equal(t, teardown.PhaseParked, w.status(t).Phase)
		w.CancelWorkflow()
	}, 2*time.Hour)
	_, err := func() (teardown.Result, error) {
		w.ExecuteWorkflow(teardown.FinalizeSessionWorkflow, teardown.FinalizeSessionInput{SessionID: session})
		return teardown.Result{}, w.GetWorkflowError()
	}()
	require.Error(t, err)
	requireType(t, teardown.CodePathOccupied, false, restored.failed)
	require.Equal(t, 1, w.removeTries["child-a"], "nothing is tried again for it")
}

func TestRestoreOfAFinishedSessionIsAnsweredBeforeTheRunEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.finished = true
	restored := w.restoreAfter(0)
	result, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	require.True(t, restored.completed)
	require.NoError(t, restored.failed)
	require.Equal(t, teardown.OutcomeRestored, result.Outcome)
}

func TestRestoreOfWhatCannotBeBegunIsAnsweredWithItsCode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.onBegin = func(teardown.BeginInput) (*teardown.BeginResult, error) {
		return nil, refusal(teardown.CodeSessionLive)
	}
	restored := w.restoreAfter(0)
	_, err := w.run(t, teardown.FinalizeSessionInput{})
	require.Error(t, err)
	require.True(t, restored.completed)
	requireType(t, teardown.CodeSessionLive, false, restored.failed)
}
