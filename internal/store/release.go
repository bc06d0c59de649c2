package store

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"

	"unwind/teardown"
)

// ReleaseLeases gives up the holder's leases and answers the removal plan: the
// worktrees that are deleting with this finalization as their remover, the
// deepest first. The plan is read from the rows, so that a replay answers it
// again. A worktree that somebody else holds or removes is retained. One that
// an earlier round preserved, and that nobody holds, is tried again; one that
// this round has decided to keep is in no plan, but named: a run that lost its
// history has to park for it.
//
// It is an error (CodeInternal) while a runtime of the session is not released.
func (s *Store) ReleaseLeases(ctx context.Context, step teardown.Step) (plan teardown.ReleaseLeasesResult, err error) {
	err = s.write(ctx, func(tx queries) error {
		plan = teardown.ReleaseLeasesResult{}
		at, err := stand(ctx, tx, step)
		if err != nil {
			return err
		}
		plan.Superseded = !at.mayGoOn
		plan.Parked = at.current && at.finalization.ParkedAt != nil
		if plan.Superseded || plan.Parked {
			return nil
		}
		if err := requireRuntimesReleased(ctx, tx, step); err != nil {
			return err
		}
		if err := releaseAll(ctx, tx, step); err != nil {
			return err
		}
		if err := markRuntimesReleased(ctx, tx, step); err != nil {
			return err
		}
		if plan.Removals, err = removals(ctx, tx, HolderOf(step)); err != nil {
			return err
		}
		plan.Kept, err = keptBy(ctx, tx, HolderOf(step))
		return err
	})
	return plan, err
}

// keptBy answers the first worktree that the newest round has decided to keep, or
// nil: it is in no plan any more.
func keptBy(ctx context.Context, tx queries, me Holder) (*teardown.WorktreeResult, error) {
	var leases []Lease
	if err := tx.all(ctx, &leases, "SELECT "+leaseColumns+" FROM leases"+ofHolder+" AND disposition IN ('preserved', 'refused')",
		me.key()...); err != nil {
		return nil, err
	}
	kept, err := withWorktrees(ctx, tx, leases)
	if err != nil || len(kept) == 0 {
		return nil, err
	}
	// A child says more than the parent that is kept for it.
	last := kept[len(kept)-1]
	result := resultOf(last.Worktree, last.Lease)
	return &result, nil
}

// releaseAll decides on every worktree that the holder leases or is to remove.
func releaseAll(ctx context.Context, tx queries, step teardown.Step) error {
	me := HolderOf(step)
	var mine []string
	err := tx.all(ctx, &mine, `
		SELECT worktree_id FROM leases
			WHERE holder_kind = ? AND holder_id = ? AND (generation = ? OR (generation < ? AND released_at IS NULL))
		UNION
		SELECT id FROM worktrees
			WHERE remover_kind = ? AND remover_id = ? AND remover_generation = ? AND state IN ('deleting', 'preserved')`,
		me.Kind, me.ID, me.Generation, me.Generation, me.Kind, me.ID, me.Generation)
	if err != nil {
		return err
	}
	locked, err := lockWorktrees(ctx, tx, mine...)
	if err != nil {
		return err
	}
	slices.Sort(mine)
	for _, id := range mine {
		if err := releaseOne(ctx, tx, step, locked[id]); err != nil {
			return err
		}
	}
	return nil
}

func releaseOne(ctx context.Context, tx queries, step teardown.Step, w Worktree) error {
	me := HolderOf(step)
	// Leases of the session's earlier generations keep nothing for anybody.
	given, err := tx.exec(ctx, `UPDATE leases SET released_at = ?
		WHERE worktree_id = ? AND holder_kind = ? AND holder_id = ? AND generation <= ? AND released_at IS NULL`,
		now(), w.ID, me.Kind, me.ID, me.Generation)
	if err != nil {
		return err
	}
	held, err := heldLeases(ctx, tx, w.ID)
	if err != nil {
		return err
	}
	lease, leased, err := leaseOf(ctx, tx, w.ID, me)
	if err != nil {
		return err
	}
	open := leased && !lease.Disposition.Final()
	mine := w.Remover() == me
	switch {
	case w.State == WorktreeRemoved:
		if open {
			return decide(ctx, tx, step, w, teardown.WorktreeResult{Disposition: teardown.DispositionAlreadyGone})
		}
	case len(held) > 0, w.State == WorktreeDeleting && !mine, w.State == WorktreePreserved && !mine && given == 0:
		if open {
			return decide(ctx, tx, step, w, teardown.WorktreeResult{Disposition: teardown.DispositionRetained})
		}
	case w.State == WorktreePreserved && mine:
		// What this very round preserved stays so: the call may be a late replay.
		if !leased || lease.Round < step.Round {
			return markDeleting(ctx, tx, step, w)
		}
	case w.State == WorktreeDeleting, open, given > 0:
		return markDeleting(ctx, tx, step, w)
	}
	return nil
}

