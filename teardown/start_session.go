package teardown

import (
	"context"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
)

const (
	// StartSessionWorkflow makes what a session holds and starts its runtimes, or
	// takes all of it back.
	StartSessionWorkflow = "StartSession"

	ReadPolicyActivity     = "ReadPolicy"
	BeginStartActivity     = "BeginStart"
	CreateResourceActivity = "CreateResource"
	CreateWorktreeActivity = "CreateWorktree"
	StartRuntimeActivity   = "StartRuntime"
	FailStartActivity      = "FailStart"
)

// SourceStartFailed is the termination source of a session whose start failed.
const SourceStartFailed = "start_failed"

// StartSessionID is the workflow id of a session's start.
func StartSessionID(sessionID string) string { return "start-session-" + sessionID }

// StartSessionInput says what a session is to have. All of it is kept in
// Temporal's history, so it holds no secret: what a file is to contain is read
// on the host, from the file that it names.
type StartSessionInput struct {
	ID string `json:"id"`
	// Host is the machine on which the session is started.
	Host      string        `json:"host"`
	TaskID    string        `json:"task_id,omitempty"`
	Worktrees []NewWorktree `json:"worktrees,omitempty"`
	Resources []NewResource `json:"resources,omitempty"`
	Runtimes  []NewRuntime  `json:"runtimes,omitempty"`
	Links     []Link        `json:"links,omitempty"`
}

// NewWorktree is a worktree to make.
type NewWorktree struct {
	Repository string `json:"repository"`
	Path       string `json:"path"`
	// Branch is checked out, and made if it is not there; empty for none.
	Branch string `json:"branch,omitempty"`
	// Base is where a new branch begins; empty for the repository's HEAD. With a
	// base, a branch that is there already must be exactly at it.
	Base string `json:"base,omitempty"`
}

// NewResource is a resource to make.
type NewResource struct {
	Kind string `json:"kind"`
	Path string `json:"path"`
	// From is the file on the host whose content a file or a secret gets; empty
	// makes it empty.
	From string `json:"from,omitempty"`
}

// NewRuntime is a runtime to start.
type NewRuntime struct {
	Kind string `json:"kind"`           // tmux if empty
	Role string `json:"role,omitempty"` // agent if empty
	// Command is the program and its arguments; no shell reads them.
	Command []string `json:"command"`
	// Directory is where it begins; empty for the first worktree, or "/".
	Directory string `json:"directory,omitempty"`
	// Session is the tmux session's name; empty for the session's id, with the
	// place in the list from the second one on. Socket is its server's; empty for
	// the installation's own.
	Session string `json:"session,omitempty"`
	Socket  string `json:"socket,omitempty"`
	// Output is a file to which a process's output is added; empty drops it.
	Output string `json:"output,omitempty"`
}

// StartSessionResult is what was started.
type StartSessionResult struct {
	SessionID  string            `json:"session_id"`
	Host       string            `json:"host"`
	Generation int64             `json:"generation"`
	Runtimes   []StartedRuntime  `json:"runtimes"`
	Worktrees  []StartedWorktree `json:"worktrees"`
	Resources  int               `json:"resources"`
}

// StartedRuntime is one runtime of a StartSessionResult.
type StartedRuntime struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Role    string `json:"role"`
	Socket  string `json:"socket,omitempty"`
	Session string `json:"session,omitempty"`
	PID     int    `json:"pid,omitempty"`
}

// StartedWorktree is one worktree of a StartSessionResult.
type StartedWorktree struct {
	ID     string `json:"id"`
	Path   string `json:"path"`
	Branch string `json:"branch"`
}

// StartFailure is the detail of the error with which StartSession ends when it
// has failed; the error's type is the code of what went wrong.
type StartFailure struct {
	// Released says what became of what had been made; nil if nothing was.
	Released *Result `json:"released,omitempty"`
}

// StartStep identifies a session that is being started.
type StartStep struct {
	SessionID  string `json:"session_id"`
	Generation int64  `json:"generation"`
}

// BeginStartResult is the recorded intent.
type BeginStartResult struct {
	Start StartStep `json:"start"`
	// Done: all of it was started before.
	Done bool `json:"done,omitempty"`
	// Worktrees are in the order in which they are made, parents first; Runtimes
	// and Resources in that of the input.
	Worktrees []PlannedWorktree  `json:"worktrees,omitempty"`
	Runtimes  []StartedRuntime   `json:"runtimes,omitempty"`
	Result    StartSessionResult `json:"result"`
}

// PlannedWorktree is a worktree that is recorded and about to be made.
type PlannedWorktree struct {
	ID     string `json:"id"`
	Path   string `json:"path"`
	Base   string `json:"base,omitempty"`
	Commit string `json:"commit"`
}

// CreateResourceInput is the input of CreateResource.
type CreateResourceInput struct {
	Start    StartStep   `json:"start"`
	Resource NewResource `json:"resource"`
}

// CreateWorktreeInput is the input of CreateWorktree.
type CreateWorktreeInput struct {
	Start    StartStep       `json:"start"`
	Worktree PlannedWorktree `json:"worktree"`
}

// StartRuntimeInput is the input of StartRuntime.
type StartRuntimeInput struct {
	Start     StartStep  `json:"start"`
	RuntimeID string     `json:"runtime_id"`
	Launch    NewRuntime `json:"launch"`
}

// FailStartResult is the result of FailStart.
type FailStartResult struct {
	// Begun: something was recorded, so there is something to release.
	Begun      bool  `json:"begun"`
	Generation int64 `json:"generation,omitempty"`
}

// StartSession has a session started and answers the run, which may be one that
// is under way. The same input again, once it is started, changes nothing.
// taskQueue is the installation's workflow queue; empty means DefaultTaskQueue.
func StartSession(ctx context.Context, c client.Client, taskQueue string, in StartSessionInput) (client.WorkflowRun, error) {
	if taskQueue == "" {
		taskQueue = DefaultTaskQueue
	}
	return c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                       StartSessionID(in.ID),
		TaskQueue:                taskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:            "Start session " + in.ID,
		StaticDetails: "Makes the session's files and worktrees and starts its runtimes. If anything fails, the session is terminated " +
			"and what was made is released.\n\nSee `unwind status " + in.ID + "`. Cancelling this workflow takes back what it has made.",
	}, StartSessionWorkflow, in)
}
