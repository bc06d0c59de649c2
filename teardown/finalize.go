package teardown

import "time"

// Values of FinalizeSessionInput.OnParked.
const (
	// OnParkedWait keeps the workflow open until a retry; the default.
	OnParkedWait = "wait"
	// OnParkedReturn returns the outcome preserved or failed, for a parent that
	// must not block.
	OnParkedReturn = "return"
)

// FinalizeSessionInput starts FinalizeSession.
type FinalizeSessionInput struct {
	SessionID string `json:"session_id"`
	OnParked  string `json:"on_parked,omitempty"`
	// Generation, when set, is the one that the caller terminated. A waiter that
	// gets the result of an older one starts again.
	Generation int64 `json:"generation,omitempty"`
	// Carried is set by unwind itself when it continues as new.
	Carried *Carried `json:"carried,omitempty"`
}

// FinalizeTaskInput starts FinalizeTask. The fields are those of
// FinalizeSessionInput.
type FinalizeTaskInput struct {
	TaskID     string   `json:"task_id"`
	OnParked   string   `json:"on_parked,omitempty"`
	Generation int64    `json:"generation,omitempty"`
	Carried    *Carried `json:"carried,omitempty"`
}

// Carried is what one run hands to the next when its history grows too long.
type Carried struct {
	Generation int64          `json:"generation"`
	Round      int64          `json:"round"`
	Pending    []RetryRequest `json:"pending,omitempty"`
	Handled    []string       `json:"handled,omitempty"`
}

// RetryRequest is the payload of RetrySignal. The zero value is a plain retry.
type RetryRequest struct {
	// RequestID is any string by which the sender finds its request again among
	// Status.HandledRequests.
	RequestID string `json:"request_id,omitempty"`
	// SaveChanges commits what is uncommitted to a ref of unwind's, then removes.
	SaveChanges bool `json:"save_changes,omitempty"`
	// RuntimeConfirmedGone: RequestedBy has seen that the runtime is gone. It
	// replaces the probe; survivors are still looked for.
	RuntimeConfirmedGone bool `json:"runtime_confirmed_gone,omitempty"`
	// IfParked: do nothing unless the finalization is parked.
	IfParked    bool   `json:"if_parked,omitempty"`
	RequestedBy string `json:"requested_by,omitempty"`
	// Round is the round that the sender already recorded in the database; 0 if
	// it recorded none, as when the signal is sent from Temporal's own tools.
	Round int64 `json:"round,omitempty"`
}

// Outcome says how a finalization ended, or why it did not.
type Outcome string

const (
	OutcomeFinalized  Outcome = "finalized"
	OutcomePreserved  Outcome = "preserved"
	OutcomeFailed     Outcome = "failed"
	OutcomeRestored   Outcome = "restored"
	OutcomeDeferred   Outcome = "deferred"
	OutcomeSuperseded Outcome = "superseded"
)

// Disposition says what became of a leased worktree.
type Disposition string

const (
	DispositionPending       Disposition = "pending"
	DispositionRemoved       Disposition = "removed"
	DispositionAlreadyGone   Disposition = "already_gone"
	DispositionRetained      Disposition = "retained"
	DispositionPreserved     Disposition = "preserved"
	DispositionRefused       Disposition = "refused"
	DispositionFailed        Disposition = "failed"
	DispositionNotApplicable Disposition = "not_applicable"
	// DispositionSuperseded is never stored: the step found that a newer
	// generation or round has taken over, and touched nothing.
	DispositionSuperseded Disposition = "superseded"
)

// Final reports whether nothing is left to do for a worktree with this
// disposition.
func (d Disposition) Final() bool {
	switch d {
	case DispositionRemoved, DispositionAlreadyGone, DispositionRetained:
		return true
	}
	return false
}

// RuntimeOutcome says what became of a runtime.
type RuntimeOutcome string

const (
	RuntimePending     RuntimeOutcome = "pending"
	RuntimeReleased    RuntimeOutcome = "released"
	RuntimeAlreadyGone RuntimeOutcome = "already_gone"
	RuntimeRefused     RuntimeOutcome = "refused"
	RuntimeFailed      RuntimeOutcome = "failed"
	// RuntimeSuperseded is never stored; see DispositionSuperseded.
	RuntimeSuperseded RuntimeOutcome = "superseded"
)

// Released reports whether the runtime is confirmed gone.
func (o RuntimeOutcome) Released() bool { return o == RuntimeReleased || o == RuntimeAlreadyGone }

// RuntimeResult is one runtime in a Result.
type RuntimeResult struct {
	ID       string         `json:"id,omitempty"`
	Kind     string         `json:"kind"`
	Role     string         `json:"role"`
	Outcome  RuntimeOutcome `json:"outcome"`
	Code     Code           `json:"code"`
	Details  []string       `json:"details,omitempty"`
	Snapshot string         `json:"snapshot,omitempty"`
}

