package workflows_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
	"unwind/workflows"
)

const session = "s1"

// world stands for the database and the host, in memory, so that a test decides
// what each step answers. The real ones are in test/.
type world struct {
	*testsuite.TestWorkflowEnvironment

	mu     sync.Mutex
	log    []string // steps in order, with their subject
	begins []teardown.BeginInput
	parks  []teardown.ParkInput

	round       int64
	parked      string
	finished    bool
	live        bool
	runtimes    []teardown.RuntimeRef
	removals    []teardown.Removal
	resources   bool
	seenLately  bool
	onBegin     func(teardown.BeginInput) (*teardown.BeginResult, error)
	onRelease   func() (teardown.ReleaseLeasesResult, error)
	onDestroy   func(id string, in teardown.DestroyRuntimeInput) (teardown.DestroyRuntimeResult, error)
	onRemove    func(id string, attempt int) (teardown.WorktreeResult, error)
	onPark      func(teardown.ParkInput) (teardown.ParkResult, error)
	onFinish    func() (teardown.FinishResult, error)
	onRestore   func(teardown.RestoreSessionInput) (teardown.RestoreResult, error)
	removeTries map[string]int
	runningNow  int
	runningMost int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := newWorldOf(t, teardown.StartOptions("", session))
	w.RegisterWorkflowWithOptions(workflows.FinalizeSession, workflow.RegisterOptions{Name: teardown.FinalizeSessionWorkflow})
	return w
}

func newWorldOf(t *testing.T, options client.StartWorkflowOptions) *world {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	w := &world{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), round: 1, removeTries: map[string]int{}}
	w.SetTestTimeout(time.Minute)
	w.SetStartWorkflowOptions(options)
	for name, fn := range map[string]any{
		teardown.BeginFinalizationActivity:   w.begin,
		teardown.ReleaseLeasesActivity:       w.release,
		teardown.ParkFinalizationActivity:    w.park,
		teardown.FinishFinalizationActivity:  w.finish,
		teardown.CheckHostActivity:           w.checkHost,
		teardown.DestroyRuntimeActivity:      w.destroy,
		teardown.RemoveWorktreeActivity:      w.remove,
		teardown.ClearAgentResourcesActivity: w.clear,
		teardown.RestoreSessionActivity:      w.restore,
	} {
		w.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	return w
}

func (w *world) run(t *testing.T, in teardown.FinalizeSessionInput) (teardown.Result, error) {
	t.Helper()
	in.SessionID = session
	w.ExecuteWorkflow(teardown.FinalizeSessionWorkflow, in)
	require.True(t, w.IsWorkflowCompleted())
	if err := w.GetWorkflowError(); err != nil {
		return teardown.Result{}, err
	}
	var result teardown.Result
	require.NoError(t, w.GetWorkflowResult(&result))
	return result, nil
}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *world) begin(_ context.Context, in teardown.BeginInput) (teardown.BeginResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("begin")
	w.begins = append(w.begins, in)
	if w.onBegin != nil {
		if answer, err := w.onBegin(in); answer != nil || err != nil {
			if answer == nil {
				answer = &teardown.BeginResult{}
			}
			return *answer, err
		}
	}
	if len(in.Requests) > 0 && (w.parked != "" || in.Round == w.round) {
		w.round++
		w.parked = ""
	}
	confirmedBy := ""
	for _, request := range in.Requests {
		if request.RuntimeConfirmedGone {
			confirmedBy = request.RequestedBy
		}
	}
	result := teardown.BeginResult{
		ConfirmedGoneBy: confirmedBy,
		Host:            "h1", Step: teardown.Step{SessionID: in.SessionID, TaskID: in.TaskID, Generation: 1, Round: w.round},
		ParkedReason: w.parked, Runtimes: w.runtimes, Resources: w.resources, Result: w.result(),
		Policy: teardown.Policy{InitialIntervalMS: 1000, MaximumIntervalMS: 60_000, MaximumAttempts: 3,
			StepTimeoutMS: 60_000, HeartbeatMS: 30_000, HostTimeoutMS: 900_000, Parallel: 2},
		SearchAttributes: true,
	}
	if w.finished {
		result.Outcome = teardown.OutcomeFinalized
	}
	if w.live {
		result.Outcome = teardown.OutcomeRestored
	}
	return result, nil
}

func (w *world) result() teardown.Result {
	result := teardown.Result{SessionID: session, Generation: 1}
	for _, removal := range w.removals {
		result.Worktrees = append(result.Worktrees, teardown.WorktreeResult{
			ID: removal.WorktreeID, Path: "/wt/" + removal.Name, Disposition: teardown.DispositionPending})
	}
	return result
}

func (w *world) destroy(_ context.Context, in teardown.DestroyRuntimeInput) (teardown.DestroyRuntimeResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("destroy %s", in.RuntimeID)
	if w.onDestroy != nil {
		return w.onDestroy(in.RuntimeID, in)
	}
	w.runtimes = nil
	return teardown.DestroyRuntimeResult{Runtime: teardown.RuntimeResult{ID: in.RuntimeID, Outcome: teardown.RuntimeReleased}}, nil
}

