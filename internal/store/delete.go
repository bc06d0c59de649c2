package store

import (
	"context"
	"slices"
)

// Left is what stays when a session's row is deleted.
type Left struct {
	Worktrees []LeasedWorktree // not removed; by generation, then path
	Held      []LeasedWorktree // every one that it ever held
	Resources []Resource       // not cleared
	// Parked: its finalization is not finished, and a run may wait for it.
	Parked bool
}

// Leaves answers what would stay if the session's row were deleted. The codes
// are those of DeleteSession.
func (s *Store) Leaves(ctx context.Context, id string) (left Left, err error) {
	err = s.read(ctx, func(q queries) error {
		session, err := sessionOf(ctx, q, id)
		if err != nil {
			return err
		}
		left, err = mayDelete(ctx, q, session)
		return err
	})
	return left, err
}

// DeleteSession deletes the row of a session that is finalized, or parked and
// holds nothing, and the rows of its runtimes and resources; and that of its task
// if it was the last session of one that is deleted. Nothing on a machine is
// touched, and the facts of its finalizations stay. Deleted is false if there is
// no such session. Codes: session_live, and conflict while it holds
// anything or its finalization is under way; the message says what.
func (s *Store) DeleteSession(ctx context.Context, id string) (left Left, deleted bool, err error) {
	err = s.write(ctx, func(tx queries) error {
		session, found, err := lockTaskAndSession(ctx, tx, id)
		if err != nil || !found {
			return err
		}
		if left, err = mayDelete(ctx, tx, session); err != nil {
			return err
		}
		if _, err := lockWorktrees(ctx, tx, ids(worktreesOf(left.Worktrees))...); err != nil {
			return err
		}
		if left, err = mayDelete(ctx, tx, session); err != nil {
			return err
		}
		for _, table := range []string{"turns", "runtimes", "resources"} {
			if _, err := tx.exec(ctx, "DELETE FROM "+table+" WHERE session_id = ?", id); err != nil {
				return err
			}
		}
		deleted = true
		if _, err := tx.exec(ctx, "DELETE FROM sessions WHERE id = ?", id); err != nil {
			return err
		}
		return dropDeletedTask(ctx, tx, session.TaskID)
	})
	return left, deleted && err == nil, err
}

func mayDelete(ctx context.Context, q queries, session Session) (Left, error) {
	var left Left
	if session.TerminatedAt == nil {
		return left, sessionLive(session.ID)
	}
	f, _, err := finalizationOf(ctx, q, session.holder())
	if err != nil {
		return left, err
	}
	if f.FinishedAt == nil && f.ParkedAt == nil {
		return left, conflict("Session %s is not finalized yet; wait for that with `unwind terminate %s --wait`", session.ID, session.ID)
	}
	left.Parked = f.FinishedAt == nil
	runtimes, err := runtimesLeft(ctx, q, session.ID)
	if err != nil {
		return left, err
	}
	if len(runtimes) > 0 {
		return left, conflict("A runtime of session %s is not confirmed gone; settle it, then run `unwind retry %s`", session.ID, session.ID)
	}
	if err := q.all(ctx, &left.Resources, "SELECT "+resourceColumns+` FROM resources
		WHERE session_id = ? AND generation = ? AND cleared_at IS NULL ORDER BY id`, session.ID, session.Generation); err != nil {
		return left, err
	}
	var leases []Lease
	if err := q.all(ctx, &leases, "SELECT "+leaseColumns+" FROM leases WHERE holder_kind = 'session' AND holder_id = ?", session.ID); err != nil {
		return left, err
	}
	if left.Held, err = withWorktrees(ctx, q, leases); err != nil {
		return left, err
	}
	for _, l := range left.Held {
		switch {
		case l.Lease.ReleasedAt == nil:
			return left, conflict("Session %s still holds %s; run `unwind retry %s`", session.ID, l.Worktree.Path, session.ID)
		case l.Worktree.State == WorktreeDeleting && l.Worktree.Remover() == l.Lease.Holder:
			return left, conflict("Session %s is still removing %s; run `unwind retry %s`", session.ID, l.Worktree.Path, session.ID)
		}
		again := slices.ContainsFunc(left.Worktrees, func(known LeasedWorktree) bool { return known.Worktree.ID == l.Worktree.ID })
		if l.Worktree.State != WorktreeRemoved && !again {
			left.Worktrees = append(left.Worktrees, l)
		}
	}
	return left, nil
}
