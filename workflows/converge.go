package workflows

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
)

// Converge finishes one thing that no finalization will: a worktree whose
// remover is void, or what a session without a row still holds. It ends when
// that is done, is to stay, or failed as often as allowed; reconcile starts it
// again while there is something to do, so it neither parks nor waits.
func Converge(ctx workflow.Context, in teardown.ConvergeInput) (teardown.WorktreeResult, error) {
	var result teardown.WorktreeResult
	for _, id := range []string{in.Host, in.WorktreeID + in.SessionID} {
		if err := teardown.ValidateID(id); err != nil {
			return result, temporal.NewNonRetryableApplicationError(err.Error(), string(teardown.CodeInvalidID), nil)
		}
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              teardown.HostTaskQueue(workflow.GetInfo(ctx).TaskQueueName, in.Host),
		ScheduleToStartTimeout: milliseconds(in.Policy.HostTimeoutMS),
		StartToCloseTimeout:    milliseconds(in.Policy.StepTimeoutMS),
		HeartbeatTimeout:       milliseconds(in.Policy.HeartbeatMS),
		WaitForCancellation:    true,
		Summary:                "Finish what no finalization will",
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    milliseconds(in.Policy.InitialIntervalMS),
			BackoffCoefficient: 2,
			MaximumInterval:    milliseconds(in.Policy.MaximumIntervalMS),
			MaximumAttempts:    in.Policy.MaximumAttempts,
		},
	})
	if in.WorktreeID != "" {
		return result, outermost(workflow.ExecuteActivity(ctx, host.ConvergeWorktree, in.WorktreeID).Get(ctx, &result))
	}
	return result, outermost(workflow.ExecuteActivity(ctx, host.ReleaseVanished, in.SessionID).Get(ctx, nil))
}

// outermost puts the code on the outermost error, where callers look for it.
func outermost(err error) error {
	if err == nil {
		return nil
	}
	failure := failureOf(err)
	return temporal.NewNonRetryableApplicationError(failure.Message, string(failure.Code), nil)
}
