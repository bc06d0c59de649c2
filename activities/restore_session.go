package activities

import (
	"context"
	"fmt"
	"slices"

	"unwind/internal/fault"
	"unwind/internal/lock"
	"unwind/internal/runtime"
	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
)

// RestoreSession makes a terminated session live again, under its lock and the
// path locks of all its worktrees: it adopts a runtime that lives, puts back
// what was moved aside, and writes the facts last. What could not be told, or
// cannot be put back, refuses the whole restore. Again is a no-op with the same
// answer.
func (h *Host) RestoreSession(ctx context.Context, in teardown.RestoreSessionInput) (teardown.RestoreResult, error) {
	work, a := begin(ctx, "Waiting for the session's lock")
	defer a.stop()
	restored, err := h.restore(work, a, in)
	if err != nil {
		return teardown.RestoreResult{}, failure(err)
	}
	return resultOfRestore(restored), nil
}

func (h *Host) restore(ctx context.Context, a *attempt, in teardown.RestoreSessionInput) (store.Restored, error) {
	locks, err := h.lockSessionAndPaths(ctx, a, in)
	defer func() {
		for _, held := range locks {
			held.Release()
		}
	}()
	if err != nil {
		return store.Restored{}, err
	}
	// Read again under the locks: an attempt that was given up may have run on
	// until now.
	runtimes, worktrees, err := h.Store.Restorable(ctx, in.SessionID, in.Generation)
	if err != nil {
		return store.Restored{}, err
	}
	restoration := store.Restoration{SessionID: in.SessionID, Generation: in.Generation, By: in.RequestedBy}
	a.doing("Looking at the runtimes")
	if restoration.Alive, restoration.Found, err = h.alive(ctx, a, runtimes); err != nil {
		return store.Restored{}, err
	}
	a.doing("Looking at the worktrees")
	if restoration.Intact, err = h.putBack(ctx, worktrees); err != nil {
		return store.Restored{}, err
	}
	fault.Point("put back")
	restored, err := h.Store.Restore(ctx, restoration)
	fault.Point("restored")
	return restored, err
}

// lockSessionAndPaths takes the locks in the order that everybody uses. What it
// answers beside an error is held, too.
func (h *Host) lockSessionAndPaths(ctx context.Context, a *attempt, in teardown.RestoreSessionInput) ([]*lock.Held, error) {
	session, err := h.Locks.Session(ctx, in.SessionID, a.lockWait(h.LockWait))
	if err != nil {
		return nil, err
	}
	held := []*lock.Held{session}
	_, worktrees, err := h.Store.Restorable(ctx, in.SessionID, in.Generation)
	if err != nil {
		return held, err
	}
	var paths []string
	for _, w := range worktrees {
		paths = append(paths, w.Path)
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		one, err := h.Locks.Path(ctx, path, a.lockWait(h.LockWait))
		if err != nil {
			return held, err
		}
		held = append(held, one)
	}
	return held, nil
}

// alive answers which runtimes live, and how those were found whose start was
// not recorded as done. Only what was confirmed gone is left out.
func (h *Host) alive(ctx context.Context, a *attempt, runtimes []store.Runtime) (ids []string, found map[string]teardown.Runtime, err error) {
	found = map[string]teardown.Runtime{}
	for _, registered := range runtimes {
		handle, state, err := h.whatLives(ctx, a, registered)
		if err != nil {
			return nil, nil, couldNotTell(registered, err)
		}
		if state != runtime.Alive {
			continue
		}
		ids = append(ids, registered.ID)
		if registered.State == store.RuntimeCreating {
			found[registered.ID] = handle
		}
	}
	return ids, found, nil
}

func (h *Host) whatLives(ctx context.Context, a *attempt, registered store.Runtime) (teardown.Runtime, runtime.State, error) {
	handle := registered.Handle.V
	kind, err := h.Runtimes.For(handle)
	if err != nil {
		return handle, 0, err
	}
	if registered.State == store.RuntimeCreating {
		if handle, err = h.halfStarted(ctx, a, kind, handle); err != nil {
			return handle, 0, err
		}
	}
	state, err := kind.Probe(ctx, handle)
	return handle, state, err
}

