package workflows_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
)

var parentAndTwoChildren = []teardown.Removal{
	{WorktreeID: "child-a", ParentID: "parent", Name: "a"},
	{WorktreeID: "child-b", ParentID: "parent", Name: "b"},
	{WorktreeID: "parent", Name: "parent"},
}

func TestStepsRunInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.runtimes = []teardown.RuntimeRef{{ID: "aux", Kind: "process", Role: "auxiliary"}, {ID: "agent", Kind: "tmux", Role: "agent"}}
	w.onDestroy = func(id string, _ teardown.DestroyRuntimeInput) (teardown.DestroyRuntimeResult, error) {
		return teardown.DestroyRuntimeResult{Runtime: teardown.RuntimeResult{ID: id, Outcome: teardown.RuntimeReleased}}, nil
	}
	w.removals = parentAndTwoChildren[:1]
	w.removals = append(slices.Clone(w.removals), parentAndTwoChildren[2])
	w.resources = true
	result, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	require.Equal(t, []string{"begin", "destroy aux", "destroy agent", "release", "remove child-a", "removed child-a",
		"remove parent", "removed parent", "clear", "finish"}, w.log)
}

func TestSiblingsRunInParallelUpToTheBound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"w1", "w2", "w3", "w4", "w5"} {
		w.removals = append(w.removals, teardown.Removal{WorktreeID: id, Name: id})
	}
	_, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	require.LessOrEqual(t, w.runningMost, 2)
	require.Len(t, w.removeTries, 5)
}

func TestParentGoesAfterAllChildren(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.removals = parentAndTwoChildren
	_, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	at := func(s string) int { return slices.Index(w.log, s) }
	require.Greater(t, at("remove parent"), at("removed child-a"))
	require.Greater(t, at("remove parent"), at("removed child-b"))
}

func TestKeptChildDoesNotKeepItsSiblings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.removals = parentAndTwoChildren
	w.resources = true
	w.onRemove = func(id string, _ int) (teardown.WorktreeResult, error) {
		switch id {
		case "child-a":
			return preserved(teardown.CodeModified, "file.txt")
		case "parent":
			return preserved(teardown.CodeChildPreserved)
		}
		return teardown.WorktreeResult{Disposition: teardown.DispositionRemoved}, nil
	}
	result, err := w.run(t, teardown.FinalizeSessionInput{OnParked: teardown.OnParkedReturn})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomePreserved, result.Outcome)
	require.Contains(t, w.log, "removed child-b")
	require.NotContains(t, w.log, "clear", "agent resources stay with a worktree that is kept")
	require.NotContains(t, w.log, "finish")
	require.Equal(t, teardown.ReasonPreserved, w.parks[0].Reason)
	require.Equal(t, teardown.CodeModified, w.parks[0].Failure.Code)
}

func TestNothingIsReleasedWhileARuntimeIsNotGone(t *testing.T) {
	t.Parallel()
	for name, destroy := range map[string]func(string, teardown.DestroyRuntimeInput) (teardown.DestroyRuntimeResult, error){
		"refused": func(id string, _ teardown.DestroyRuntimeInput) (teardown.DestroyRuntimeResult, error) {
			return teardown.DestroyRuntimeResult{Runtime: teardown.RuntimeResult{ID: id, Outcome: teardown.RuntimeRefused, Code: teardown.CodeRuntimeIdentity}}, nil
		},
		"attempts used up": func(string, teardown.DestroyRuntimeInput) (teardown.DestroyRuntimeResult, error) {
			return teardown.DestroyRuntimeResult{}, retryable(teardown.CodeRuntimeStillAlive)
		},
		"non-retryable": func(string, teardown.DestroyRuntimeInput) (teardown.DestroyRuntimeResult, error) {
			return teardown.DestroyRuntimeResult{}, refusal(teardown.CodeInternal)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.runtimes = []teardown.RuntimeRef{{ID: "first"}, {ID: "second"}}
			w.onDestroy = destroy
			result, err := w.run(t, teardown.FinalizeSessionInput{OnParked: teardown.OnParkedReturn})
			require.NoError(t, err)
			require.Equal(t, teardown.OutcomeFailed, result.Outcome)
			require.NotContains(t, w.log, "release")
			require.Contains(t, w.log, "destroy second", "one that fails does not keep the others from being tried")
		})
	}
}

func TestNonRetryableErrorIsTriedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.removals = parentAndTwoChildren[2:]
	w.onRemove = func(string, int) (teardown.WorktreeResult, error) {
		return teardown.WorktreeResult{}, refusal(teardown.CodeInternal)
	}
	_, err := w.run(t, teardown.FinalizeSessionInput{OnParked: teardown.OnParkedReturn})
	require.NoError(t, err)
	require.Equal(t, 1, w.removeTries["parent"])
}

func TestAttemptsAreUsedUpThenRetriedAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.removals = parentAndTwoChildren[2:]
	w.onRemove = func(_ string, try int) (teardown.WorktreeResult, error) {
		if try <= 4 {
			return teardown.WorktreeResult{}, retryable(teardown.CodeInUse)
		}
		return teardown.WorktreeResult{Disposition: teardown.DispositionRemoved}, nil
	}
	w.RegisterDelayedCallback(func() {
		require.Equal(t, teardown.PhaseParked, w.status(t).Phase)
		require.Equal(t, teardown.ReasonAttemptsExhausted, w.status(t).ParkedReason)
		require.Equal(t, teardown.DispositionFailed, w.status(t).Result.Worktrees[0].Disposition)
		w.SignalWorkflow(teardown.RetrySignal, teardown.RetryRequest{RequestID: "r1"})
	}, time.Hour)
	result, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	require.Equal(t, 5, w.removeTries["parent"], "three attempts, then two of the second round")
	require.Equal(t, []string{"r1"}, w.status(t).HandledRequests)
}

func TestRunThatLostItsHistoryParksForWhatItsRoundHasKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.resources = true
	w.onRelease = func() (teardown.ReleaseLeasesResult, error) {
		return teardown.ReleaseLeasesResult{Kept: &teardown.WorktreeResult{
			ID: "w1", Path: "/wt/w1", Disposition: teardown.DispositionPreserved, Code: teardown.CodeModified}}, nil
	}
	result, err := w.run(t, teardown.FinalizeSessionInput{OnParked: teardown.OnParkedReturn})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomePreserved, result.Outcome)
	require.Equal(t, []string{"begin", "release", "park preserved"}, w.log)
	require.Equal(t, teardown.CodeModified, w.parks[0].Failure.Code)
}

func TestParkedWaitsForARetryWithoutPolling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.removals = parentAndTwoChildren[2:]
	w.onRemove = func(_ string, try int) (teardown.WorktreeResult, error) {
		if try == 1 {
			return preserved(teardown.CodeUntracked, "notes.txt")
		}
		return teardown.WorktreeResult{Disposition: teardown.DispositionRemoved}, nil
	}
	w.retryAfter(100*24*time.Hour, teardown.RetryRequest{RequestID: "late"})
	result, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	require.Len(t, w.begins, 2)
	require.Equal(t, int64(1), w.begins[1].Round)
	require.Equal(t, "late", w.begins[1].Requests[0].RequestID)
}

func TestRunThatBeginsParkedTouchesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.parked = teardown.ReasonPreserved
	w.removals = parentAndTwoChildren[2:]
	w.RegisterDelayedCallback(func() {
		require.Equal(t, []string{"begin"}, w.log)
		require.Equal(t, teardown.PhaseParked, w.status(t).Phase)
		w.SignalWorkflow(teardown.RetrySignal, teardown.RetryRequest{})
	}, time.Hour)
	result, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
}

