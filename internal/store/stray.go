package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"unwind/teardown"
)

// HolderReconcile is the kind of the remover that finishes what no finalization
// will. It never holds a lease.
const HolderReconcile = "reconcile"

func reconciler(worktreeID string) Holder {
	return Holder{Kind: HolderReconcile, ID: worktreeID, Generation: 1}
}

// Stray is a worktree on a host that nobody holds and no finalization will
// finish: its remover is void.
type Stray struct {
	ID        string    `db:"id"`
	Path      string    `db:"path"`
	State     string    `db:"state"`
	UpdatedAt time.Time `db:"updated_at"`
	// Leased: somebody held it once. One that was never leased is nobody's to
	// remove.
	Leased bool `db:"leased"`
	// KeptCode and KeptDetails are what the newest look of reconcile's found, if it
	// is preserved; the code is "" before the first.
	KeptCode    teardown.Code  `db:"kept_code"`
	KeptDetails JSON[[]string] `db:"kept_details"`
}

// Why says why a preserved stray stays, and how to go on.
func (s Stray) Why() *teardown.Error {
	found := ""
	if details := s.KeptDetails.V; len(details) > 0 {
		found = ": " + strings.Join(details, ", ")
	}
	return &teardown.Error{Code: s.KeptCode, Details: s.KeptDetails.V, Message: fmt.Sprintf(
		"Nobody holds the worktree %s, and it is kept (%s%s); it is looked at again every hour, or take it away with `unwind worktree remove`",
		s.Path, s.KeptCode, found)}
}

// isVoid is true of a worktree w whose remover will not remove it: there is no
// such holder, or it is live, at another generation, or finished. A remover of
// an unknown kind is none. A task whose row is gone is as good as deleted: its
// finalization goes on.
const isVoid = ` NOT EXISTS (SELECT 1 FROM sessions h LEFT JOIN finalizations f
			ON f.holder_kind = 'session' AND f.holder_id = h.id AND f.generation = h.generation
		WHERE w.remover_kind = 'session' AND h.id = w.remover_id AND h.generation = w.remover_generation
			AND h.terminated_at IS NOT NULL AND f.finished_at IS NULL)
	AND NOT EXISTS (SELECT 1 FROM finalizations f
		WHERE w.remover_kind = 'task' AND f.holder_kind = 'task' AND f.holder_id = w.remover_id
			AND f.generation = w.remover_generation AND f.finished_at IS NULL
			AND NOT EXISTS (SELECT 1 FROM tasks h WHERE h.id = f.holder_id
				AND (h.generation <> f.generation OR (h.terminated_at IS NULL AND h.state = 'active'))))`

const straySelect = `SELECT w.id, w.path, w.state, w.updated_at, w.kept_code, w.kept_details,
		CASE WHEN EXISTS (SELECT 1 FROM leases l WHERE l.worktree_id = w.id) THEN 1 ELSE 0 END AS leased
	FROM worktrees w WHERE w.state <> 'removed' AND ` + isVoid + `
		AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.worktree_id = w.id AND l.released_at IS NULL)`

// Strays lists a host's, by id and after the given one, at most limit.
func (s *Store) Strays(ctx context.Context, host, after string, limit int) (page Page[Stray], err error) {
	err = s.read(ctx, func(q queries) error {
		page, err = pageOf[Stray](ctx, q, s.at, limit, straySelect+" AND w.host = ? AND w.id > ? ORDER BY w.id LIMIT ?", host, after, limit)
		return err
	})
	return page, err
}

// strayNow locks a stray with all that is registered inside, and answers it if
// it is one still. Its remover's row is locked first, as everybody does.
func strayNow(ctx context.Context, tx queries, id string) (w Worktree, inside []Worktree, stray bool, err error) {
	found, err := tx.one(ctx, &w, "SELECT "+worktreeColumns+" FROM worktrees WHERE id = ?", id)
	if err != nil {
		return w, nil, false, err
	}
	if !found {
		return w, nil, false, unusable(teardown.CodeWorktreeRemoved, "There is no worktree with id %s", id)
	}
	if err := lockRemover(ctx, tx, w.Remover()); err != nil {
		return w, nil, false, err
	}
	locked, inside, err := lockWithChildren(ctx, tx, id)
	if err != nil || locked.Remover() != w.Remover() {
		return locked, inside, false, err // somebody was faster
	}
	var now Stray
	found, err = tx.one(ctx, &now, straySelect+" AND w.id = ?", id)
	return locked, inside, found && (now.Leased || now.State == WorktreeDeleting), err
}

func lockRemover(ctx context.Context, tx queries, remover Holder) (err error) {
	switch remover.Kind {
	case HolderSession:
		_, _, err = lockSession(ctx, tx, remover.ID)
	case HolderTask:
		_, _, err = lockTask(ctx, tx, remover.ID)
	}
	return err
}