func (w *world) release(context.Context, teardown.Step) (teardown.ReleaseLeasesResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("release")
	if w.onRelease != nil {
		return w.onRelease()
	}
	return teardown.ReleaseLeasesResult{Removals: w.removals}, nil
}

func (w *world) remove(_ context.Context, in teardown.RemoveWorktreeInput) (teardown.RemoveWorktreeResult, error) {
	w.mu.Lock()
	w.note("remove %s", in.WorktreeID)
	w.removeTries[in.WorktreeID]++
	try := w.removeTries[in.WorktreeID]
	w.runningNow++
	w.runningMost = max(w.runningMost, w.runningNow)
	w.mu.Unlock()
	time.Sleep(5 * time.Millisecond) // long enough for a sibling to overlap
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runningNow--
	w.note("removed %s", in.WorktreeID)
	if w.onRemove != nil {
		result, err := w.onRemove(in.WorktreeID, try)
		result.ID = in.WorktreeID
		return teardown.RemoveWorktreeResult{Worktree: result}, err
	}
	return teardown.RemoveWorktreeResult{Worktree: teardown.WorktreeResult{
		ID: in.WorktreeID, Disposition: teardown.DispositionRemoved}}, nil
}

func (w *world) clear(_ context.Context, in teardown.ClearResourcesInput) (teardown.ClearResourcesResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if in.SecretsOnly {
		w.note("clear secrets")
	} else {
		w.note("clear")
	}
	return teardown.ClearResourcesResult{Resources: teardown.ResourcesResult{Cleared: 1}}, nil
}

func (w *world) restore(_ context.Context, in teardown.RestoreSessionInput) (teardown.RestoreResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("restore generation %d", in.Generation)
	if w.onRestore != nil {
		if result, err := w.onRestore(in); err != nil {
			return result, err
		}
	}
	w.live = true
	return teardown.RestoreResult{SessionID: in.SessionID, Generation: in.Generation + 1, Outcome: teardown.OutcomeRestored}, nil
}

func (w *world) park(_ context.Context, in teardown.ParkInput) (teardown.ParkResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("park %s", in.Reason)
	w.parks = append(w.parks, in)
	if w.onPark != nil {
		return w.onPark(in)
	}
	w.parked = in.Reason
	result := w.result()
	result.Failure = in.Failure
	for i := range result.Worktrees {
		if in.Reason == teardown.ReasonAttemptsExhausted {
			result.Worktrees[i].Disposition = teardown.DispositionFailed
		}
	}
	return teardown.ParkResult{Result: result}, nil
}

func (w *world) finish(context.Context, teardown.Step) (teardown.FinishResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("finish")
	if w.onFinish != nil {
		return w.onFinish()
	}
	w.finished = true
	return teardown.FinishResult{Result: w.result()}, nil
}

func (w *world) checkHost(context.Context, string) (teardown.CheckHostResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("check host")
	return teardown.CheckHostResult{SeenLately: w.seenLately}, nil
}

func (w *world) status(t *testing.T) teardown.Status {
	t.Helper()
	value, err := w.QueryWorkflow(teardown.StatusQuery)
	require.NoError(t, err)
	var status teardown.Status
	require.NoError(t, value.Get(&status))
	return status
}

func (w *world) retryAfter(d time.Duration, request teardown.RetryRequest) {
	w.RegisterDelayedCallback(func() { w.SignalWorkflow(teardown.RetrySignal, request) }, d)
}

func preserved(code teardown.Code, details ...string) (teardown.WorktreeResult, error) {
	return teardown.WorktreeResult{Disposition: teardown.DispositionPreserved, Code: code, Details: details}, nil
}

func retryable(code teardown.Code) error {
	return temporal.NewApplicationErrorWithOptions("not now", string(code), temporal.ApplicationErrorOptions{})
}

func refusal(code teardown.Code) error {
	return temporal.NewNonRetryableApplicationError("no", string(code), nil)
}

// restoring is one restore update and what it was answered.
type restoring struct {
	rejected, failed error
	completed        bool
	result           teardown.RestoreResult
}

func (w *world) restoreAfter(d time.Duration) *restoring {
	r := &restoring{}
	w.RegisterDelayedCallback(func() {
		w.UpdateWorkflow(teardown.RestoreUpdate, "", &testsuite.TestUpdateCallback{
			OnAccept: func() {},
			OnReject: func(err error) { r.rejected = err },
			OnComplete: func(result any, err error) {
				r.completed, r.failed = true, err
				if err == nil {
					r.result = result.(teardown.RestoreResult)
				}
			},
		}, teardown.RestoreRequest{RequestedBy: "test"})
	}, d)
	return r
}
