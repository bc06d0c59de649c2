package store

import (
	"context"

	"unwind/teardown"
)

// Vanished lists, by id and after the given one, at most limit sessions without
// a row that still hold a worktree on the host. With SQLite, which has one host
// and lets other programs ignore foreign keys, it lists those whose runtimes
// are not released, too.
func (s *Store) Vanished(ctx context.Context, host, after string, limit int) (ids []string, err error) {
	statement := `SELECT l.holder_id AS id FROM leases l JOIN worktrees w ON w.id = l.worktree_id
		WHERE l.holder_kind = 'session' AND l.released_at IS NULL AND w.host = ? AND l.holder_id > ?
			AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = l.holder_id)`
	args := []any{host, after}
	if s.at.dialect == SQLite {
		statement += ` UNION SELECT r.session_id FROM runtimes r
			WHERE r.released_at IS NULL AND r.session_id > ? AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = r.session_id)`
		args = append(args, after)
	}
	err = s.read(ctx, func(q queries) error {
		ids = nil
		return q.all(ctx, &ids, "SELECT DISTINCT id FROM ("+statement+") v ORDER BY id LIMIT ?", append(args, limit)...)
	})
	return ids, err
}

// VanishedRuntimes answers what is not confirmed gone of a session without a
// row; vanished is false if it has one.
func (s *Store) VanishedRuntimes(ctx context.Context, sessionID string) (left []Runtime, vanished bool, err error) {
	err = s.read(ctx, func(q queries) error {
		if vanished, err = isVanished(ctx, q, sessionID); err != nil || !vanished {
			return err
		}
		left, err = runtimesLeft(ctx, q, sessionID)
		return err
	})
	return left, vanished, err
}

func isVanished(ctx context.Context, q queries, sessionID string) (bool, error) {
	var id string
	found, err := q.one(ctx, &id, "SELECT id FROM sessions WHERE id = ?", sessionID)
	return !found, err
}

// VanishedRuntimeReleased records that a runtime of a session without a row is
// confirmed gone, and how.
func (s *Store) VanishedRuntimeReleased(ctx context.Context, runtimeID string, r teardown.RuntimeResult) error {
	return s.write(ctx, func(tx queries) error {
		_, err := tx.exec(ctx, `UPDATE runtimes SET state = 'released', released_at = ?, released_how = ?, snapshot_path = ?,
			outcome = ?, code = ?, details = ?, message = '' WHERE id = ? AND released_at IS NULL
				AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = runtimes.session_id)`,
			now(), string(r.Outcome), readable(r.Snapshot, maxText), string(r.Outcome), string(r.Code), JSONOf(bounded(r.Details)), runtimeID)
		return err
	})
}

// ReleaseVanished gives up the leases of a session without a row, whose runtimes
// are all gone. A worktree that nobody holds by now becomes reconcile's to
// remove. The caller holds the session's lock. It does nothing if the session
// has a row.
func (s *Store) ReleaseVanished(ctx context.Context, sessionID string) error {
	return s.write(ctx, func(tx queries) error {
		if vanished, err := isVanished(ctx, tx, sessionID); err != nil || !vanished {
			return err
		}
		left, err := runtimesLeft(ctx, tx, sessionID)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return internal("The vanished session %s still has %d runtimes that are not released; no worktree may be touched", sessionID, len(left))
		}
		var held []string
		if err := tx.all(ctx, &held, `SELECT DISTINCT worktree_id FROM leases
			WHERE holder_kind = 'session' AND holder_id = ? AND released_at IS NULL`, sessionID); err != nil {
			return err
		}
		locked, err := lockWorktrees(ctx, tx, held...)
		if err != nil {
			return err
		}
		if _, err := tx.exec(ctx, "UPDATE leases SET released_at = ? WHERE holder_kind = 'session' AND holder_id = ? AND released_at IS NULL",
			now(), sessionID); err != nil {
			return err
		}
		for _, w := range locked {
			others, err := heldLeases(ctx, tx, w.ID)
			if err != nil {
				return err
			}
			if len(others) == 0 && (w.State == WorktreeActive || w.State == WorktreeCreating) {
				if err := setStray(ctx, tx, w, WorktreeDeleting, w.QuarantinePath); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
