package activities

import (
	"context"
	"fmt"
	"os"

	"unwind/internal/fault"
	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
)

// ReopenTask makes an archived task active again and answers the worktrees that
// are to be made. Non-retryable: what the store refuses.
func (f *Facts) ReopenTask(ctx context.Context, in teardown.UnarchiveTaskInput) (teardown.UnarchivePlan, error) {
	plan, err := f.Store.ReopenTask(ctx, in.TaskID)
	fault.Point("task reopened")
	plan.Policy = f.Policy
	return plan, failure(err)
}

// RecreateWorktree makes a worktree from its branch, under its path's lock. One
// that should be there is seen, and not made: what it held is not on its branch.
// It is worktree_missing (non-retryable) if it is not at its path.
func (h *Host) RecreateWorktree(ctx context.Context, in teardown.RecreateWorktreeInput) (teardown.RecreateWorktreeResult, error) {
	work, a := begin(ctx, "Waiting for the worktree's lock")
	defer a.stop()
	result, err := h.recreateWorktree(work, a, in)
	return result, failure(err)
}

func (h *Host) recreateWorktree(ctx context.Context, a *attempt, in teardown.RecreateWorktreeInput) (teardown.RecreateWorktreeResult, error) {
	var nothing teardown.RecreateWorktreeResult
	registered, err := h.Store.Worktree(ctx, in.WorktreeID)
	if err != nil {
		return nothing, err
	}
	held, err := h.Locks.Path(ctx, registered.Path, a.lockWait(h.LockWait))
	if err != nil {
		return nothing, err
	}
	defer held.Release()
	// Read again under the lock: it may have been given up meanwhile.
	if registered, err = h.Store.Worktree(ctx, in.WorktreeID); err != nil {
		return nothing, err
	}
	switch registered.State {
	case store.WorktreeCreating:
	case store.WorktreeActive:
		err := h.seeWorktree(registered)
		return teardown.RecreateWorktreeResult{Made: err == nil}, err
	default:
		return nothing, nil
	}
	made, err := h.Worktrees.Recreate(ctx, target(registered), registered.Branch,
		worktree.Hooks{Progress: a.report, Inherit: []*os.File{held.File()}})
	if err != nil {
		return nothing, err
	}
	fault.Point("worktree made")
	active, err := h.Store.WorktreeMade(ctx, in.WorktreeID, made.Nonce)
	return teardown.RecreateWorktreeResult{Made: active}, err
}

func (h *Host) seeWorktree(w store.Worktree) error {
	at, err := h.Worktrees.Locate(worktree.Target{Repository: w.Repository, Path: w.Path, Nonce: w.Nonce}, w.QuarantinePath)
	if err == nil && at != worktree.AtPath {
		err = &teardown.Error{Code: teardown.CodeWorktreeMissing, Message: fmt.Sprintf(
			"the worktree %s was kept, but is not at its path any more; move it back (`git worktree move`), or archive the task and unarchive it again, which makes it from its branch", w.Path)}
	}
	return err
}
