package store

import (
	"context"
	"slices"

	"unwind/teardown"
)

// Claim says whether a removal may touch its worktree.
type Claim struct {
	// Go: the worktree is deleting, this finalization its remover, nobody holds
	// it, nothing registered is left inside, and the round is the newest.
	Go       bool
	Worktree Worktree
	// SaveChanges: a person asked for the uncommitted work to be saved first.
	SaveChanges bool
	// SavedRef is where an earlier attempt saved it; "" if nowhere.
	SavedRef string
	// Result is what the rows say instead, if not Go: removed, already_gone,
	// preserved, refused, retained or superseded.
	Result teardown.WorktreeResult
}

// Claim decides, under the path lock that the caller holds, whether a worktree
// may be removed. What it answers instead is recorded, unless it is superseded:
// that touches nothing.
func (s *Store) Claim(ctx context.Context, step teardown.Step, worktreeID string) (claim Claim, err error) {
	err = s.write(ctx, func(tx queries) error {
		claim = Claim{}
		at, err := stand(ctx, tx, step)
		if err != nil {
			return err
		}
		w, inside, err := lockWithChildren(ctx, tx, worktreeID)
		if err != nil {
			return err
		}
		claim.Worktree, claim.SaveChanges = w, at.finalization.SaveRequested
		lease, _, err := leaseOf(ctx, tx, w.ID, HolderOf(step))
		if err != nil {
			return err
		}
		claim.SavedRef = lease.SavedRef
		if !at.mayGoOn {
			claim.Result = superseded(w)
			return nil
		}
		claim.Go, claim.Result, err = mayRemove(ctx, tx, step, w, inside)
		return err
	})
	return claim, err
}

// mayRemove is the decision, with the rows locked.
func mayRemove(ctx context.Context, tx queries, step teardown.Step, w Worktree, inside []Worktree) (bool, teardown.WorktreeResult, error) {
	me := HolderOf(step)
	held, err := heldLeases(ctx, tx, w.ID)
	if err != nil {
		return false, teardown.WorktreeResult{}, err
	}
	lease, leased, err := leaseOf(ctx, tx, w.ID, me)
	if err != nil {
		return false, teardown.WorktreeResult{}, err
	}
	record := func(r teardown.WorktreeResult) (bool, teardown.WorktreeResult, error) {
		if leased && !lease.Disposition.Final() {
			return false, described(w, r), decide(ctx, tx, step, w, r)
		}
		if leased {
			return false, resultOf(w, lease), nil
		}
		return false, described(w, r), nil
	}
	released := !leased || lease.ReleasedAt != nil
	switch {
	case !released: // not asked to remove it yet
		return false, superseded(w), nil
	case w.State == WorktreeRemoved:
		return record(teardown.WorktreeResult{Disposition: teardown.DispositionAlreadyGone})
	case len(held) > 0, w.Remover() != me && w.RemoverKind != "":
		return record(teardown.WorktreeResult{Disposition: teardown.DispositionRetained})
	case w.State == WorktreePreserved && leased:
		return false, resultOf(w, lease), nil
	case w.State != WorktreeDeleting:
		return false, superseded(w), nil
	case len(inside) > 0 && w.QuarantinePath == "":
		// With a quarantine it is the look at the disk that decides: what was
		// moved aside must be put back before it may be called preserved.
		r := teardown.WorktreeResult{Disposition: teardown.DispositionPreserved, Code: teardown.CodeChildPreserved, Details: paths(inside)}
		return false, described(w, r), preserve(ctx, tx, step, w, r, "")
	}
	return true, teardown.WorktreeResult{}, nil
}

// lockWithChildren locks the worktree and all that is registered inside. Since
// whoever adds something inside locks the worktree first, what is read after
// the lock is all there is.
func lockWithChildren(ctx context.Context, tx queries, id string) (w Worktree, inside []Worktree, err error) {
	found, err := tx.one(ctx, &w, "SELECT "+worktreeColumns+" FROM worktrees WHERE id = ?", id)
	if err != nil {
		return w, nil, err
	}
	if !found {
		return w, nil, internal("There is no worktree with id %s", id)
	}
	if inside, err = descendants(ctx, tx, w); err != nil {
		return w, nil, err
	}
	locked, err := lockWorktrees(ctx, tx, append(ids(inside), id)...)
	if err != nil {
		return w, nil, err
	}
	inside, err = descendants(ctx, tx, w)
	return locked[id], inside, err
}

