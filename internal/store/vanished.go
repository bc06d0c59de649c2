package store

import (
	"context"

	"unwind/teardown"
)

const (
	rowlessRuntimes = `SELECT r.session_id AS id FROM runtimes r
		WHERE r.released_at IS NULL AND r.session_id > ? AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = r.session_id)`
	rowlessResources = `SELECT r.session_id AS id FROM resources r
		WHERE r.cleared_at IS NULL AND r.session_id > ? AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = r.session_id)`
	// mayGo is true of a resource r of a session without a row: secrets go in any
	// case, the others when none of its worktrees is left to it.
	mayGo = ` (r.kind = '` + teardown.ResourceSecret + `' OR NOT EXISTS (SELECT 1 FROM leases l JOIN worktrees w ON w.id = l.worktree_id
		WHERE l.holder_kind = 'session' AND l.holder_id = r.session_id AND w.state <> 'removed'
			AND NOT EXISTS (SELECT 1 FROM leases o WHERE o.worktree_id = w.id AND o.released_at IS NULL
				AND NOT (o.holder_kind = 'session' AND o.holder_id = l.holder_id))))`
)

// Vanished lists, by id and after the given one, at most limit sessions without
// a row that still have something on the host: a worktree, a runtime that is not
// released, or a resource that may be cleared. SQLite has one host; on Postgres
// it is known by the worktrees that they have or had.
func (s *Store) Vanished(ctx context.Context, host, after string, limit int) (ids []string, err error) {
	here, args := "", []any{host, after, after, after, limit}
	if s.at.dialect == Postgres {
		here = ` AND EXISTS (SELECT 1 FROM leases l JOIN worktrees w ON w.id = l.worktree_id
			WHERE l.holder_kind = 'session' AND l.holder_id = r.session_id AND w.host = ?)`
		args = []any{host, after, after, host, after, host, limit}
	}
	err = s.read(ctx, func(q queries) error {
		ids = nil
		return q.all(ctx, &ids, `SELECT DISTINCT id FROM (
				SELECT l.holder_id AS id FROM leases l JOIN worktrees w ON w.id = l.worktree_id
					WHERE l.holder_kind = 'session' AND l.released_at IS NULL AND w.host = ? AND l.holder_id > ?
						AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = l.holder_id)
				UNION `+rowlessRuntimes+here+`
				UNION `+rowlessResources+" AND"+mayGo+here+`
			) v ORDER BY id LIMIT ?`, args...)
	})
	return ids, err
}

// Hostless lists, by id and after the given one, at most limit sessions without a
// row of which runtimes or resources are left, and nothing says on which host.
func (s *Store) Hostless(ctx context.Context, after string, limit int) (ids []string, err error) {
	if s.at.dialect == SQLite {
		return nil, nil
	}
	const nowhere = ` AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.holder_kind = 'session' AND l.holder_id = r.session_id)`
	err = s.read(ctx, func(q queries) error {
		ids = nil
		return q.all(ctx, &ids, "SELECT DISTINCT id FROM ("+rowlessRuntimes+nowhere+" UNION "+rowlessResources+nowhere+") v ORDER BY id LIMIT ?",
			after, after, limit)
	})
	return ids, err
}

// VanishedResources lists what may be cleared of a session without a row, once
// its runtimes are released: nothing if it has a row, or one is left.
func (s *Store) VanishedResources(ctx context.Context, sessionID string) (may []Resource, err error) {
	err = s.read(ctx, func(q queries) error {
		may = nil
		if vanished, err := isVanished(ctx, q, sessionID); err != nil || !vanished {
			return err
		}
		if left, err := runtimesLeft(ctx, q, sessionID); err != nil || len(left) > 0 {
			return err
		}
		return q.all(ctx, &may, "SELECT "+resourceColumns+" FROM resources r WHERE r.session_id = ? AND r.cleared_at IS NULL AND"+mayGo+" ORDER BY r.id", sessionID)
	})
	return may, err
}

// VanishedResourceCleared records that a resource of a session without a row is
// gone. The caller holds the session's lock.
func (s *Store) VanishedResourceCleared(ctx context.Context, id string) error {
	return s.write(ctx, func(tx queries) error {
		_, err := tx.exec(ctx, `UPDATE resources SET cleared_at = ? WHERE id = ? AND cleared_at IS NULL
			AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = resources.session_id)`, now(), id)
		return err
	})
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

// VanishedRuntimeToEnd is RuntimeToEnd for a runtime of a session without a row;
// busy (retryable) if it has one by now, or the runtime is released.
func (s *Store) VanishedRuntimeToEnd(ctx context.Context, runtimeID string, known teardown.Runtime, snapshot string) error {
	return s.write(ctx, func(tx queries) error {
		rows, err := tx.exec(ctx, "UPDATE runtimes SET handle = ?, "+keptSnapshot+` WHERE id = ? AND released_at IS NULL
			AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = runtimes.session_id)`,
			JSONOf(known), readable(snapshot, maxText), runtimeID)
		if err == nil && rows == 0 {
			err = &teardown.Error{Code: teardown.CodeBusy, Retryable: true, Message: "The session that had vanished is there again, so its runtime is left alone; try again"}
		}
		return err
	})
}

// VanishedRuntimeReleased records that a runtime of a session without a row is
// confirmed gone, and how.
func (s *Store) VanishedRuntimeReleased(ctx context.Context, runtimeID string, r teardown.RuntimeResult) error {
	return s.write(ctx, func(tx queries) error {
		_, err := tx.exec(ctx, `UPDATE runtimes SET state = 'released', released_at = ?, released_how = ?, `+keptSnapshot+`,
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