// ClaimStray makes a stray reconcile's own to remove, under the path lock that
// the caller holds. What it answers instead, if not Go: already_gone, preserved
// for what is registered inside, or superseded if it is no stray any more.
func (s *Store) ClaimStray(ctx context.Context, worktreeID string) (claim Claim, err error) {
	err = s.write(ctx, func(tx queries) error {
		w, inside, stray, err := strayNow(ctx, tx, worktreeID)
		if err != nil {
			return err
		}
		claim = Claim{Worktree: w}
		switch {
		case w.State == WorktreeRemoved:
			claim.Result = described(w, teardown.WorktreeResult{Disposition: teardown.DispositionAlreadyGone})
			return nil
		case !stray:
			claim.Result = superseded(w)
			return nil
		case len(inside) > 0 && w.QuarantinePath == "":
			claim.Result = described(w, teardown.WorktreeResult{
				Disposition: teardown.DispositionPreserved, Code: teardown.CodeChildPreserved, Details: paths(inside)})
			if err := setStray(ctx, tx, w, WorktreePreserved, ""); err != nil {
				return err
			}
			return strayKept(ctx, tx, claim.Result)
		}
		claim.Go = true
		return setStray(ctx, tx, w, WorktreeDeleting, w.QuarantinePath)
	})
	return claim, err
}

func setStray(ctx context.Context, tx queries, w Worktree, state, quarantine string) error {
	me := reconciler(w.ID)
	_, err := tx.exec(ctx, `UPDATE worktrees SET state = ?, remover_kind = ?, remover_id = ?, remover_generation = ?,
		quarantine_path = ?, updated_at = ? WHERE id = ?`, state, me.Kind, me.ID, me.Generation, quarantine, now(), w.ID)
	return err
}

// strayKept records why a stray stays.
func strayKept(ctx context.Context, tx queries, found teardown.WorktreeResult) error {
	_, err := tx.exec(ctx, "UPDATE worktrees SET kept_code = ?, kept_details = ? WHERE id = ?",
		string(found.Code), JSONOf(bounded(found.Details)), found.ID)
	return err
}

// LookedAtStray dates a look at a preserved stray that is to stay, and records
// what was found.
func (s *Store) LookedAtStray(ctx context.Context, found teardown.WorktreeResult) error {
	return s.write(ctx, func(tx queries) error {
		w, _, stray, err := strayNow(ctx, tx, found.ID)
		if err != nil || !stray || w.State != WorktreePreserved {
			return err
		}
		if _, err := tx.exec(ctx, "UPDATE worktrees SET updated_at = ? WHERE id = ?", now(), w.ID); err != nil {
			return err
		}
		return strayKept(ctx, tx, found)
	})
}

// MovingStrayAside is MovingAside for what reconcile removes.
func (s *Store) MovingStrayAside(ctx context.Context, worktreeID, path string) error {
	return s.movingAside(ctx, reconciler(worktreeID), worktreeID, path)
}

// RemovedStray records that a stray is gone. Again is a no-op. Ancestors that
// are strays, and were preserved, become reconcile's own to look at again.
func (s *Store) RemovedStray(ctx context.Context, worktreeID string) error {
	return s.write(ctx, func(tx queries) error {
		w, above, locked, err := lockWithAncestors(ctx, tx, worktreeID)
		if err != nil || w.State == WorktreeRemoved {
			return err
		}
		if w.State != WorktreeDeleting || w.Remover() != reconciler(w.ID) {
			return internal("Worktree %s cannot be recorded as removed: it is %s, and not reconcile's own", w.Path, w.State)
		}
		if _, err := tx.exec(ctx, `UPDATE worktrees SET state = 'removed', quarantine_path = '', condemned_at = NULL, updated_at = ?
			WHERE id = ?`, now(), w.ID); err != nil {
			return err
		}
		for _, id := range above {
			if err := reopenStray(ctx, tx, locked[id]); err != nil {
				return err
			}
		}
		return nil
	})
}

// reopenStray takes only what reconcile itself has kept: the remover of another
// would have to be locked before the worktrees. Those are looked at in their
// turn.
func reopenStray(ctx context.Context, tx queries, w Worktree) error {
	if w.State != WorktreePreserved || w.Remover() != reconciler(w.ID) {
		return nil
	}
	held, err := heldLeases(ctx, tx, w.ID)
	if err != nil || len(held) > 0 {
		return err
	}
	return setStray(ctx, tx, w, WorktreeDeleting, w.QuarantinePath)
}

// PreservedStray records that a stray stays, and why, after the disk agrees. With
// keepQuarantine it stays where it was moved.
func (s *Store) PreservedStray(ctx context.Context, found teardown.WorktreeResult, keepQuarantine bool) error {
	return s.write(ctx, func(tx queries) error {
		locked, err := lockWorktrees(ctx, tx, found.ID)
		if err != nil {
			return err
		}
		w := locked[found.ID]
		if w.State != WorktreeDeleting || w.Remover() != reconciler(w.ID) || w.CondemnedAt != nil {
			return internal("Worktree %s cannot be preserved: it is %s, condemned or not reconcile's own", w.Path, w.State)
		}
		quarantine := ""
		if keepQuarantine {
			quarantine = w.QuarantinePath
		}
		if err := setStray(ctx, tx, w, WorktreePreserved, quarantine); err != nil {
			return err
		}
		return strayKept(ctx, tx, found)
	})
}
