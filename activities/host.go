package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"unwind/internal/lock"
	"unwind/internal/resource"
	"unwind/internal/runtime"
	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
)

// Host are the steps that touch the machine they run on.
type Host struct {
	Store     *store.Store
	Locks     lock.Dir
	Worktrees *worktree.Engine
	Runtimes  runtime.Set
	Resources resource.Cleaner
	// SnapshotDir is where the scrollback of a runtime is kept.
	SnapshotDir string
	// TmuxSocket is where sessions are started that name no server of their own.
	TmuxSocket string
	// LockWait is how long a step waits for a lock before it answers busy.
	LockWait time.Duration
}

// note records how the attempt ended as a fact and answers the error for
// Temporal. A database that is away is no reason to lose the step's own error.
func (h *Host) note(ctx context.Context, a *attempt, step teardown.Step, err error, runtimeID, worktreeID string) error {
	if err == nil {
		if a.info.Attempt > 1 {
			h.noteDone(ctx, a, step, runtimeID, worktreeID)
		}
		return nil
	}
	problem := coded(err)
	now := time.Now()
	recorded := store.Attempt{
		Number: int(a.info.Attempt), At: now, Next: a.next(now, problem.Retryable),
		Code: problem.Code, Message: problem.Error(),
		RuntimeID: runtimeID, WorktreeID: worktreeID,
	}
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), factTimeout)
	defer cancel()
	if noteErr := h.Store.AttemptFailed(brief, step, recorded); noteErr != nil {
		activity.GetLogger(ctx).Warn("The failed attempt could not be recorded", "error", noteErr)
	}
	return failure(err)
}

func (h *Host) noteDone(ctx context.Context, a *attempt, step teardown.Step, runtimeID, worktreeID string) {
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), factTimeout)
	defer cancel()
	done := store.Attempt{Number: int(a.info.Attempt), At: time.Now(), RuntimeID: runtimeID, WorktreeID: worktreeID}
	if err := h.Store.AttemptDone(brief, step, done); err != nil {
		activity.GetLogger(ctx).Warn("The attempt could not be recorded", "error", err)
	}
}

// factTimeout bounds one short transaction.
const factTimeout = 15 * time.Second
