package activities

import (
	"context"
	"os"

	"unwind/internal/fault"
	"unwind/internal/resource"
	"unwind/internal/runtime"
	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
)

// ConvergeWorktree finishes a worktree that no finalization will: it is removed
// by the same look, rename and second look as any other, or stays. One that was
// kept before is only looked at, and taken if it has become clean or is gone.
func (h *Host) ConvergeWorktree(ctx context.Context, worktreeID string) (teardown.WorktreeResult, error) {
	work, a := begin(ctx, "Waiting for the worktree's lock")
	defer a.stop()
	result, err := h.convergeWorktree(work, a, worktreeID)
	return result, failure(err)
}

func (h *Host) convergeWorktree(ctx context.Context, a *attempt, worktreeID string) (teardown.WorktreeResult, error) {
	registered, err := h.Store.Worktree(ctx, worktreeID)
	if err != nil {
		return teardown.WorktreeResult{}, err
	}
	held, err := h.Locks.Path(ctx, registered.Path, a.lockWait(h.LockWait))
	if err != nil {
		return teardown.WorktreeResult{}, err
	}
	defer held.Release()
	// Read again under the lock.
	if registered, err = h.Store.Worktree(ctx, worktreeID); err != nil {
		return teardown.WorktreeResult{}, err
	}
	if registered.State == store.WorktreePreserved && registered.QuarantinePath == "" {
		report, err := h.Worktrees.Inspect(ctx, target(registered))
		if err != nil {
			return teardown.WorktreeResult{}, err
		}
		if !goes(report.Disposition) {
			result := h.strayResult(registered, report)
			return result, h.Store.LookedAtStray(ctx, result)
		}
	}
	claim, err := h.Store.ClaimStray(ctx, worktreeID)
	if err != nil || !claim.Go {
		return claim.Result, err
	}
	fault.Point("stray claimed")
	report, err := h.removeRegistered(ctx, claim.Worktree, &strayJournal{store: h.Store, row: claim.Worktree},
		worktree.Hooks{Name: worktreeID, Progress: a.report, Inherit: []*os.File{held.File()}})
	if err != nil {
		return teardown.WorktreeResult{}, err
	}
	return h.recordStray(ctx, claim.Worktree, report)
}

func target(w store.Worktree) worktree.Target {
	return worktree.Target{Repository: w.Repository, Path: w.Path, Nonce: w.Nonce}
}

func goes(d teardown.Disposition) bool {
	return d == teardown.DispositionRemoved || d == teardown.DispositionAlreadyGone
}

func (h *Host) recordStray(ctx context.Context, w store.Worktree, report worktree.Report) (teardown.WorktreeResult, error) {
	result := h.strayResult(w, report)
	switch {
	case goes(report.Disposition):
		fault.Point("stray removed")
		return result, h.Store.RemovedStray(ctx, w.ID)
	case report.Disposition == teardown.DispositionPreserved, report.Disposition == teardown.DispositionRefused:
		return result, h.Store.PreservedStray(ctx, result, report.Quarantine != "")
	}
	return result, &teardown.Error{Code: report.Code, Message: report.Message, Retryable: true, Details: report.Details}
}

func (h *Host) strayResult(w store.Worktree, report worktree.Report) teardown.WorktreeResult {
	return teardown.WorktreeResult{ID: w.ID, Path: w.Path, Disposition: report.Disposition, Code: report.Code,
		Retryable: report.Retryable, Details: bounded(report.Details), Bytes: report.Bytes}
}

// strayJournal keeps the facts of such a removal in the worktree's row.
type strayJournal struct {
	store *store.Store
	row   store.Worktree
}

func (j *strayJournal) Quarantine() (string, bool) {
	return j.row.QuarantinePath, j.row.CondemnedAt != nil
}

func (j *strayJournal) SavedRef() string { return "" }

// Saved is never called: nobody asked to save.
func (j *strayJournal) Saved(context.Context, string) error { return nil }

func (j *strayJournal) MovingAside(ctx context.Context, quarantinePath string) error {
	return j.store.MovingStrayAside(ctx, j.row.ID, quarantinePath)
}

func (j *strayJournal) Condemned(ctx context.Context) error {
	fault.Point("stray moved aside")
	return j.store.Condemned(ctx, j.row.ID)
}

// ReleaseVanished ends what is left of the runtimes of a session that has no row
// any more, clears its secrets, and gives up its leases; what nobody holds by
// then is finished by ConvergeWorktree. Its other resources are cleared once none
// of its worktrees is left. A runtime that a person has to decide about keeps all
// that: a non-retryable error with its code.
func (h *Host) ReleaseVanished(ctx context.Context, sessionID string) error {
	work, a := begin(ctx, "Waiting for the session's lock")
	defer a.stop()
	return failure(h.releaseVanished(work, a, sessionID))
}

func (h *Host) releaseVanished(ctx context.Context, a *attempt, sessionID string) error {
	held, err := h.Locks.Session(ctx, sessionID, a.lockWait(h.LockWait))
	if err != nil {
		return err
	}
	defer held.Release()
	left, vanished, err := h.Store.VanishedRuntimes(ctx, sessionID)
	if err != nil || !vanished {
		return err
	}
	var first error
	for _, registered := range left {
		if err := h.endVanished(ctx, a, registered); err != nil && first == nil {
			first = err
		}
	}
	if first != nil {
		return first
	}
	fault.Point("vanished runtimes ended")
	for _, step := range []func() error{
		func() error { return h.clearVanished(ctx, a, sessionID) }, // while its worktrees are there, its secrets alone
		func() error { return h.Store.ReleaseVanished(ctx, sessionID) },
	} {
		if err := step(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (h *Host) clearVanished(ctx context.Context, a *attempt, sessionID string) error {
	may, err := h.Store.VanishedResources(ctx, sessionID)
	if err != nil {
		return err
	}
	var first error
	for _, item := range may {
		a.doing("Clearing " + item.Kind)
		_, err := h.Resources.Clear(ctx, resource.Item{ID: item.ID, Kind: item.Kind, Path: item.Path}, a.report)
		if err == nil {
			err = h.Store.VanishedResourceCleared(ctx, item.ID)
		}
		if err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (h *Host) endVanished(ctx context.Context, a *attempt, registered store.Runtime) error {
	handle := registered.Handle.V
	kind, err := h.Runtimes.For(handle)
	if err == nil && registered.State == store.RuntimeCreating {
		handle, err = h.halfStarted(ctx, a, kind, handle)
	}
	if err != nil {
		return err
	}
	outcome, err := kind.Destroy(ctx, handle, runtime.Options{
		Snapshot: h.SnapshotDir, AllowOccupants: true, Progress: a.doing,
		Record: func(ctx context.Context, known teardown.Runtime, snapshot string) error {
			return h.Store.VanishedRuntimeToEnd(ctx, registered.ID, known, snapshot)
		}})
	if err != nil {
		return err
	}
	if !outcome.Runtime.Outcome.Released() {
		return &teardown.Error{Code: outcome.Runtime.Code, Message: outcome.Message, Details: outcome.Runtime.Details}
	}
	return h.Store.VanishedRuntimeReleased(ctx, registered.ID, outcome.Runtime)
}
