package teardown

import (
	"context"
	"errors"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
)

// RestoreRequest is the payload of RestoreUpdate. The zero value restores
// whatever generation the finalization works on.
type RestoreRequest struct {
	// Generation, when set, is the one that the sender saw terminated; another one
	// by now is a conflict.
	Generation  int64  `json:"generation,omitempty"`
	RequestedBy string `json:"requested_by,omitempty"`
}

// RestoreResult says what a session that is live again holds, and what was
// already gone. Each list holds at most MaxListed entries, those that are gone
// first; the totals count all.
type RestoreResult struct {
	SessionID string `json:"session_id"`
	// Generation is the new one.
	Generation     int64          `json:"generation"`
	Outcome        Outcome        `json:"outcome"`
	Runtimes       []RestoredPart `json:"runtimes"`
	Worktrees      []RestoredPart `json:"worktrees"`
	Resources      []RestoredPart `json:"resources"`
	RuntimesTotal  int            `json:"runtimes_total"`
	WorktreesTotal int            `json:"worktrees_total"`
	ResourcesTotal int            `json:"resources_total"`
}

// RestoredPart is one thing that the session held when it was terminated.
type RestoredPart struct {
	// Kind is a runtime's or a resource's; empty for a worktree.
	Kind string `json:"kind,omitempty"`
	// Name is a path, a tmux session's name or a pid.
	Name string `json:"name"`
	// Gone: it is not there any more, and the session does not hold it.
	Gone bool `json:"gone"`
}

// RestoreSessionInput is the input of the activity RestoreSession.
type RestoreSessionInput struct {
	SessionID   string `json:"session_id"`
	Generation  int64  `json:"generation"`
	RequestedBy string `json:"requested_by,omitempty"`
}

// Restore makes a terminated session live again, at its next generation, and
// answers what it holds. It works whether or not the finalization has a run.
// Errors of the restore are *Error: busy while a step of the finalization is
// under way, host_unreachable if the session's host takes no work within ten
// seconds (both retryable), session_live, session_not_found, conflict,
// task_closed, and what keeps a runtime from being told or a worktree from being
// put back; then nothing has changed. Other errors are the client's own.
func Restore(ctx context.Context, c client.Client, taskQueue, sessionID string, request RestoreRequest) (RestoreResult, error) {
	var result RestoreResult
	options := StartOptions(taskQueue, sessionID)
	handle, err := c.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: c.NewWithStartWorkflowOperation(options, FinalizeSessionWorkflow, FinalizeSessionInput{SessionID: sessionID}),
		UpdateOptions: client.UpdateWorkflowOptions{
			WorkflowID:   options.ID,
			UpdateName:   RestoreUpdate,
			Args:         []any{request},
			WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	if err == nil {
		err = handle.Get(ctx, &result)
	}
	return result, errorOfUpdate(err)
}

// runEnded is the type under which Temporal's server fails an update that its
// run has accepted and not answered.
const runEnded = "AcceptedUpdateCompletedWorkflow"

// errorOfUpdate gives an error that the workflow answered its code back.
func errorOfUpdate(err error) error {
	var application *temporal.ApplicationError
	if !errors.As(err, &application) {
		return err
	}
	if application.Type() == runEnded {
		return &Error{Code: CodeBusy, Message: "The run that was asked has just ended; ask again", Retryable: true, Cause: err}
	}
	answered := &Error{Code: Code(application.Type()), Message: application.Message(), Retryable: !application.NonRetryable()}
	if application.HasDetails() {
		_ = application.Details(&answered.Details) // details of another shape say nothing to a person
	}
	return answered
}