func TestRetryWhileAStepRunsCausesAnotherRound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.removals = parentAndTwoChildren[2:]
	w.onRemove = func(_ string, try int) (teardown.WorktreeResult, error) {
		if try == 1 {
			w.SignalWorkflow(teardown.RetrySignal, teardown.RetryRequest{RequestID: "during"})
			return preserved(teardown.CodeModified)
		}
		return teardown.WorktreeResult{Disposition: teardown.DispositionRemoved}, nil
	}
	result, err := w.run(t, teardown.FinalizeSessionInput{OnParked: teardown.OnParkedReturn})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome, "a request beats returning")
	require.Equal(t, []string{"during"}, w.status(t).HandledRequests)
}

func TestRetryInABackoffIsHandled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.removals = parentAndTwoChildren[2:]
	w.onRemove = func(_ string, try int) (teardown.WorktreeResult, error) {
		if try <= 3 {
			return teardown.WorktreeResult{}, retryable(teardown.CodeInUse)
		}
		return teardown.WorktreeResult{Disposition: teardown.DispositionRemoved}, nil
	}
	w.retryAfter(1500*time.Millisecond, teardown.RetryRequest{RequestID: "backoff"})
	result, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	require.Equal(t, []string{"backoff"}, w.status(t).HandledRequests)
}

func TestRetryInTheLastTaskCausesOneMoreLook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.onFinish = func() (teardown.FinishResult, error) {
		w.SignalWorkflow(teardown.RetrySignal, teardown.RetryRequest{RequestID: "last"})
		w.finished = true
		w.onFinish = nil
		return teardown.FinishResult{Result: w.result()}, nil
	}
	result, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	require.Len(t, w.begins, 2)
	require.Equal(t, []string{"last"}, w.status(t).HandledRequests)
}

func TestRetryIsCarriedAcrossContinueAsNew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.removals = parentAndTwoChildren[2:]
	w.onRemove = func(string, int) (teardown.WorktreeResult, error) {
		w.SetContinueAsNewSuggested(true)
		w.SignalWorkflow(teardown.RetrySignal, teardown.RetryRequest{RequestID: "one"})
		w.SignalWorkflow(teardown.RetrySignal, teardown.RetryRequest{RequestID: "two", RuntimeConfirmedGone: true})
		return preserved(teardown.CodeModified)
	}
	_, err := w.run(t, teardown.FinalizeSessionInput{Generation: 7})
	var asNew *workflow.ContinueAsNewError
	require.ErrorAs(t, err, &asNew)
	require.Equal(t, teardown.FinalizeSessionWorkflow, asNew.WorkflowType.Name)
	var next teardown.FinalizeSessionInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(asNew.Input, &next))
	require.Equal(t, int64(7), next.Generation)
	require.Equal(t, int64(1), next.Carried.Round)
	require.Equal(t, []string{"one", "two"}, []string{next.Carried.Pending[0].RequestID, next.Carried.Pending[1].RequestID})

	again := newWorld(t)
	again.parked = teardown.ReasonPreserved
	again.round = 1
	result, err := again.run(t, next)
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	require.Equal(t, []string{"one", "two"}, again.status(t).HandledRequests)
}

func TestCancelledWhileParkedEndsWithoutTouchingAnything(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.removals = parentAndTwoChildren[2:]
	w.onRemove = func(string, int) (teardown.WorktreeResult, error) { return preserved(teardown.CodeModified) }
	w.RegisterDelayedCallback(w.CancelWorkflow, time.Hour)
	_, err := w.run(t, teardown.FinalizeSessionInput{})
	var cancelled *temporal.CanceledError
	require.ErrorAs(t, err, &cancelled)
	require.Len(t, w.parks, 1, "it is parked already")
	require.Equal(t, "park preserved", w.log[len(w.log)-1])
}