// WorktreeResult is one worktree in a Result. Details holds at most MaxDetails
// entries and, beyond them, one that counts the rest. Bytes is what the
// worktree holds on disk, if it stays.
type WorktreeResult struct {
	ID          string      `json:"id,omitempty"`
	Path        string      `json:"path"`
	Disposition Disposition `json:"disposition"`
	Code        Code        `json:"code"`
	Retryable   bool        `json:"retryable"`
	Details     []string    `json:"details"`
	Bytes       int64       `json:"bytes"`
	SavedRef    string      `json:"saved_ref"`
}

// Bounds of what one object lists, so that results and statuses stay far below
// Temporal's payload limit (2 MB).
const (
	MaxDetails = 20
	MaxListed  = 50
)

// ResourcesResult counts agent resources.
type ResourcesResult struct {
	Cleared int `json:"cleared"`
	Kept    int `json:"kept"`
	// Refused are those of Kept that are not ours to remove.
	Refused int `json:"refused,omitempty"`
}

// Failure is why a finalization is parked or failed.
type Failure struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// SessionResult is one session of a task in the task's Result.
type SessionResult struct {
	SessionID  string `json:"session_id"`
	Generation int64  `json:"generation"`
	// Outcome is empty while its finalization is under way.
	Outcome      Outcome `json:"outcome"`
	ParkedReason string  `json:"parked_reason,omitempty"`
	Failure      Failure `json:"failure"`
}

// Result is what FinalizeSession and FinalizeTask return, and what `unwind
// terminate --wait --json` prints.
type Result struct {
	SessionID string `json:"session_id"`
	// TaskID is set instead of SessionID in the result of a task.
	TaskID     string           `json:"task_id,omitempty"`
	Generation int64            `json:"generation"`
	Outcome    Outcome          `json:"outcome"`
	Runtimes   []RuntimeResult  `json:"runtimes"`
	Worktrees  []WorktreeResult `json:"worktrees"`
	// WorktreesTotal counts all worktrees when Worktrees lists only the first
	// MaxListed of them.
	WorktreesTotal int `json:"worktrees_total,omitempty"`
	// Sessions are those of a task, the first MaxListed by id; SessionsTotal counts
	// all when there are more.
	Sessions      []SessionResult `json:"sessions,omitempty"`
	SessionsTotal int             `json:"sessions_total,omitempty"`
	Resources     ResourcesResult `json:"resources"`
	Failure       Failure         `json:"failure"`
	// Attempts is how often the step that was tried most was tried in the newest
	// round.
	Attempts   int        `json:"attempts"`
	StartedAt  *time.Time `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
}

// Phase is the part of the finalization that is under way.
type Phase string

const (
	PhaseStarting  Phase = "starting"
	PhaseSessions  Phase = "finalizing_sessions" // of a task only
	PhaseRuntimes  Phase = "destroying_runtimes"
	PhaseWorktrees Phase = "removing_worktrees"
	PhaseResources Phase = "clearing_resources"
	PhaseParked    Phase = "parked"
	PhaseFinished  Phase = "finished"
)

// Status answers StatusQuery.
type Status struct {
	SessionID string `json:"session_id"`
	// TaskID is set instead of SessionID in the status of a task.
	TaskID       string `json:"task_id,omitempty"`
	Host         string `json:"host"`
	Generation   int64  `json:"generation"`
	Round        int64  `json:"round"`
	Phase        Phase  `json:"phase"`
	ParkedReason string `json:"parked_reason,omitempty"`
	// Result is what is known so far; its Outcome is empty while steps run.
	Result Result `json:"result"`
	// Running lists the steps under way, by their summary.
	Running         []string `json:"running,omitempty"`
	PendingRequests int      `json:"pending_requests"`
	// HandledRequests lists the ids of the newest MaxListed retry requests that
	// a round has taken up.
	HandledRequests []string `json:"handled_requests,omitempty"`
}

// Policy bounds the retries and the time of a finalization's steps. Durations
// are in milliseconds.
type Policy struct {
	InitialIntervalMS int64 `json:"initial_interval_ms"` // before the second attempt
	MaximumIntervalMS int64 `json:"maximum_interval_ms"` // cap of the doubling backoff
	MaximumAttempts   int32 `json:"maximum_attempts"`
	StepTimeoutMS     int64 `json:"step_timeout_ms"`      // one attempt
	HeartbeatMS       int64 `json:"heartbeat_timeout_ms"` // silence that ends an attempt
	HostTimeoutMS     int64 `json:"host_timeout_ms"`      // schedule-to-start on a host's queue
	Parallel          int   `json:"parallel"`             // worktrees removed at the same time
}

// ParkedOutcome is the outcome of a finalization that does not wait although it
// is parked for this reason.
func ParkedOutcome(reason string) Outcome {
	switch reason {
	case ReasonPreserved, ReasonRefused, ReasonSessionPreserved:
		return OutcomePreserved
	case ReasonSessionHeld:
		return OutcomeDeferred
	}
	return OutcomeFailed
}
