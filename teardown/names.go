package teardown

import (
	"fmt"
	"regexp"
)

// Names registered with Temporal. They are part of the contract and never change.
const (
	// FinalizeSessionWorkflow releases what a terminated session held.
	FinalizeSessionWorkflow = "FinalizeSession"
	// FinalizeTaskWorkflow releases what an archived or deleted task held.
	FinalizeTaskWorkflow = "FinalizeTask"
	// UnarchiveTaskWorkflow makes an archived task's worktrees again.
	UnarchiveTaskWorkflow = "UnarchiveTask"

	// DefaultTaskQueue is the queue of workflows and of the activities that
	// touch no machine. Activities of a host run on HostTaskQueue.
	DefaultTaskQueue = "unwind"

	// RetrySignal asks for one more round; its payload is a RetryRequest.
	RetrySignal = "retry"
	// RestoreUpdate makes the session live again; its payload is a RestoreRequest,
	// its answer a RestoreResult. Send it with update-with-start.
	RestoreUpdate = "restore"
	// StatusQuery answers a Status at any time.
	StatusQuery = "status"

	// AwaitFinalizationActivity waits for the result of a finalization that runs
	// elsewhere. It runs on the workflow task queue.
	AwaitFinalizationActivity = "AwaitFinalization"
)

// Names of the activities, as Temporal's web UI shows them.
const (
	BeginFinalizationActivity     = "BeginFinalization"
	ReleaseLeasesActivity         = "ReleaseLeases"
	ParkFinalizationActivity      = "ParkFinalization"
	FinishFinalizationActivity    = "FinishFinalization"
	CheckHostActivity             = "CheckHost"
	DestroyRuntimeActivity        = "DestroyRuntime"
	RemoveWorktreeActivity        = "RemoveWorktree"
	ClearAgentResourcesActivity   = "ClearAgentResources"
	ReopenTaskActivity            = "ReopenTask"
	RecreateWorktreeActivity      = "RecreateWorktree"
	TerminateTaskSessionsActivity = "TerminateTaskSessions"
	RestoreSessionActivity        = "RestoreSession"
)

// Search attributes, all of type Keyword.
const (
	SessionAttribute = "UnwindSession"
	// TaskAttribute is set on a task's runs and on those of its sessions.
	TaskAttribute   = "UnwindTask"
	HostAttribute   = "UnwindHost"
	PhaseAttribute  = "UnwindPhase"
	ReasonAttribute = "UnwindReason"
)

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// ValidateID reports whether id may name a session, a task or a host. Ids
// become ref, file, queue and workflow names, hence the narrow alphabet.
// The error has CodeInvalidID.
func ValidateID(id string) error {
	if idPattern.MatchString(id) {
		return nil
	}
	return &Error{Code: CodeInvalidID, Message: fmt.Sprintf(
		"%q is not a valid id: use 1 to 128 letters, digits, '-' or '_', beginning with a letter or digit", id)}
}

// FinalizeSessionID is the workflow id of a session's finalization.
func FinalizeSessionID(sessionID string) string { return "finalize-session-" + sessionID }

// FinalizeTaskID is the workflow id of a task's finalization.
func FinalizeTaskID(taskID string) string { return "finalize-task-" + taskID }

// UnarchiveTaskID is the workflow id of the unarchiving of a task.
func UnarchiveTaskID(taskID string) string { return "unarchive-task-" + taskID }

// HostTaskQueue is the queue on which a host's activities run, given the
// workflow task queue of the installation (DefaultTaskQueue if empty).
func HostTaskQueue(taskQueue, host string) string {
	if taskQueue == "" {
		taskQueue = DefaultTaskQueue
	}
	return taskQueue + "-host-" + host
}