func TestCancelStopsAtTheNextBoundaryAndRecordsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.runtimes = []teardown.RuntimeRef{{ID: "agent"}}
	w.removals = parentAndTwoChildren[2:]
	w.onDestroy = func(id string, _ teardown.DestroyRuntimeInput) (teardown.DestroyRuntimeResult, error) {
		w.CancelWorkflow()
		return teardown.DestroyRuntimeResult{Runtime: teardown.RuntimeResult{ID: id, Outcome: teardown.RuntimeReleased}}, nil
	}
	_, err := w.run(t, teardown.FinalizeSessionInput{})
	var cancelled *temporal.CanceledError
	require.ErrorAs(t, err, &cancelled)
	require.Equal(t, []string{"begin", "destroy agent", "park cancelled"}, w.log)
}

func TestCancelAfterARetryRecordsBoth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.parked = teardown.ReasonPreserved
	w.RegisterDelayedCallback(func() {
		w.SignalWorkflow(teardown.RetrySignal, teardown.RetryRequest{RequestID: "before"})
		w.CancelWorkflow()
	}, time.Hour)
	_, err := w.run(t, teardown.FinalizeSessionInput{})
	var cancelled *temporal.CanceledError
	require.ErrorAs(t, err, &cancelled)
	require.Equal(t, "before", w.begins[len(w.begins)-1].Requests[0].RequestID)
	require.Equal(t, teardown.ReasonCancelled, w.parked)
}

func TestSupersededStepBeginsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.removals = parentAndTwoChildren[2:]
	w.onRemove = func(_ string, try int) (teardown.WorktreeResult, error) {
		if try == 1 {
			w.round++
			return teardown.WorktreeResult{Disposition: teardown.DispositionSuperseded}, nil
		}
		return teardown.WorktreeResult{Disposition: teardown.DispositionRemoved}, nil
	}
	result, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	require.Len(t, w.begins, 2)
	require.Empty(t, w.parks)
}

func TestSupersededParkingBeginsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.removals = parentAndTwoChildren[2:]
	w.onRemove = func(_ string, try int) (teardown.WorktreeResult, error) {
		if try == 1 {
			return preserved(teardown.CodeModified)
		}
		return teardown.WorktreeResult{Disposition: teardown.DispositionRemoved}, nil
	}
	w.onPark = func(teardown.ParkInput) (teardown.ParkResult, error) {
		return teardown.ParkResult{Superseded: true}, nil
	}
	result, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
}

func TestRunThatBeginsAgainWithoutAReasonPausesLongerEachTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	finishes := 0
	w.onFinish = func() (teardown.FinishResult, error) {
		finishes++
		return teardown.FinishResult{Superseded: finishes < 12}, nil
	}
	began := w.Now()
	result, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	require.Greater(t, w.Now().Sub(began), 5*time.Minute)
}

func TestCancelledBesideAHalfRemovedWorktreeIsParkedForUsedUpAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.onRelease = func() (teardown.ReleaseLeasesResult, error) {
		w.CancelWorkflow()
		return teardown.ReleaseLeasesResult{}, nil
	}
	w.onPark = func(in teardown.ParkInput) (teardown.ParkResult, error) {
		if in.Reason != teardown.ReasonAttemptsExhausted {
			return teardown.ParkResult{}, refusal(teardown.CodeInternal)
		}
		return teardown.ParkResult{}, nil
	}
	_, err := w.run(t, teardown.FinalizeSessionInput{})
	var cancelled *temporal.CanceledError
	require.ErrorAs(t, err, &cancelled)
	require.Equal(t, []string{teardown.ReasonCancelled, teardown.ReasonAttemptsExhausted}, []string{w.parks[0].Reason, w.parks[1].Reason})
}

