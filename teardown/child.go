package teardown

import (
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// AwaitFinalizationInput is the input of AwaitFinalization.
type AwaitFinalizationInput struct {
	SessionID string `json:"session_id"`
	// OnParked is that of FinalizeSessionInput.
	OnParked string `json:"on_parked,omitempty"`
}

// FinalizeAsChild finalizes a session from another workflow and waits for the
// result. The parent neither cancels nor ends it: cancelled itself, it gets its
// own cancellation as the error while the finalization goes on. When the
// session is already being finalized by a run of its own, the result of that
// run is awaited; with OnParkedReturn no longer than until it is parked. A run
// that answers an older generation than in.Generation is followed by another one.
//
// taskQueue is the installation's workflow queue; empty means DefaultTaskQueue.
func FinalizeAsChild(ctx workflow.Context, taskQueue string, in FinalizeSessionInput) (Result, error) {
	if taskQueue == "" {
		taskQueue = DefaultTaskQueue
	}
	for {
		result, err := finalizeOnce(ctx, taskQueue, in)
		if err != nil || result.Generation >= in.Generation {
			return result, err
		}
	}
}

func finalizeOnce(ctx workflow.Context, taskQueue string, in FinalizeSessionInput) (Result, error) {
	// Parent close policy abandon does not protect a child from its parent's
	// cancellation; a context of its own does.
	apart, _ := workflow.NewDisconnectedContext(ctx)
	apart = workflow.WithChildOptions(apart, workflow.ChildWorkflowOptions{
		WorkflowID:            FinalizeSessionID(in.SessionID),
		TaskQueue:             taskQueue,
		ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_ABANDON,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:         StaticSummary(in.SessionID),
	})
	child := workflow.ExecuteChildWorkflow(apart, FinalizeSessionWorkflow, in)
	// A parent that returns before its abandoned child has started never starts it.
	err := child.GetChildWorkflowExecution().Get(apart, nil)
	var elsewhere *temporal.ChildWorkflowExecutionAlreadyStartedError
	if errors.As(err, &elsewhere) {
		return awaitElsewhere(ctx, taskQueue, in)
	}
	if err != nil {
		return Result{}, err
	}
	if err := workflow.Await(ctx, child.IsReady); err != nil {
		return Result{}, err
	}
	var result Result
	err = child.Get(apart, &result)
	return result, err
}

// awaitSilence is how long the waiting may be unheard of before another worker
// takes it up: it heartbeats every few seconds, and does nothing that could not be
// done twice.
const awaitSilence = 15 * time.Second

// awaitElsewhere waits for a run that somebody else started, through an activity
// because a workflow cannot wait for a workflow that is not its child.
func awaitElsewhere(ctx workflow.Context, taskQueue string, in FinalizeSessionInput) (Result, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           taskQueue,
		StartToCloseTimeout: 24 * time.Hour,
		HeartbeatTimeout:    awaitSilence,
		Summary:             "Wait for the finalization of " + in.SessionID,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	})
	var result Result
	err := workflow.ExecuteActivity(ctx, AwaitFinalizationActivity,
		AwaitFinalizationInput{SessionID: in.SessionID, OnParked: in.OnParked}).Get(ctx, &result)
	return result, err
}

// StaticSummary is the line under which Temporal's web UI lists a finalization.
func StaticSummary(sessionID string) string { return "Release what session " + sessionID + " held" }
