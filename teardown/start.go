package teardown

import (
	"context"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
)

// StartOptions are the options under which every caller starts a session's
// finalization, so that any number of callers may ask: a run that exists is
// used, and whether there is anything to do is the database's word.
func StartOptions(taskQueue, sessionID string) client.StartWorkflowOptions {
	if taskQueue == "" {
		taskQueue = DefaultTaskQueue
	}
	return client.StartWorkflowOptions{
		ID:                       FinalizeSessionID(sessionID),
		TaskQueue:                taskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:            StaticSummary(sessionID),
		StaticDetails: "Destroys the session's runtime, removes its worktrees child-first unless something could be lost, " +
			"then clears its agent's resources.\n\n" +
			"See `unwind status " + sessionID + "`. Cancel rather than terminate this workflow: a cancelled one records that it waits.",
	}
}

// Start starts the finalization of a terminated session, or finds the run that
// is already under way.
func Start(ctx context.Context, c client.Client, taskQueue string, in FinalizeSessionInput) (client.WorkflowRun, error) {
	return c.ExecuteWorkflow(ctx, StartOptions(taskQueue, in.SessionID), FinalizeSessionWorkflow, in)
}

// SignalRetry hands a retry request to the session's finalization and starts a
// run if there is none.
func SignalRetry(ctx context.Context, c client.Client, taskQueue string, sessionID string, request RetryRequest) (client.WorkflowRun, error) {
	options := StartOptions(taskQueue, sessionID)
	return c.SignalWithStartWorkflow(ctx, options.ID, RetrySignal, request, options,
		FinalizeSessionWorkflow, FinalizeSessionInput{SessionID: sessionID})
}

// TaskStartOptions are StartOptions for a task.
func TaskStartOptions(taskQueue, taskID string) client.StartWorkflowOptions {
	options := StartOptions(taskQueue, taskID)
	options.ID = FinalizeTaskID(taskID)
	options.StaticSummary = TaskStaticSummary(taskID)
	options.StaticDetails = "Finalizes the task's sessions, then removes the worktrees that only it holds, child-first, unless something could be lost. " +
		"Branches stay.\n\nSee `unwind task show " + taskID + "`. Cancel rather than terminate this workflow: a cancelled one records that it waits."
	return options
}

// StartTask starts the finalization of an archived or deleted task, or finds the
// run that is already under way.
func StartTask(ctx context.Context, c client.Client, taskQueue string, in FinalizeTaskInput) (client.WorkflowRun, error) {
	return c.ExecuteWorkflow(ctx, TaskStartOptions(taskQueue, in.TaskID), FinalizeTaskWorkflow, in)
}

// SignalTaskRetry is SignalRetry for a task.
func SignalTaskRetry(ctx context.Context, c client.Client, taskQueue string, taskID string, request RetryRequest) (client.WorkflowRun, error) {
	options := TaskStartOptions(taskQueue, taskID)
	return c.SignalWithStartWorkflow(ctx, options.ID, RetrySignal, request, options,
		FinalizeTaskWorkflow, FinalizeTaskInput{TaskID: taskID})
}

// TaskStaticSummary is StaticSummary for a task.
func TaskStaticSummary(taskID string) string { return "Release what task " + taskID + " held" }
