package store

import (
	"context"

	"unwind/teardown"
)

// WorktreeAt returns the worktree that is registered at the path, and the
// leases that are held on it.
func (s *Store) WorktreeAt(ctx context.Context, host, path string) (w Worktree, held []Lease, found bool, err error) {
	err = s.read(ctx, func(q queries) error {
		if w, found, err = worktreeAt(ctx, q, host, path); err != nil || !found {
			return err
		}
		held, err = heldLeases(ctx, q, w.ID)
		return err
	})
	return w, held, found, err
}

// Worktree returns one worktree's row; CodeWorktreeRemoved if there is none.
func (s *Store) Worktree(ctx context.Context, id string) (w Worktree, err error) {
	err = s.read(ctx, func(q queries) error {
		found, err := q.one(ctx, &w, "SELECT "+worktreeColumns+" FROM worktrees WHERE id = ?", id)
		if err == nil && !found {
			return unusable(teardown.CodeWorktreeRemoved, "There is no worktree with id %s", id)
		}
		return err
	})
	return w, err
}

// Repositories lists the repositories of all worktrees that were ever registered
// on a host.
func (s *Store) Repositories(ctx context.Context, host string) (repositories []string, err error) {
	err = s.read(ctx, func(q queries) error {
		return q.all(ctx, &repositories, "SELECT DISTINCT repository FROM worktrees WHERE host = ? ORDER BY repository", host)
	})
	return repositories, err
}

// RetireWorktree records as removed a row whose directory is not ours any more,
// so that its path can be used again. The caller has looked, and holds the path
// lock. A row that somebody holds, or that has something in quarantine, is
// CodeConflict; one that is removed already is a no-op.
func (s *Store) RetireWorktree(ctx context.Context, id string) error {
	return s.write(ctx, func(tx queries) error {
		locked, err := lockWorktrees(ctx, tx, id)
		if err != nil {
			return err
		}
		return retire(ctx, tx, locked[id])
	})
}

func retire(ctx context.Context, tx queries, w Worktree) error {
	if w.ID == "" || w.State == WorktreeRemoved {
		return nil
	}
	held, err := heldLeases(ctx, tx, w.ID)
	if err != nil {
		return err
	}
	if len(held) > 0 {
		return conflict("The worktree %s is held by %s %s; terminate that first", w.Path, held[0].Kind, held[0].ID)
	}
	if w.QuarantinePath != "" {
		return conflict("The worktree %s was moved aside to %s; retry the finalization that did it", w.Path, w.QuarantinePath)
	}
	_, err = tx.exec(ctx, "UPDATE worktrees SET state = 'removed', updated_at = ? WHERE id = ?", now(), w.ID)
	return err
}

func worktreeAt(ctx context.Context, q queries, host, path string) (w Worktree, found bool, err error) {
	found, err = q.one(ctx, &w,
		"SELECT "+worktreeColumns+" FROM worktrees WHERE host = ? AND path = ? AND state <> 'removed'", host, path)
	return w, found, err
}

// heldLeases lists the leases that keep the worktree in use.
func heldLeases(ctx context.Context, q queries, worktreeID string) ([]Lease, error) {
	var held []Lease
	err := q.all(ctx, &held, "SELECT "+leaseColumns+` FROM leases WHERE worktree_id = ? AND released_at IS NULL
		ORDER BY holder_kind, holder_id, generation`, worktreeID)
	return held, err
}
