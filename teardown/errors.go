package teardown

import (
	"errors"
	"fmt"
)

// Code says in one word what was found or what went wrong. Codes are stable.
type Code string

// A worktree with one of these codes is preserved: something could be lost, a
// person decides.
const (
	CodeModified            Code = "modified"
	CodeStaged              Code = "staged"
	CodeUntracked           Code = "untracked"
	CodeIgnoredPrecious     Code = "ignored_precious"
	CodeHiddenChanges       Code = "hidden_changes"
	CodeHiddenData          Code = "hidden_data"
	CodeOperationInProgress Code = "operation_in_progress"
	CodeNestedRepository    Code = "nested_repository"
	CodeSubmodule           Code = "submodule"
	CodeLocked              Code = "locked"
	CodeChildPreserved      Code = "child_preserved"
	CodeMountPoint          Code = "mount_point"
	CodeIdentityMismatch    Code = "identity_mismatch"
	CodeNotRegistered       Code = "not_registered"
	CodeRepositoryMissing   Code = "repository_missing"
	CodeCannotInspect       Code = "cannot_inspect"
	CodeDebris              Code = "debris"
)

// A worktree or resource with one of these codes is refused: it is never ours
// to remove.
const (
	CodeMainWorktree Code = "main_worktree"
	CodeUnsafeTarget Code = "unsafe_target"
	CodeOutsideRoots Code = "outside_roots"
)

// These fail an attempt; trying again may help.
const (
	CodeInUse            Code = "in_use"
	CodeIndexLocked      Code = "index_locked"
	CodePermissionDenied Code = "permission_denied"
	CodeIOError          Code = "io_error"
	CodeTimeout          Code = "timeout"
	CodeGitFailed        Code = "git_failed"
	// CodeBusy: somebody else holds the lock that this step needs.
	CodeBusy Code = "busy"
	// CodeHostUnreachable: no worker of the session's host takes work.
	CodeHostUnreachable Code = ReasonHostUnreachable
	// CodeDatabaseUnavailable never parks a finalization.
	CodeDatabaseUnavailable Code = "database_unavailable"
	CodeTemporalUnavailable Code = "temporal_unavailable"
)

// Codes of runtimes. Unreachable, StillAlive and Survivors are retryable; the
// others are refusals.
const (
	CodeRuntimeUnreachable Code = "runtime_unreachable"
	CodeRuntimeStillAlive  Code = "runtime_still_alive"
	CodeRuntimeSurvivors   Code = "runtime_survivors"
	CodeRuntimeIdentity    Code = "runtime_identity"
	CodeRuntimeUnroutable  Code = "runtime_unroutable"
	CodeRuntimeOccupied    Code = "runtime_occupied"
	// CodeRuntimeExited: what was to be started ended at once.
	CodeRuntimeExited Code = "runtime_exited"
)

// Codes of requests that cannot be carried out as they stand.
const (
	CodeInvalidID       Code = "invalid_id"
	CodeInvalidManifest Code = "invalid_manifest"
	CodePathNotUTF8     Code = "path_not_utf8"
	CodeSessionNotFound Code = "session_not_found"
	CodeSessionLive     Code = "session_live"
	// CodeSessionTerminated: only a live session can do this, also if it was
	// terminated while it was being started.
	CodeSessionTerminated Code = "session_terminated"
	// CodePathOccupied: something is where a worktree or a resource is to be.
	CodePathOccupied     Code = "path_occupied"
	CodeConflict         Code = "conflict"
	CodeTaskClosed       Code = "task_closed"
	CodeTaskNotFound     Code = "task_not_found"
	CodeTaskActive       Code = "task_active"
	CodeSchemaVersion    Code = "schema_version"
	CodeForeignHost      Code = "foreign_host"
	CodeWorktreeDeleting Code = "worktree_deleting"
	CodeWorktreeRemoved  Code = "worktree_removed"
	CodeWorktreeMissing  Code = "worktree_missing"
	CodeBranchMissing    Code = "branch_missing"
	// CodeSnapshotMissing: no scrollback of the session is kept (any more).
	CodeSnapshotMissing Code = "snapshot_missing"
	CodeInvalidConfig   Code = "invalid_config"
	CodeInternal        Code = "internal"
)

// Reasons for which a finalization is parked.
const (
	ReasonPreserved         = "preserved"
	ReasonRefused           = "refused"
	ReasonRuntimeRefused    = "runtime_refused"
	ReasonAttemptsExhausted = "attempts_exhausted"
	ReasonHostUnreachable   = "host_unreachable"
	ReasonCancelled         = "cancelled"
	// A task waits for one of its sessions: its finalization kept something, failed,
	// or is held off.
	ReasonSessionPreserved = "session_preserved"
	ReasonSessionFailed    = "session_failed"
	ReasonSessionHeld      = "session_held"
)

// Error is the one error type that crosses unwind's packages: a code to act on
// and a sentence for a person that says what to do. Match it with errors.As.
type Error struct {
	Code Code
	// Message is a full sentence without the code.
	Message string
	// Retryable: the same call may succeed later without anybody's help.
	Retryable bool
	// Details names what was found: paths, commits or processes.
	Details []string
	Cause   error
}

func (e *Error) Error() string {
	if e.Cause == nil {
		return e.Message
	}
	return fmt.Sprintf("%s: %v", e.Message, e.Cause)
}

func (e *Error) Unwrap() error { return e.Cause }

// CodeOf returns the code of the first Error in err's chain, or "" if there is
// none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