// Saved records where uncommitted work was saved, on the holder's lease, whatever
// the round: it is there.
func (s *Store) Saved(ctx context.Context, step teardown.Step, worktreeID, ref string) error {
	return s.write(ctx, func(tx queries) error { return saved(ctx, tx, HolderOf(step), worktreeID, ref) })
}

func saved(ctx context.Context, tx queries, holder Holder, worktreeID, ref string) error {
	if _, err := lockWorktrees(ctx, tx, worktreeID); err != nil {
		return err
	}
	_, err := tx.exec(ctx, "UPDATE leases SET saved_ref = ?"+ofHolder+" AND worktree_id = ?",
		append(append([]any{readable(ref, maxText)}, holder.key()...), worktreeID)...)
	return err
}

// MovingAside records where the worktree is about to be moved, before the
// rename. Again with the same path takes back that it was condemned, for what is
// about to be moved is whole; another path while one is recorded is refused, for
// something may be there.
func (s *Store) MovingAside(ctx context.Context, step teardown.Step, worktreeID, path string) error {
	return s.movingAside(ctx, HolderOf(step), worktreeID, path)
}

func (s *Store) movingAside(ctx context.Context, me Holder, worktreeID, path string) error {
	if err := checkPath(path); err != nil {
		return err
	}
	return s.write(ctx, func(tx queries) error {
		rows, err := tx.exec(ctx, `UPDATE worktrees SET quarantine_path = ?, condemned_at = NULL, updated_at = ?
			WHERE id = ? AND state = 'deleting' AND remover_kind = ? AND remover_id = ? AND remover_generation = ? AND quarantine_path IN ('', ?)`,
			path, now(), worktreeID, me.Kind, me.ID, me.Generation, path)
		if err == nil && rows == 0 {
			return internal("Worktree %s may not be moved to %s: it is not this remover's to remove, or was moved elsewhere", worktreeID, path)
		}
		return err
	})
}

// Condemned records that what was moved aside is only ever deleted from now on,
// before the first file goes. Again is a no-op.
func (s *Store) Condemned(ctx context.Context, worktreeID string) error {
	return s.write(ctx, func(tx queries) error {
		locked, err := lockWorktrees(ctx, tx, worktreeID)
		if err != nil {
			return err
		}
		w := locked[worktreeID]
		if w.State != WorktreeDeleting || w.QuarantinePath == "" {
			return internal("Worktree %s may not be condemned: it is not deleting, or was not moved aside", worktreeID)
		}
		if w.CondemnedAt != nil {
			return nil
		}
		_, err = tx.exec(ctx, "UPDATE worktrees SET condemned_at = ?, updated_at = ? WHERE id = ?", now(), now(), worktreeID)
		return err
	})
}

// Removed records that the worktree is gone, whatever the round, with what was
// found (removed or already_gone). Again is a no-op.
//
// An ancestor that nobody holds, and that was preserved only for what was
// inside, becomes this finalization's to remove once nothing registered is left
// inside: reopened lists those, and ReleaseLeases answers them in its plan.
func (s *Store) Removed(ctx context.Context, step teardown.Step, worktreeID string, r teardown.WorktreeResult) (reopened []string, err error) {
	if r.Disposition != teardown.DispositionRemoved && r.Disposition != teardown.DispositionAlreadyGone {
		return nil, internal("A removed worktree cannot have the disposition %q", r.Disposition)
	}
	err = s.write(ctx, func(tx queries) error {
		reopened = nil
		at, err := stand(ctx, tx, step)
		if err != nil {
			return err
		}
		w, above, locked, err := lockWithAncestors(ctx, tx, worktreeID)
		if err != nil || w.State == WorktreeRemoved {
			return err
		}
		if w.State != WorktreeDeleting {
			return internal("Worktree %s cannot be recorded as removed: it is %s", w.Path, w.State)
		}
		if _, err := tx.exec(ctx, `UPDATE worktrees SET state = 'removed', quarantine_path = '', condemned_at = NULL, updated_at = ?
			WHERE id = ?`, now(), w.ID); err != nil {
			return err
		}
		r.Bytes = 0
		if err := decide(ctx, tx, step, w, r); err != nil {
			return err
		}
		for _, id := range above {
			again, err := reopen(ctx, tx, step, at.open, locked[id])
			if err != nil {
				return err
			}
			if again {
				reopened = append(reopened, id)
			}
		}
		return nil
	})
	return reopened, err
}

