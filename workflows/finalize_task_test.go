package workflows_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
	"unwind/workflows"
)

// taskWorld is a world whose holder is a task, with its sessions.
type taskWorld struct {
	*world
	pages [][]teardown.TaskSessionRef
	// finalize answers the child of a session.
	finalize func(ctx workflow.Context, in teardown.FinalizeSessionInput) (teardown.Result, error)
	children map[string]int
}

func newTaskWorld(t *testing.T, sessions ...string) *taskWorld {
	t.Helper()
	w := &taskWorld{world: newWorldOf(t, teardown.TaskStartOptions("", "t1")), children: map[string]int{}}
	w.RegisterWorkflowWithOptions(workflows.FinalizeTask, workflow.RegisterOptions{Name: teardown.FinalizeTaskWorkflow})
	w.RegisterWorkflowWithOptions(w.child, workflow.RegisterOptions{Name: teardown.FinalizeSessionWorkflow})
	w.RegisterActivityWithOptions(w.terminate, activity.RegisterOptions{Name: teardown.TerminateTaskSessionsActivity})
	var page []teardown.TaskSessionRef
	for _, id := range sessions {
		page = append(page, teardown.TaskSessionRef{SessionID: id, Generation: 1})
	}
	w.pages = [][]teardown.TaskSessionRef{page}
	w.finalize = func(_ workflow.Context, in teardown.FinalizeSessionInput) (teardown.Result, error) {
		return teardown.Result{SessionID: in.SessionID, Generation: 1, Outcome: teardown.OutcomeFinalized}, nil
	}
	return w
}

func (w *taskWorld) terminate(_ context.Context, in teardown.TaskSessionsInput) (teardown.TaskSessionsResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("terminate after %q", in.After)
	for n, page := range w.pages {
		if in.After == "" || len(page) > 0 && page[0].SessionID > in.After {
			return teardown.TaskSessionsResult{Sessions: page, More: n < len(w.pages)-1}, nil
		}
	}
	return teardown.TaskSessionsResult{}, nil
}

func (w *taskWorld) child(ctx workflow.Context, in teardown.FinalizeSessionInput) (teardown.Result, error) {
	w.mu.Lock()
	w.note("finalize %s", in.SessionID)
	w.children[in.SessionID]++
	w.mu.Unlock()
	return w.finalize(ctx, in)
}

func (w *taskWorld) run(t *testing.T, in teardown.FinalizeTaskInput) (teardown.Result, error) {
	t.Helper()
	in.TaskID = "t1"
	w.ExecuteWorkflow(teardown.FinalizeTaskWorkflow, in)
	require.True(t, w.IsWorkflowCompleted())
	if err := w.GetWorkflowError(); err != nil {
		return teardown.Result{}, err
	}
	var result teardown.Result
	require.NoError(t, w.GetWorkflowResult(&result))
	return result, nil
}

// ends answers each child with this outcome, until it is retried.
func (w *taskWorld) ends(outcome teardown.Outcome) {
	w.finalize = func(_ workflow.Context, in teardown.FinalizeSessionInput) (teardown.Result, error) {
		result := teardown.Result{SessionID: in.SessionID, Generation: 1, Outcome: outcome,
			Failure: teardown.Failure{Code: teardown.CodeModified, Message: "Work is left."}}
		if w.children[in.SessionID] > 1 {
			result.Outcome = teardown.OutcomeFinalized
		}
		return result, nil
	}
}

func TestTaskFinalizesItsSessionsBeforeItsWorktrees(t *testing.T) {
	t.Parallel()
	w := newTaskWorld(t, "s1", "s2")
	w.removals = parentAndTwoChildren[2:]
	result, err := w.run(t, teardown.FinalizeTaskInput{})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	require.ElementsMatch(t, []string{"finalize s1", "finalize s2"}, w.log[2:4])
	require.Equal(t, []string{"begin", `terminate after ""`}, w.log[:2])
	require.Equal(t, []string{"release", "remove parent", "removed parent", "finish"}, w.log[4:])
	require.Equal(t, "t1", w.begins[0].TaskID)
	require.Empty(t, w.begins[0].SessionID)
}