// couldNotTell says what to do beside what the error itself says: a person who
// knows that the runtime is gone cannot say so to a restore, which would leave
// alone what outlived it.
func couldNotTell(registered store.Runtime, err error) error {
	problem := *coded(err)
	problem.Message = fmt.Sprintf("It could not be told whether the %s %s lives, so nothing was restored. "+
		"If it is gone for certain, `unwind retry %s --runtime-confirmed-gone` goes on with the session's end, which keeps what could be lost; "+
		"then the session can be restored. What was found: %s",
		registered.Kind, nameOf(registered.Handle.V), registered.SessionID, problem.Message)
	return &problem
}

// putBack answers which worktrees are at their paths, after it has put back what
// was moved aside. Before the first is moved, all are looked at: one that cannot
// be put back refuses the restore.
func (h *Host) putBack(ctx context.Context, worktrees []store.Worktree) ([]string, error) {
	var intact []string
	var aside []store.Worktree
	for _, w := range worktrees {
		if w.State == store.WorktreeRemoved || w.CondemnedAt != nil {
			continue
		}
		// One that a start was about to make when it was cut off is the session's.
		if _, err := h.Worktrees.Adopt(ctx, targetOf(w)); err != nil {
			return nil, cannotRestore(w, err)
		}
		at, err := h.Worktrees.Locate(targetOf(w), w.QuarantinePath)
		if err != nil {
			return nil, cannotRestore(w, err)
		}
		switch at {
		case worktree.AtPath:
			intact = append(intact, w.ID)
		case worktree.Aside:
			aside = append(aside, w)
		}
	}
	for _, w := range aside {
		if err := h.Worktrees.PutBack(ctx, targetOf(w), w.QuarantinePath); err != nil {
			return nil, cannotRestore(w, err)
		}
		intact = append(intact, w.ID)
	}
	return intact, nil
}

func cannotRestore(w store.Worktree, err error) error {
	problem := *coded(err)
	problem.Message = fmt.Sprintf("The worktree %s cannot be taken back, so nothing was restored: %s", w.Path, problem.Message)
	return &problem
}

func targetOf(w store.Worktree) worktree.Target {
	return worktree.Target{Repository: w.Repository, Path: w.Path, Nonce: w.Nonce}
}

func resultOfRestore(restored store.Restored) teardown.RestoreResult {
	result := teardown.RestoreResult{
		SessionID: restored.Session.ID, Generation: restored.Session.Generation, Outcome: teardown.OutcomeRestored,
		RuntimesTotal:  len(restored.Runtimes) + len(restored.RuntimesGone),
		WorktreesTotal: len(restored.Worktrees) + len(restored.WorktreesGone),
		ResourcesTotal: len(restored.Resources) + len(restored.ResourcesGone),
	}
	result.Runtimes = listed(restored.RuntimesGone, restored.Runtimes, func(r store.Runtime) teardown.RestoredPart {
		return teardown.RestoredPart{Kind: r.Kind, Name: nameOf(r.Handle.V)}
	})
	result.Worktrees = listed(restored.WorktreesGone, restored.Worktrees, func(w store.Worktree) teardown.RestoredPart {
		return teardown.RestoredPart{Name: w.Path}
	})
	result.Resources = listed(restored.ResourcesGone, restored.Resources, func(r store.Resource) teardown.RestoredPart {
		return teardown.RestoredPart{Kind: r.Kind, Name: r.Path}
	})
	return result
}

func listed[T any](gone, restored []T, part func(T) teardown.RestoredPart) []teardown.RestoredPart {
	parts := []teardown.RestoredPart{}
	for _, one := range gone {
		p := part(one)
		p.Gone = true
		parts = append(parts, p)
	}
	for _, one := range restored {
		parts = append(parts, part(one))
	}
	return parts[:min(len(parts), teardown.MaxListed)]
}