func lockWithAncestors(ctx context.Context, tx queries, id string) (w Worktree, above []string, locked map[string]Worktree, err error) {
	found, err := tx.one(ctx, &w, "SELECT "+worktreeColumns+" FROM worktrees WHERE id = ?", id)
	if err != nil {
		return w, nil, nil, err
	}
	if !found {
		return w, nil, nil, internal("There is no worktree with id %s", id)
	}
	if above, err = ancestors(ctx, tx, w.Host, w.Path, w.ParentID); err != nil {
		return w, nil, nil, err
	}
	locked, err = lockWorktrees(ctx, tx, append(slices.Clone(above), id)...)
	return locked[id], above, locked, err
}

// reopen makes an ancestor deleting again when the reason to keep it is gone. If
// the finalization is not open any more, its remover is void and reconcile
// finishes it; then the list of a finalization that is over stays as it is.
func reopen(ctx context.Context, tx queries, step teardown.Step, open bool, w Worktree) (bool, error) {
	if w.State != WorktreePreserved {
		return false, nil
	}
	held, err := heldLeases(ctx, tx, w.ID)
	if err != nil || len(held) > 0 {
		return false, err
	}
	reason, found, err := leaseOf(ctx, tx, w.ID, w.Remover())
	if err != nil || !found || reason.Code != teardown.CodeChildPreserved {
		return false, err
	}
	inside, err := descendants(ctx, tx, w)
	if err != nil || len(inside) > 0 {
		return false, err
	}
	me := HolderOf(step)
	if _, err := tx.exec(ctx, `UPDATE worktrees SET state = 'deleting', remover_kind = ?, remover_id = ?, remover_generation = ?, updated_at = ?
		WHERE id = ?`, me.Kind, me.ID, me.Generation, now(), w.ID); err != nil || !open {
		return err == nil, err
	}
	return true, order(ctx, tx, step, w.ID)
}

// Preserved records that the worktree stays (disposition preserved or refused),
// after the disk agrees. With keepQuarantine it stays where it was moved,
// because something else is at its path. Written is false if a newer round or
// generation has taken over; then nothing is.
func (s *Store) Preserved(ctx context.Context, step teardown.Step, worktreeID string, r teardown.WorktreeResult, keepQuarantine bool) (written bool, err error) {
	if r.Disposition != teardown.DispositionPreserved && r.Disposition != teardown.DispositionRefused {
		return false, internal("A worktree that stays cannot have the disposition %q", r.Disposition)
	}
	err = s.write(ctx, func(tx queries) error {
		written = false
		at, err := stand(ctx, tx, step)
		if err != nil {
			return err
		}
		locked, err := lockWorktrees(ctx, tx, worktreeID)
		if err != nil {
			return err
		}
		w, found := locked[worktreeID]
		if !found {
			return internal("There is no worktree with id %s", worktreeID)
		}
		ours := w.Remover() == HolderOf(step) && (w.State == WorktreeDeleting || w.State == WorktreePreserved)
		if !at.current || !ours {
			return nil
		}
		if w.CondemnedAt != nil {
			return internal("Worktree %s cannot be preserved: it was condemned, and parts of it may be gone", w.Path)
		}
		quarantine := ""
		if keepQuarantine {
			quarantine = w.QuarantinePath
		}
		if r.Code == teardown.CodeChildPreserved {
			inside, err := descendants(ctx, tx, w)
			if err != nil {
				return err
			}
			if len(inside) == 0 {
				r.Details = tellGitAlone(r.Details)
			}
		}
		written = true
		return preserve(ctx, tx, step, w, r, quarantine)
	})
	return written && err == nil, err
}

func preserve(ctx context.Context, tx queries, step teardown.Step, w Worktree, r teardown.WorktreeResult, quarantine string) error {
	if _, err := tx.exec(ctx, "UPDATE worktrees SET state = 'preserved', quarantine_path = ?, updated_at = ? WHERE id = ?",
		quarantine, now(), w.ID); err != nil {
		return err
	}
	if err := order(ctx, tx, step, w.ID); err != nil {
		return err
	}
	return decide(ctx, tx, step, w, r)
}

func superseded(w Worktree) teardown.WorktreeResult {
	return described(w, teardown.WorktreeResult{Disposition: teardown.DispositionSuperseded})
}

// described adds which worktree a result is about.
func described(w Worktree, r teardown.WorktreeResult) teardown.WorktreeResult {
	r.ID, r.Path, r.Details = w.ID, w.Path, bounded(r.Details)
	return r
}