func TestTaskFinalizesAllPagesOfSessions(t *testing.T) {
	t.Parallel()
	w := newTaskWorld(t)
	w.pages = [][]teardown.TaskSessionRef{{{SessionID: "a"}, {SessionID: "b"}}, {{SessionID: "c"}}}
	_, err := w.run(t, teardown.FinalizeTaskInput{})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1}, w.children)
}

func TestTaskParksForASessionThatIsNotFinalized(t *testing.T) {
	t.Parallel()
	for outcome, reason := range map[teardown.Outcome]string{
		teardown.OutcomePreserved: teardown.ReasonSessionPreserved,
		teardown.OutcomeFailed:    teardown.ReasonSessionFailed,
		teardown.OutcomeDeferred:  teardown.ReasonSessionHeld,
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			w := newTaskWorld(t, "s1", "s2")
			w.ends(outcome)
			result, err := w.run(t, teardown.FinalizeTaskInput{OnParked: teardown.OnParkedReturn})
			require.NoError(t, err)
			require.Equal(t, outcome, result.Outcome)
			require.Equal(t, reason, w.parks[0].Reason)
			require.Contains(t, w.parks[0].Failure.Message, "s1")
			require.NotContains(t, w.log, "release", "its agent may be alive in the task's worktree")
			require.Equal(t, 1, w.children["s2"], "one does not keep the other from it")
		})
	}
}

func TestRetryOfATaskFinalizesItsSessionsAgain(t *testing.T) {
	t.Parallel()
	w := newTaskWorld(t, "s1")
	w.ends(teardown.OutcomePreserved)
	w.RegisterDelayedCallback(func() {
		require.Equal(t, teardown.PhaseParked, w.status(t).Phase)
		require.Equal(t, "t1", w.status(t).TaskID)
		w.SignalWorkflow(teardown.RetrySignal, teardown.RetryRequest{RequestID: "r1"})
	}, time.Hour)
	result, err := w.run(t, teardown.FinalizeTaskInput{})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	require.Equal(t, 2, w.children["s1"])
	require.Equal(t, []string{"r1"}, w.status(t).HandledRequests)
}

func TestSessionThatCannotBeToldOfItsRetryIsStarted(t *testing.T) {
	t.Parallel()
	w := newTaskWorld(t, "s1")
	w.pages[0][0].RetriedRound = 2
	var told atomic.Int64
	w.OnSignalExternalWorkflow(mock.Anything, teardown.FinalizeSessionID("s1"), "", teardown.RetrySignal, mock.Anything).Return(
		func(_, _, _, _ string, request any) error {
			told.Store(request.(teardown.RetryRequest).Round)
			return errors.New("there is no such run")
		}).Once()
	result, err := w.run(t, teardown.FinalizeTaskInput{})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	require.Equal(t, int64(2), told.Load())
}

func TestSessionWhoseRowIsGoneKeepsNoTask(t *testing.T) {
	t.Parallel()
	w := newTaskWorld(t, "s1")
	w.finalize = func(workflow.Context, teardown.FinalizeSessionInput) (teardown.Result, error) {
		return teardown.Result{}, refusal(teardown.CodeSessionNotFound)
	}
	result, err := w.run(t, teardown.FinalizeTaskInput{})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
}

func TestSessionWhoseFinalizationBreaksParksTheTask(t *testing.T) {
	t.Parallel()
	w := newTaskWorld(t, "s1")
	w.finalize = func(workflow.Context, teardown.FinalizeSessionInput) (teardown.Result, error) {
		return teardown.Result{}, refusal(teardown.CodeInternal)
	}
	result, err := w.run(t, teardown.FinalizeTaskInput{OnParked: teardown.OnParkedReturn})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFailed, result.Outcome)
	require.Equal(t, teardown.CodeInternal, w.parks[0].Failure.Code)
}