func TestParkingThatIsRefusedForMoreToRemoveGoesOnWithThePlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	releases := 0
	w.onRelease = func() (teardown.ReleaseLeasesResult, error) {
		releases++
		plan := teardown.ReleaseLeasesResult{Kept: &teardown.WorktreeResult{
			ID: "kept", Disposition: teardown.DispositionPreserved, Code: teardown.CodeModified}}
		if releases > 1 {
			plan.Removals = parentAndTwoChildren[2:]
		}
		return plan, nil
	}
	w.onPark = func(teardown.ParkInput) (teardown.ParkResult, error) {
		if w.removeTries["parent"] == 0 {
			return teardown.ParkResult{}, refusal(teardown.CodeInternal)
		}
		return teardown.ParkResult{}, nil
	}
	result, err := w.run(t, teardown.FinalizeSessionInput{OnParked: teardown.OnParkedReturn})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomePreserved, result.Outcome)
	require.Equal(t, 1, w.removeTries["parent"])
	require.Equal(t, teardown.ReasonPreserved, w.parks[len(w.parks)-1].Reason)
}

func TestNewerGenerationGoesOnInTheSameRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	finishes := 0
	w.onFinish = func() (teardown.FinishResult, error) {
		finishes++
		if finishes == 1 {
			return teardown.FinishResult{Again: true}, nil
		}
		return teardown.FinishResult{Result: teardown.Result{SessionID: session, Generation: 2}}, nil
	}
	result, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	require.Equal(t, int64(2), result.Generation)
}

func TestAbsentHostParksAndABusyOneDoesNot(t *testing.T) {
	t.Parallel()
	for _, seen := range []bool{false, true} {
		w := newWorld(t)
		w.seenLately = seen
		w.removals = parentAndTwoChildren[2:]
		tries := 0
		w.OnActivity(teardown.RemoveWorktreeActivity, mock.Anything, mock.Anything).Return(
			func(context.Context, teardown.RemoveWorktreeInput) (teardown.RemoveWorktreeResult, error) {
				tries++
				if tries == 1 {
					return teardown.RemoveWorktreeResult{}, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
				}
				return teardown.RemoveWorktreeResult{Worktree: teardown.WorktreeResult{
					ID: "parent", Disposition: teardown.DispositionRemoved}}, nil
			})
		result, err := w.run(t, teardown.FinalizeSessionInput{OnParked: teardown.OnParkedReturn})
		require.NoError(t, err)
		if seen {
			require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
			continue
		}
		require.Equal(t, teardown.OutcomeFailed, result.Outcome)
		require.Equal(t, teardown.ReasonHostUnreachable, w.parks[0].Reason)
	}
}

func TestDatabaseThatIsAwayParksNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.removals = parentAndTwoChildren[2:]
	begins := 0
	w.onBegin = func(teardown.BeginInput) (*teardown.BeginResult, error) {
		if begins++; begins < 20 {
			return nil, retryable(teardown.CodeDatabaseUnavailable)
		}
		return nil, nil
	}
	w.onRemove = func(_ string, try int) (teardown.WorktreeResult, error) {
		if try < 20 {
			return teardown.WorktreeResult{}, retryable(teardown.CodeDatabaseUnavailable)
		}
		return teardown.WorktreeResult{Disposition: teardown.DispositionRemoved}, nil
	}
	result, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	require.Empty(t, w.parks)
}

func TestUnknownAndLiveSessionsFailWithTheirCode(t *testing.T) {
	t.Parallel()
	for _, code := range []teardown.Code{teardown.CodeSessionNotFound, teardown.CodeSessionLive} {
		w := newWorld(t)
		w.onBegin = func(teardown.BeginInput) (*teardown.BeginResult, error) { return nil, refusal(code) }
		_, err := w.run(t, teardown.FinalizeSessionInput{})
		var application *temporal.ApplicationError
		require.ErrorAs(t, err, &application)
		require.True(t, application.NonRetryable())
		require.Equal(t, string(code), application.Type())
		require.Len(t, w.begins, 1)
	}
}

