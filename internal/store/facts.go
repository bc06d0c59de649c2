package store

import (
	"time"

	"unwind/teardown"
)

// Host is a machine that holds runtimes and worktrees.
type Host struct {
	ID       string    `db:"id"`
	Name     string    `db:"name"`
	Version  string    `db:"version"` // of unwind, as the worker reported it
	LastSeen time.Time `db:"last_seen"`
}

// SeenWithin reports whether the host was seen within this time of the given one.
// That may be later, for clocks differ; by more than that, it says nothing.
func (h Host) SeenWithin(limit time.Duration, at time.Time) bool {
	return at.Sub(h.LastSeen).Abs() < limit
}

// States of a task.
const (
	TaskActive   = "active"
	TaskArchived = "archived"
	TaskDeleted  = "deleted"
)

// Task groups sessions and holds worktrees beyond them.
type Task struct {
	ID string `db:"id"`
	// Generation begins at 1, or above that of an earlier task of this id; to
	// unarchive adds one.
	Generation int64 `db:"generation"`
	// State is what the task is, or is to be once its finalization is finished.
	State string `db:"state"`
	// TerminatedAt is the barrier; nil while active.
	TerminatedAt *time.Time `db:"terminated_at"`
	CreatedAt    time.Time  `db:"created_at"`
	UpdatedAt    time.Time  `db:"updated_at"`
}

// Closed reports whether the task's barrier is set.
func (t Task) Closed() bool { return t.TerminatedAt != nil || t.State != TaskActive }

// Session is one execution of an agent.
type Session struct {
	ID     string `db:"id"`
	Host   string `db:"host"`
	TaskID string `db:"task_id"` // "" outside of a task
	// Generation begins at 1; a restore adds one.
	Generation int64 `db:"generation"`
	// TerminatedAt is the durable intent to release; nil while live.
	TerminatedAt      *time.Time `db:"terminated_at"`
	TerminationSource string     `db:"termination_source"`
	HeldUntil         *time.Time `db:"held_until"`
	HeldBy            string     `db:"held_by"`
	ManifestHash      string     `db:"manifest_hash"`
	CreatedAt         time.Time  `db:"created_at"`
	UpdatedAt         time.Time  `db:"updated_at"`
}

// Held reports whether the finalizer is kept away at the given time: until
// HeldUntil, or until further notice if somebody holds it without an end.
func (s Session) Held(now time.Time) bool {
	if s.HeldUntil != nil {
		return now.Before(*s.HeldUntil)
	}
	return s.HeldBy != ""
}

// holder is the session at its generation.
func (s Session) holder() Holder {
	return Holder{Kind: HolderSession, ID: s.ID, Generation: s.Generation}
}

// TerminatedAtGeneration reports whether the session is terminated and still at
// the given generation.
func (s Session) TerminatedAtGeneration(generation int64) bool {
	return s.TerminatedAt != nil && s.Generation == generation
}

// States of a runtime.
const (
	RuntimeCreating = "creating"
	RuntimeRunning  = "running"
	RuntimeReleased = "released"
)

// Runtime is what an agent, or something beside it, runs in.
type Runtime struct {
	ID           string                 `db:"id"`
	SessionID    string                 `db:"session_id"`
	Generation   int64                  `db:"generation"`
	Kind         string                 `db:"kind"`
	Role         string                 `db:"role"`
	Handle       JSON[teardown.Runtime] `db:"handle"`
	State        string                 `db:"state"`
	SnapshotPath string                 `db:"snapshot_path"`
	ReleasedAt   *time.Time             `db:"released_at"`
	ReleasedHow  string                 `db:"released_how"`
	// Outcome, Code, Details and Message are what the newest attempt found.
	Outcome teardown.RuntimeOutcome `db:"outcome"`
	Code    teardown.Code           `db:"code"`
	Details JSON[[]string]          `db:"details"`
	Message string                  `db:"message"`
}

// States of a worktree.
const (
	WorktreeCreating  = "creating"
	WorktreeActive    = "active"
	WorktreeDeleting  = "deleting"
	WorktreePreserved = "preserved"
	WorktreeRemoved   = "removed"
)