func TestCancelledTaskStopsWaitingForItsSessions(t *testing.T) {
	t.Parallel()
	w := newTaskWorld(t, "s1")
	w.finalize = func(ctx workflow.Context, in teardown.FinalizeSessionInput) (teardown.Result, error) {
		err := workflow.Sleep(ctx, 24*time.Hour)
		return teardown.Result{SessionID: in.SessionID, Generation: 1, Outcome: teardown.OutcomeFinalized}, err
	}
	w.RegisterDelayedCallback(w.CancelWorkflow, time.Hour)
	_, err := w.run(t, teardown.FinalizeTaskInput{})
	var cancelled *temporal.CanceledError
	require.ErrorAs(t, err, &cancelled)
	require.Equal(t, teardown.ReasonCancelled, w.parks[0].Reason)
	require.NotContains(t, w.log, "release")
}

func TestTaskWhoseWorktreeIsKeptParksAndIsRetried(t *testing.T) {
	t.Parallel()
	w := newTaskWorld(t)
	w.removals = parentAndTwoChildren[2:]
	w.onRemove = func(_ string, try int) (teardown.WorktreeResult, error) {
		if try == 1 {
			return preserved(teardown.CodeUntracked, "notes.txt")
		}
		return teardown.WorktreeResult{Disposition: teardown.DispositionRemoved}, nil
	}
	w.retryAfter(time.Hour, teardown.RetryRequest{RequestID: "late", SaveChanges: true})
	result, err := w.run(t, teardown.FinalizeTaskInput{})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	require.Equal(t, teardown.ReasonPreserved, w.parks[0].Reason)
	require.True(t, w.begins[1].Requests[0].SaveChanges)
}

func TestTaskThatBeginsParkedTouchesNothing(t *testing.T) {
	t.Parallel()
	w := newTaskWorld(t, "s1")
	w.parked = teardown.ReasonPreserved
	result, err := w.run(t, teardown.FinalizeTaskInput{OnParked: teardown.OnParkedReturn})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomePreserved, result.Outcome)
	require.Equal(t, []string{"begin"}, w.log)
}

func TestWorktreeOfATaskIsRemovedOnItsOwnHost(t *testing.T) {
	t.Parallel()
	w := newTaskWorld(t)
	w.removals = []teardown.Removal{{WorktreeID: "w1", Name: "w1", Host: "far"}}
	queue := ""
	w.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
		if info.ActivityType.Name == teardown.RemoveWorktreeActivity {
			queue = info.TaskQueue
		}
	})
	_, err := w.run(t, teardown.FinalizeTaskInput{})
	require.NoError(t, err)
	require.Equal(t, teardown.HostTaskQueue("", "far"), queue)
}

func TestTaskContinuesAsNewAsATask(t *testing.T) {
	t.Parallel()
	w := newTaskWorld(t)
	w.removals = parentAndTwoChildren[2:]
	w.onRemove = func(string, int) (teardown.WorktreeResult, error) {
		w.SetContinueAsNewSuggested(true)
		w.SignalWorkflow(teardown.RetrySignal, teardown.RetryRequest{RequestID: "one"})
		return preserved(teardown.CodeModified)
	}
	_, err := w.run(t, teardown.FinalizeTaskInput{Generation: 3})
	var asNew *workflow.ContinueAsNewError
	require.ErrorAs(t, err, &asNew)
	require.Equal(t, teardown.FinalizeTaskWorkflow, asNew.WorkflowType.Name)
	var next teardown.FinalizeTaskInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(asNew.Input, &next))
	require.Equal(t, "t1", next.TaskID)
	require.Equal(t, int64(3), next.Generation)
	require.Equal(t, "one", next.Carried.Pending[0].RequestID)
}

func TestTaskInputIsChecked(t *testing.T) {
	t.Parallel()
	w := newTaskWorld(t)
	_, err := w.run(t, teardown.FinalizeTaskInput{OnParked: "sometimes"})
	var application *temporal.ApplicationError
	require.ErrorAs(t, err, &application)
	require.Equal(t, string(teardown.CodeInvalidManifest), application.Type())
}
