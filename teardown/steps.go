package teardown

// Step identifies the run of a step: whose, of which generation and round. A
// step writes only while these are current.
type Step struct {
	SessionID string `json:"session_id"`
	// TaskID names the holder if it is a task; SessionID is empty then.
	TaskID     string `json:"task_id,omitempty"`
	Generation int64  `json:"generation"`
	Round      int64  `json:"round"`
}

// BeginInput is the input of BeginFinalization.
type BeginInput struct {
	SessionID string `json:"session_id"`
	// TaskID, as in Step.
	TaskID     string `json:"task_id,omitempty"`
	WorkflowID string `json:"workflow_id"`
	// Generation and Round are the ones that this run worked on before; zero in
	// the first round of a run.
	Generation int64          `json:"generation,omitempty"`
	Round      int64          `json:"round,omitempty"`
	Requests   []RetryRequest `json:"requests,omitempty"`
}

// BeginResult is the database's word on what there is to do.
type BeginResult struct {
	Host string `json:"host"`
	Step Step   `json:"step"`
	// TaskID is the task that is finalized, or that the session is in.
	TaskID string `json:"task_id,omitempty"`
	// Outcome is set when there is nothing to do: finalized, deferred or restored.
	Outcome Outcome `json:"outcome,omitempty"`
	// ParkedReason is set when the finalization is parked and no request wakes it.
	ParkedReason string `json:"parked_reason,omitempty"`
	// Runtimes lists those not yet confirmed gone, auxiliary ones first.
	Runtimes []RuntimeRef `json:"runtimes,omitempty"`
	// ConfirmedGoneBy is who has seen, for this round, that the runtimes are gone.
	ConfirmedGoneBy string `json:"confirmed_gone_by,omitempty"`
	// Secrets: there are secrets left to clear.
	Secrets bool `json:"secrets,omitempty"`
	// Resources: there are resources of any kind left to clear.
	Resources bool `json:"resources,omitempty"`
	// Result is what is known so far.
	Result Result `json:"result"`
	Policy Policy `json:"policy"`
	// SearchAttributes: the worker has registered them.
	SearchAttributes bool `json:"search_attributes"`
}

// RuntimeRef names a runtime without saying where it is.
type RuntimeRef struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	Role string `json:"role"`
	Name string `json:"name"` // for people: the tmux session's name or the pid
}

// DestroyRuntimeInput is the input of DestroyRuntime.
type DestroyRuntimeInput struct {
	Step      Step   `json:"step"`
	RuntimeID string `json:"runtime_id"`
	// ConfirmedGoneBy is who said that the runtime is gone; empty to probe it.
	ConfirmedGoneBy string `json:"confirmed_gone_by,omitempty"`
}

// DestroyRuntimeResult is the result of DestroyRuntime. A refusal is a result,
// not an error.
type DestroyRuntimeResult struct {
	Runtime RuntimeResult `json:"runtime"`
	// Message is for people; set with a refusal.
	Message string `json:"message,omitempty"`
}

// ReleaseLeasesResult is the removal plan, deepest worktrees first.
type ReleaseLeasesResult struct {
	Superseded bool `json:"superseded,omitempty"`
	// Parked: the finalization was parked meanwhile; begin again.
	Parked   bool      `json:"parked,omitempty"`
	Removals []Removal `json:"removals,omitempty"`
	// Kept is a worktree that this very round has already decided to keep, if
	// there is one: then nothing after the removals may run.
	Kept *WorktreeResult `json:"kept,omitempty"`
}

// Removal is one worktree of a removal plan. ParentID names the nearest
// ancestor that is itself in the plan.
type Removal struct {
	WorktreeID string `json:"worktree_id"`
	ParentID   string `json:"parent_id,omitempty"`
	// Host is where it is; a task may hold worktrees on several.
	Host string `json:"host,omitempty"`
	Name string `json:"name"` // for people: the last element of the path
}

// RemoveWorktreeInput is the input of RemoveWorktree.
type RemoveWorktreeInput struct {
	Step       Step   `json:"step"`
	WorktreeID string `json:"worktree_id"`
}

// RemoveWorktreeResult is the result of RemoveWorktree. What was kept or refused
// is a result, not an error.
type RemoveWorktreeResult struct {
	Worktree WorktreeResult `json:"worktree"`
	// Reopened lists ancestors that were kept only for this worktree and are to
	// be removed now; ReleaseLeases answers them as a plan.
	Reopened []string `json:"reopened,omitempty"`
}

// ClearResourcesInput is the input of ClearAgentResources.
type ClearResourcesInput struct {
	Step        Step `json:"step"`
	SecretsOnly bool `json:"secrets_only,omitempty"`
}

// ClearResourcesResult is the result of ClearAgentResources.
type ClearResourcesResult struct {
	Superseded bool            `json:"superseded,omitempty"`
	Resources  ResourcesResult `json:"resources"`
	// Refused lists what was never ours to remove, with its code.
	Refused []string `json:"refused,omitempty"`
	Code    Code     `json:"code,omitempty"`
}

// ParkInput is the input of ParkFinalization.
type ParkInput struct {
	Step    Step    `json:"step"`
	Reason  string  `json:"reason"`
	Failure Failure `json:"failure"`
}

// ParkResult is the result of ParkFinalization.
type ParkResult struct {
	// Superseded: a newer round or generation has begun; begin again.
	Superseded bool   `json:"superseded,omitempty"`
	Result     Result `json:"result"`
}

// TaskSessionsInput is the input of TerminateTaskSessions: the sessions after
// this id.
type TaskSessionsInput struct {
	Step  Step   `json:"step"`
	After string `json:"after,omitempty"`
}

// TaskSessionsResult lists, by id, up to MaxListed sessions of a closed task
// whose finalization is not finished. All that were live are terminated by now.
type TaskSessionsResult struct {
	Superseded bool             `json:"superseded,omitempty"`
	Sessions   []TaskSessionRef `json:"sessions,omitempty"`
	More       bool             `json:"more,omitempty"`
}

// TaskSessionRef is one of them.
type TaskSessionRef struct {
	SessionID  string `json:"session_id"`
	Generation int64  `json:"generation"`
	// RetriedRound is the round that a retry has begun and that a run which waits
	// has to be told of; 0 if there is none.
	RetriedRound int64 `json:"retried_round,omitempty"`
}

// FinishResult is the result of FinishFinalization.
type FinishResult struct {
	// Superseded: a newer round or generation has begun; begin again.
	Superseded bool `json:"superseded,omitempty"`
	// Again: the session is terminated at a newer generation; go on with it.
	Again  bool   `json:"again,omitempty"`
	Result Result `json:"result"`
}

// CheckHostResult says whether a host's worker was seen lately.
type CheckHostResult struct {
	SeenLately bool `json:"seen_lately"`
}

// Progress is the heartbeat of the steps that touch a machine.
type Progress struct {
	Step  string `json:"step"` // what is being done, for people
	Files int64  `json:"files,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
	// TotalFiles is 0 while it is not known.
	TotalFiles int64 `json:"total_files,omitempty"`
}