// Worktree is one linked git worktree: the instance, not the path.
type Worktree struct {
	ID         string `db:"id"`
	Host       string `db:"host"`
	Repository string `db:"repository"`
	Path       string `db:"path"`
	Branch     string `db:"branch"`
	ParentID   string `db:"parent_id"` // "" if it sits in no other worktree
	Nonce      string `db:"nonce"`
	State      string `db:"state"`
	// The remover is who may remove it while it is deleting, and who was the
	// last to try while it is preserved.
	RemoverKind       string     `db:"remover_kind"`
	RemoverID         string     `db:"remover_id"`
	RemoverGeneration int64      `db:"remover_generation"`
	QuarantinePath    string     `db:"quarantine_path"` // "" unless it was moved aside, or is about to be
	CondemnedAt       *time.Time `db:"condemned_at"`
	UpdatedAt         time.Time  `db:"updated_at"`
}

// Remover is who may remove the worktree.
func (w Worktree) Remover() Holder {
	return Holder{Kind: w.RemoverKind, ID: w.RemoverID, Generation: w.RemoverGeneration}
}

// Kinds of holders.
const (
	HolderSession = "session"
	HolderTask    = "task"
)

// Holder is a session or a task at one generation.
type Holder struct {
	Kind       string `db:"holder_kind"`
	ID         string `db:"holder_id"`
	Generation int64  `db:"generation"`
}

// HolderOf is the holder whose finalization the step belongs to.
func HolderOf(step teardown.Step) Holder {
	if step.TaskID != "" {
		return Holder{Kind: HolderTask, ID: step.TaskID, Generation: step.Generation}
	}
	return Holder{Kind: HolderSession, ID: step.SessionID, Generation: step.Generation}
}

// Lease is a holder's claim on a worktree. It is held while ReleasedAt is nil.
type Lease struct {
	WorktreeID string `db:"worktree_id"`
	Holder
	AcquiredAt  time.Time            `db:"acquired_at"`
	ReleasedAt  *time.Time           `db:"released_at"`
	Disposition teardown.Disposition `db:"disposition"`
	// Round is the round of the finalization that decided the disposition.
	Round    int64          `db:"round"`
	Code     teardown.Code  `db:"code"`
	Details  JSON[[]string] `db:"details"`
	Bytes    int64          `db:"bytes"`
	SavedRef string         `db:"saved_ref"`
}

// Resource is a file, directory, FIFO or secret of a session's agent.
type Resource struct {
	ID         string     `db:"id"`
	SessionID  string     `db:"session_id"`
	Generation int64      `db:"generation"`
	Kind       string     `db:"kind"`
	Path       string     `db:"path"`
	ClearedAt  *time.Time `db:"cleared_at"`
}

// Finalization is the record of facts about releasing one holder at one
// generation.
type Finalization struct {
	Holder
	// Round begins at 1; a retry adds one.
	Round         int64  `db:"round"`
	SaveRequested bool   `db:"save_requested"`
	RequestedBy   string `db:"requested_by"` // who asked for this round; "" for the first
	// RuntimeConfirmedGone: whoever asked for this round has seen that the
	// runtimes are gone.
	RuntimeConfirmedGone bool       `db:"runtime_confirmed_gone"`
	WorkflowID           string     `db:"workflow_id"` // information, never a lock
	StartedAt            *time.Time `db:"started_at"`  // nil if a retry was recorded before the first run
	RuntimeReleasedAt    *time.Time `db:"runtime_released_at"`
	ResourcesClearedAt   *time.Time `db:"resources_cleared_at"`
	// AttemptCount is how often the step that was tried most was tried in this
	// round; the others are about the failure that is shown.
	AttemptCount   int              `db:"attempt_count"`
	AttemptStep    string           `db:"attempt_step"`
	AttemptNumber  int              `db:"attempt_number"`
	LastAttemptAt  *time.Time       `db:"last_attempt_at"`
	NextAttemptAt  *time.Time       `db:"next_attempt_at"`
	FailureCode    teardown.Code    `db:"failure_code"`
	FailureMessage string           `db:"failure_message"`
	ParkedAt       *time.Time       `db:"parked_at"`
	ParkedReason   string           `db:"parked_reason"`
	Outcome        teardown.Outcome `db:"outcome"`
	FinishedAt     *time.Time       `db:"finished_at"`
}