// markDeleting makes the worktree this finalization's to remove, and puts it on
// its list of what is left to do.
func markDeleting(ctx context.Context, tx queries, step teardown.Step, w Worktree) error {
	me := HolderOf(step)
	if w.State != WorktreeDeleting || w.Remover() != me {
		_, err := tx.exec(ctx, `UPDATE worktrees SET state = 'deleting', remover_kind = ?, remover_id = ?, remover_generation = ?, updated_at = ?
			WHERE id = ?`, me.Kind, me.ID, me.Generation, now(), w.ID)
		if err != nil {
			return err
		}
	}
	return order(ctx, tx, step, w.ID)
}

// order makes the disposition of the holder's lease pending. Without a lease, as
// for an ancestor of another session, one is recorded that is released already:
// what a finalization has to do is its leases.
func order(ctx context.Context, tx queries, step teardown.Step, worktreeID string) error {
	me, at := HolderOf(step), now()
	_, err := tx.exec(ctx, `INSERT INTO leases (worktree_id, holder_kind, holder_id, generation, acquired_at, released_at, round)
		VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (worktree_id, holder_kind, holder_id, generation)
		DO UPDATE SET disposition = 'pending', round = excluded.round`,
		worktreeID, me.Kind, me.ID, me.Generation, at, at, step.Round)
	return err
}

// decide writes what became of the worktree on the holder's lease, if it has
// one. Where work was saved stays known, also when a later attempt finds nothing
// more to save.
func decide(ctx context.Context, tx queries, step teardown.Step, w Worktree, r teardown.WorktreeResult) error {
	me := HolderOf(step)
	_, err := tx.exec(ctx, `UPDATE leases SET disposition = ?, round = ?, code = ?, details = ?, bytes = ?,
			saved_ref = COALESCE(NULLIF(?, ''), saved_ref)
		WHERE worktree_id = ? AND holder_kind = ? AND holder_id = ? AND generation = ?`,
		string(r.Disposition), step.Round, string(r.Code), JSONOf(bounded(r.Details)), r.Bytes, readable(r.SavedRef, maxText),
		w.ID, me.Kind, me.ID, me.Generation)
	return err
}

func leaseOf(ctx context.Context, q queries, worktreeID string, holder Holder) (lease Lease, found bool, err error) {
	found, err = q.one(ctx, &lease, "SELECT "+leaseColumns+" FROM leases"+ofHolder+" AND worktree_id = ?",
		append(holder.key(), worktreeID)...)
	return lease, found, err
}

// removals reads the plan.
func removals(ctx context.Context, q queries, me Holder) ([]teardown.Removal, error) {
	worktrees, err := deletingBy(ctx, q, me)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(worktrees, func(a, b Worktree) int {
		return cmp.Or(cmp.Compare(depth(b.Path), depth(a.Path)), cmp.Compare(a.Path, b.Path))
	})
	at := make(map[string]string, len(worktrees))
	for _, w := range worktrees {
		at[w.Path] = w.ID
	}
	var plan []teardown.Removal
	for _, w := range worktrees {
		removal := teardown.Removal{WorktreeID: w.ID, Host: w.Host, Name: filepath.Base(w.Path)}
		for dir := filepath.Dir(w.Path); dir != "/" && dir != "." && removal.ParentID == ""; dir = filepath.Dir(dir) {
			removal.ParentID = at[dir]
		}
		plan = append(plan, removal)
	}
	return plan, nil
}

// deletingBy lists what the remover has still to remove, by id.
func deletingBy(ctx context.Context, q queries, remover Holder) ([]Worktree, error) {
	var worktrees []Worktree
	err := q.all(ctx, &worktrees, "SELECT "+worktreeColumns+` FROM worktrees
		WHERE remover_kind = ? AND remover_id = ? AND remover_generation = ? AND state = 'deleting' ORDER BY id`, remover.key()...)
	return worktrees, err
}
