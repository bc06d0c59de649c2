package teardown

import (
	"context"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
)

// UnarchiveTaskInput starts UnarchiveTask.
type UnarchiveTaskInput struct {
	TaskID string `json:"task_id"`
}

// UnarchiveTaskResult says what an active task holds again.
type UnarchiveTaskResult struct {
	TaskID     string `json:"task_id"`
	Generation int64  `json:"generation"`
	// Outcome is restored, or failed if a worktree could not be made again.
	Outcome Outcome `json:"outcome"`
	// Worktrees lists the first MaxListed, by path.
	Worktrees []UnarchivedWorktree `json:"worktrees"`
}

// UnarchivedWorktree is one worktree that the task held when it was archived.
type UnarchivedWorktree struct {
	Path   string `json:"path"`
	Branch string `json:"branch"`
	Host   string `json:"host"`
	// Held: the task holds it, and it is there.
	Held bool `json:"held"`
	// Failure is why it is not there.
	Failure Failure `json:"failure"`
}

// UnarchivePlan is what ReopenTask answers.
type UnarchivePlan struct {
	Generation int64 `json:"generation"`
	// Recreations are to be there, parents first: made again, or seen where they
	// were kept. Others cannot be.
	Recreations []Recreation         `json:"recreations,omitempty"`
	Others      []UnarchivedWorktree `json:"others,omitempty"`
	Policy      Policy               `json:"policy"`
}

// Recreation is one worktree that is to be made again, or seen.
type Recreation struct {
	WorktreeID string             `json:"worktree_id"`
	Worktree   UnarchivedWorktree `json:"worktree"`
}

// RecreateWorktreeInput is the input of RecreateWorktree.
type RecreateWorktreeInput struct {
	WorktreeID string `json:"worktree_id"`
}

// RecreateWorktreeResult is the result of RecreateWorktree. Made: it is there;
// false if the worktree was given up meanwhile.
type RecreateWorktreeResult struct {
	Made bool `json:"made"`
}

// UnarchiveTask makes an archived task active again, at its next generation, and
// has its worktrees made from the branches that were kept; of an active task,
// those that are still to be made. One that was kept and is not at its path is
// worktree_missing in the result. A run that is under way is used.
func UnarchiveTask(ctx context.Context, c client.Client, taskQueue, taskID string) (client.WorkflowRun, error) {
	if taskQueue == "" {
		taskQueue = DefaultTaskQueue
	}
	return c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                       UnarchiveTaskID(taskID),
		TaskQueue:                taskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:            "Make the worktrees of task " + taskID + " again",
	}, UnarchiveTaskWorkflow, UnarchiveTaskInput{TaskID: taskID})
}
