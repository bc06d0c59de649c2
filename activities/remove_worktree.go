package activities

import (
	"context"
	"os"

	"unwind/internal/fault"
	"unwind/internal/lock"
	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
)

// RemoveWorktree removes one worktree that nobody holds, under its path's lock,
// or answers why it stays. Preserved, refused, already gone and retained are
// results; what may pass by itself is a retryable error.
func (h *Host) RemoveWorktree(ctx context.Context, in teardown.RemoveWorktreeInput) (teardown.RemoveWorktreeResult, error) {
	work, a := begin(ctx, "Waiting for the worktree's lock")
	defer a.stop()
	result, err := h.removeWorktree(work, a, in)
	return result, h.note(work, a, in.Step, err, "", in.WorktreeID)
}

func (h *Host) removeWorktree(ctx context.Context, a *attempt, in teardown.RemoveWorktreeInput) (teardown.RemoveWorktreeResult, error) {
	var nothing teardown.RemoveWorktreeResult
	registered, err := h.Store.Worktree(ctx, in.WorktreeID)
	if err != nil {
		return nothing, err
	}
	held, err := h.Locks.Path(ctx, registered.Path, a.lockWait(h.LockWait))
	if err != nil {
		return nothing, err
	}
	defer held.Release()
	claim, err := h.Store.Claim(ctx, in.Step, in.WorktreeID)
	if err != nil {
		return nothing, err
	}
	if !claim.Go {
		return teardown.RemoveWorktreeResult{Worktree: claim.Result}, nil
	}
	fault.Point("claimed")
	report, err := h.remove(ctx, a, in.Step, claim, held)
	if err != nil {
		return nothing, err
	}
	return h.record(ctx, in, report)
}

func (h *Host) remove(ctx context.Context, a *attempt, step teardown.Step, claim store.Claim, held *lock.Held) (worktree.Report, error) {
	claimed := claim.Worktree
	hooks := worktree.Hooks{Name: claimed.ID, Progress: a.report, Inherit: []*os.File{held.File()}}
	if claim.SaveChanges {
		hooks.SaveRef = worktree.SavedRef(savedFor(step), step.Generation, claimed.ID)
	}
	return h.removeRegistered(ctx, claimed, &journal{store: h.Store, step: step, row: claimed, savedRef: claim.SavedRef}, hooks)
}

// removeRegistered removes the very worktree that a claimed row is about.
func (h *Host) removeRegistered(ctx context.Context, row store.Worktree, journal worktree.Journal, hooks worktree.Hooks) (worktree.Report, error) {
	if row.Nonce == "" && row.QuarantinePath == "" {
		// Nothing was ever marked as this one: what is at the path is somebody else's.
		return worktree.Report{Path: row.Path, Disposition: teardown.DispositionAlreadyGone}, nil
	}
	// One whose making was cut off before it was marked is ours all the same.
	if _, err := h.Worktrees.Adopt(ctx, target(row)); err != nil {
		return worktree.Report{}, err
	}
	return h.Worktrees.Remove(ctx, target(row), journal, hooks)
}

// savedFor names the holder in a saved ref. No session's id has such a sign.
func savedFor(step teardown.Step) string {
	if step.TaskID != "" {
		return "task=" + step.TaskID
	}
	return step.SessionID
}

// record writes what the disk says by now; it is the last write of a removal.
func (h *Host) record(ctx context.Context, in teardown.RemoveWorktreeInput, report worktree.Report) (teardown.RemoveWorktreeResult, error) {
	result := teardown.WorktreeResult{
		ID: in.WorktreeID, Path: report.Path, Disposition: report.Disposition, Code: report.Code,
		Retryable: report.Retryable, Details: report.Details, Bytes: report.Bytes, SavedRef: report.SavedRef,
	}
	switch report.Disposition {
	case teardown.DispositionRemoved, teardown.DispositionAlreadyGone:
		fault.Point("worktree removed")
		result.Bytes = 0
		reopened, err := h.Store.Removed(ctx, in.Step, in.WorktreeID, result)
		fault.Point("removal recorded")
		return teardown.RemoveWorktreeResult{Worktree: result, Reopened: reopened}, err
	case teardown.DispositionPreserved, teardown.DispositionRefused:
		fault.Point("worktree kept")
		written, err := h.Store.Preserved(ctx, in.Step, in.WorktreeID, result, report.Quarantine != "")
		if err == nil && !written {
			result.Disposition = teardown.DispositionSuperseded
		}
		return teardown.RemoveWorktreeResult{Worktree: result}, err
	}
	return teardown.RemoveWorktreeResult{}, &teardown.Error{
		Code: report.Code, Message: report.Message, Retryable: true, Details: report.Details}
}

// journal keeps the facts of one removal in the worktree's row.
type journal struct {
	store *store.Store
	step  teardown.Step
	row   store.Worktree
	// savedRef is what an earlier attempt saved.
	savedRef string
}

func (j *journal) Quarantine() (string, bool) {
	return j.row.QuarantinePath, j.row.CondemnedAt != nil
}

func (j *journal) SavedRef() string { return j.savedRef }

func (j *journal) Saved(ctx context.Context, ref string) error {
	fault.Point("saved")
	err := j.store.Saved(ctx, j.step, j.row.ID, ref)
	fault.Point("save recorded")
	return err
}

func (j *journal) MovingAside(ctx context.Context, quarantinePath string) error {
	err := j.store.MovingAside(ctx, j.step, j.row.ID, quarantinePath)
	fault.Point("quarantine recorded")
	return err
}

func (j *journal) Condemned(ctx context.Context) error {
	fault.Point("moved aside")
	err := j.store.Condemned(ctx, j.row.ID)
	fault.Point("condemned")
	return err
}
