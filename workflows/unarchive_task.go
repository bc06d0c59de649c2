package workflows

import (
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
)

// recreateStartLimit is how long a worktree waits for its host: a person waits
// for the answer.
const recreateStartLimit = 30 * time.Second

// UnarchiveTask makes an archived task active again, first as a fact, and then
// makes its worktrees on their hosts, parents first, or sees that they are there.
// What could not be made is listed, and made by the next run.
func UnarchiveTask(ctx workflow.Context, in teardown.UnarchiveTaskInput) (teardown.UnarchiveTaskResult, error) {
	result := teardown.UnarchiveTaskResult{TaskID: in.TaskID, Outcome: teardown.OutcomeRestored}
	if err := teardown.ValidateID(in.TaskID); err != nil {
		return result, temporal.NewNonRetryableApplicationError(err.Error(), string(teardown.CodeInvalidID), nil)
	}
	var plan teardown.UnarchivePlan
	short := workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: factTimeout,
		Summary:             "Make the task active again",
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: firstPause, BackoffCoefficient: 2, MaximumInterval: maxPause, MaximumAttempts: 5},
	})
	if err := workflow.ExecuteLocalActivity(short, facts.ReopenTask, in).Get(ctx, &plan); err != nil {
		failure := failureOf(err)
		// Callers in any language find the code on the outermost error.
		return result, temporal.NewNonRetryableApplicationError(failure.Message, string(failure.Code), nil)
	}
	result.Generation = plan.Generation
	result.Worktrees = plan.Others
	for _, recreation := range plan.Recreations {
		result.Worktrees = append(result.Worktrees, recreate(ctx, plan.Policy, recreation))
	}
	endWaiting(ctx, in.TaskID)
	for _, w := range result.Worktrees {
		if !w.Held {
			result.Outcome = teardown.OutcomeFailed
		}
	}
	slices.SortFunc(result.Worktrees, func(a, b teardown.UnarchivedWorktree) int { return strings.Compare(a.Path, b.Path) })
	if len(result.Worktrees) > teardown.MaxListed {
		result.Worktrees = result.Worktrees[:teardown.MaxListed]
	}
	return result, nil
}

func recreate(ctx workflow.Context, policy teardown.Policy, recreation teardown.Recreation) teardown.UnarchivedWorktree {
	made := recreation.Worktree
	options := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              teardown.HostTaskQueue(workflow.GetInfo(ctx).TaskQueueName, made.Host),
		ScheduleToStartTimeout: recreateStartLimit,
		StartToCloseTimeout:    milliseconds(policy.StepTimeoutMS),
		HeartbeatTimeout:       milliseconds(policy.HeartbeatMS),
		WaitForCancellation:    true,
		Summary:                "Make worktree " + made.Path + ", if it is not there",
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: milliseconds(policy.InitialIntervalMS), BackoffCoefficient: 2,
			MaximumInterval: milliseconds(policy.MaximumIntervalMS), MaximumAttempts: 3},
	})
	var out teardown.RecreateWorktreeResult
	err := workflow.ExecuteActivity(options, host.RecreateWorktree, teardown.RecreateWorktreeInput{WorktreeID: recreation.WorktreeID}).Get(ctx, &out)
	made.Held = err == nil && out.Made
	switch {
	case made.Held:
	case err == nil:
		made.Failure = teardown.Failure{Code: teardown.CodeWorktreeRemoved, Message: "The task was archived or deleted meanwhile"}
	case hostAway(err):
		made.Failure = teardown.Failure{Code: teardown.ReasonHostUnreachable,
			Message: "No worker of host " + made.Host + " takes work; start unwind-worker there, then unarchive the task again"}
	default:
		made.Failure = failureOf(err)
	}
	return made
}

// endWaiting wakes a finalization of the task that waits for a person, so that it
// finds the task active and ends. There may be none.
func endWaiting(ctx workflow.Context, taskID string) {
	request := teardown.RetryRequest{RequestedBy: "unarchive"}
	err := workflow.SignalExternalWorkflow(ctx, teardown.FinalizeTaskID(taskID), "", teardown.RetrySignal, request).Get(ctx, nil)
	if err != nil {
		workflow.GetLogger(ctx).Debug("No finalization of the task waits", "task", taskID, "error", err)
	}
}