func TestIllFormedInputIsRefusedBeforeAnyStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ExecuteWorkflow(teardown.FinalizeSessionWorkflow, teardown.FinalizeSessionInput{SessionID: "../etc"})
	var application *temporal.ApplicationError
	require.ErrorAs(t, w.GetWorkflowError(), &application)
	require.Equal(t, string(teardown.CodeInvalidID), application.Type())
	require.Empty(t, w.log)
}

func TestDeferredAndFinishedReturnAtOnce(t *testing.T) {
	t.Parallel()
	for _, outcome := range []teardown.Outcome{teardown.OutcomeDeferred, teardown.OutcomeFinalized, teardown.OutcomeRestored} {
		w := newWorld(t)
		w.onBegin = func(teardown.BeginInput) (*teardown.BeginResult, error) {
			return &teardown.BeginResult{Host: "h1", Outcome: outcome}, nil
		}
		result, err := w.run(t, teardown.FinalizeSessionInput{})
		require.NoError(t, err)
		require.Equal(t, outcome, result.Outcome)
		require.Equal(t, []string{"begin"}, w.log)
	}
}

func TestConfirmedGoneReachesTheRuntimeStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.runtimes = []teardown.RuntimeRef{{ID: "agent"}}
	var said []string
	w.onDestroy = func(id string, in teardown.DestroyRuntimeInput) (teardown.DestroyRuntimeResult, error) {
		said = append(said, in.ConfirmedGoneBy)
		outcome := teardown.RuntimeRefused
		if in.ConfirmedGoneBy != "" {
			outcome = teardown.RuntimeReleased
		}
		return teardown.DestroyRuntimeResult{Runtime: teardown.RuntimeResult{ID: id, Outcome: outcome, Code: teardown.CodeRuntimeUnroutable}}, nil
	}
	w.retryAfter(time.Hour, teardown.RetryRequest{RuntimeConfirmedGone: true, RequestedBy: "ada"})
	result, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	require.Equal(t, []string{"", "ada"}, said)
}

func TestSecretsAreClearedWhenNoRuntimeIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.removals = parentAndTwoChildren[2:]
	w.onBegin = func(teardown.BeginInput) (*teardown.BeginResult, error) {
		return &teardown.BeginResult{Host: "h1", Secrets: true, Policy: teardown.Policy{MaximumAttempts: 1,
			StepTimeoutMS: 1000, HostTimeoutMS: 1000}, Step: teardown.Step{SessionID: session, Generation: 1, Round: 1}}, nil
	}
	_, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
	require.Equal(t, "begin, clear secrets, release", strings.Join(w.log[:3], ", "))
}

func TestCurrentDetailsNameWhatIsKeptAndHowToGoOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.parked = teardown.ReasonPreserved
	w.onBegin = func(in teardown.BeginInput) (*teardown.BeginResult, error) {
		if len(in.Requests) > 0 {
			return &teardown.BeginResult{Outcome: teardown.OutcomeFinalized}, nil
		}
		return &teardown.BeginResult{Host: "h1", ParkedReason: teardown.ReasonPreserved, Result: teardown.Result{
			Worktrees: []teardown.WorktreeResult{{Path: "/wt/s1", Disposition: teardown.DispositionPreserved,
				Code: teardown.CodeUntracked, Details: []string{"notes.txt"}}}}}, nil
	}
	w.RegisterDelayedCallback(func() {
		value, err := w.QueryWorkflow("__temporal_workflow_metadata")
		require.NoError(t, err)
		var metadata sdkpb.WorkflowMetadata
		require.NoError(t, value.Get(&metadata))
		require.Contains(t, metadata.GetCurrentDetails(), "/wt/s1")
		require.Contains(t, metadata.GetCurrentDetails(), "untracked: `notes.txt`")
		require.Contains(t, metadata.GetCurrentDetails(), "unwind retry s1")
		w.SignalWorkflow(teardown.RetrySignal, teardown.RetryRequest{})
	}, time.Minute)
	_, err := w.run(t, teardown.FinalizeSessionInput{})
	require.NoError(t, err)
}
