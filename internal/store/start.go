package store

import (
	"context"

	"unwind/teardown"
)

// A session that is being started is a live one of which a worktree or a runtime
// is creating, or a worktree could not be made. Everything that is made for it is
// recorded before it is made, so that terminating it at any moment releases exactly
// what there is.

const halfStarted = `(EXISTS (SELECT 1 FROM runtimes r WHERE r.session_id = s.id AND r.state = 'creating')
	OR EXISTS (SELECT 1 FROM leases l JOIN worktrees w ON w.id = l.worktree_id
		WHERE l.holder_kind = 'session' AND l.holder_id = s.id AND l.released_at IS NULL AND w.state = 'creating')
	OR EXISTS (SELECT 1 FROM leases l WHERE l.holder_kind = 'session' AND l.holder_id = s.id AND l.generation = s.generation
		AND l.released_at IS NOT NULL AND l.disposition = 'already_gone'))`

// HalfStarted lists, by id and after the given one, up to limit live sessions of
// a host whose start is not complete. Whether a workflow works on it is not the
// database's to know.
func (s *Store) HalfStarted(ctx context.Context, host, after string, limit int) (half Page[Due], err error) {
	err = s.read(ctx, func(q queries) error {
		half, err = pageOf[Due](ctx, q, s.at, limit, `SELECT s.id, s.host, s.generation FROM sessions s
			WHERE s.host = ? AND s.id > ? AND s.terminated_at IS NULL AND `+halfStarted+` ORDER BY s.id LIMIT ?`, host, after, limit)
		return err
	})
	return half, err
}

// FailStart terminates a session whose start is not complete, with the source
// start_failed. Hash, if not empty, is that of the input which the caller failed
// to start: a session that was registered by other means is left alone. Begun is
// false if there is nothing to release: no such session, or its start is
// complete.
func (s *Store) FailStart(ctx context.Context, id, hash string) (session Session, begun bool, err error) {
	err = s.write(ctx, func(tx queries) error {
		begun = false
		var found bool
		if session, found, err = lockSession(ctx, tx, id); err != nil || !found {
			return err
		}
		if hash != "" && session.ManifestHash != hash {
			return nil
		}
		if session.TerminatedAt != nil {
			begun = true
			return takeFromTask(ctx, tx, session, WorktreeCreating)
		}
		var half string
		if begun, err = tx.one(ctx, &half, "SELECT s.id FROM sessions s WHERE s.id = ? AND "+halfStarted, id); err != nil || !begun {
			return err
		}
		if err := takeFromTask(ctx, tx, session, WorktreeCreating, WorktreeActive); err != nil {
			return err
		}
		session, err = setTerminated(ctx, tx, session, teardown.SourceStartFailed)
		return err
	})
	return session, begun && err == nil, err
}

// takeFromTask gives up the task's leases on what the session was started with,
// as far as it is in one of these states: a task keeps no worktree that was not
// made, nor one of a start that is taken back.
func takeFromTask(ctx context.Context, tx queries, session Session, states ...string) error {
	if session.TaskID == "" {
		return nil
	}
	var shared []string
	if err := tx.among(ctx, &shared, `SELECT mine.worktree_id FROM leases mine
		JOIN leases theirs ON theirs.worktree_id = mine.worktree_id AND theirs.holder_kind = 'task' AND theirs.released_at IS NULL
		JOIN worktrees w ON w.id = mine.worktree_id
		WHERE mine.holder_kind = 'session' AND mine.holder_id = ? AND theirs.holder_id = ? AND w.state IN (?) ORDER BY mine.worktree_id`,
		session.ID, session.TaskID, states); err != nil {
		return err
	}
	if _, err := lockWorktrees(ctx, tx, shared...); err != nil {
		return err
	}
	for _, id := range shared {
		if _, err := tx.exec(ctx, `UPDATE leases SET released_at = ?, disposition = 'retained'
			WHERE worktree_id = ? AND holder_kind = 'task' AND holder_id = ? AND released_at IS NULL`, now(), id, session.TaskID); err != nil {
			return err
		}
	}
	return nil
}

// Starting reports whether the session is still live at the generation at which
// it is being started: what each step reads under the session's file lock before
// it makes anything. It is session_terminated if not.
func (s *Store) Starting(ctx context.Context, start teardown.StartStep) error {
	return s.read(ctx, func(q queries) error {
		session, err := sessionOf(ctx, q, start.SessionID)
		if err == nil && !startedBy(session, start) {
			err = terminatedMeanwhile(start)
		}
		return err
	})
}

func startedBy(session Session, start teardown.StartStep) bool {
	return session.TerminatedAt == nil && session.Generation == start.Generation
}

func terminatedMeanwhile(start teardown.StartStep) error {
	return &teardown.Error{Code: teardown.CodeSessionTerminated,
		Message: "Session " + start.SessionID + " was terminated while it was being started; what was made is released"}
}

// whileStarting runs do with the session's row locked, if it is being started.
func (s *Store) whileStarting(ctx context.Context, start teardown.StartStep, do func(tx queries, session Session) error) error {
	return s.write(ctx, func(tx queries) error {
		session, found, err := lockSession(ctx, tx, start.SessionID)
		if err != nil {
			return err
		}
		if !found {
			return sessionNotFound(start.SessionID)
		}
		if !startedBy(session, start) {
			return terminatedMeanwhile(start)
		}
		return do(tx, session)
	})
}

// RuntimeStarted records a runtime that was started, with its identity pinned.
// The caller holds the session's lock. Again is a no-op. It is
// session_terminated if the session is not live any more: then the runtime is
// found by its tag; and conflict if another live session has registered it.
func (s *Store) RuntimeStarted(ctx context.Context, start teardown.StartStep, id string, handle teardown.Runtime) error {
	return s.whileStarting(ctx, start, func(tx queries, session Session) error {
		if err := soleHolder(ctx, tx, session.Host, session.ID, []teardown.Runtime{handle}); err != nil {
			return err
		}
		_, err := tx.exec(ctx, "UPDATE runtimes SET state = 'running', handle = ? WHERE id = ? AND session_id = ? AND state = 'creating'",
			JSONOf(handle), id, session.ID)
		return err
	})
}

// WorktreeCreated records that a worktree was made. The caller holds the path
// lock. Again is a no-op. It is session_terminated if the session is not live
// any more.
func (s *Store) WorktreeCreated(ctx context.Context, start teardown.StartStep, id, branch string) error {
	return s.whileStarting(ctx, start, func(tx queries, _ Session) error {
		if _, err := lockWorktrees(ctx, tx, id); err != nil {
			return err
		}
		_, err := tx.exec(ctx, "UPDATE worktrees SET state = 'active', branch = ?, updated_at = ? WHERE id = ? AND state = 'creating'",
			branch, now(), id)
		return err
	})
}

// WorktreeNotCreated records that a worktree was not made, because somebody else
// has its path: it is nobody's to remove.
func (s *Store) WorktreeNotCreated(ctx context.Context, start teardown.StartStep, id string) error {
	return s.whileStarting(ctx, start, func(tx queries, _ Session) error {
		locked, err := lockWorktrees(ctx, tx, id)
		if err != nil || locked[id].State != WorktreeCreating {
			return err
		}
		at := now()
		if _, err := tx.exec(ctx, "UPDATE worktrees SET state = 'removed', updated_at = ? WHERE id = ?", at, id); err != nil {
			return err
		}
		_, err = tx.exec(ctx, "UPDATE leases SET released_at = ?, disposition = 'already_gone' WHERE worktree_id = ? AND released_at IS NULL", at, id)
		return err
	})
}

// IntendResource records a resource that is about to be made and answers its id.
// The caller holds the session's lock and has seen that nothing is there. It is
// session_terminated if the session is not live any more, and conflict if a
// worktree is registered there.
func (s *Store) IntendResource(ctx context.Context, start teardown.StartStep, r NewResource) (id string, err error) {
	if err := checkPath(r.Path); err != nil {
		return "", err
	}
	id = NewID()
	err = s.whileStarting(ctx, start, func(tx queries, session Session) error {
		r.ID = id
		n := NewSession{ID: session.ID, Host: session.Host, Resources: []NewResource{r}}
		if err := keepApart(ctx, tx, n); err != nil {
			return err
		}
		_, err := tx.exec(ctx, "INSERT INTO resources (id, session_id, generation, kind, path) VALUES (?, ?, ?, ?, ?)",
			r.ID, session.ID, session.Generation, r.Kind, r.Path)
		return err
	})
	return id, err
}

// IntendedResource finds a resource that an earlier attempt has recorded.
func (s *Store) IntendedResource(ctx context.Context, start teardown.StartStep, path string) (id string, found bool, err error) {
	err = s.read(ctx, func(q queries) error {
		found, err = q.one(ctx, &id, "SELECT id FROM resources WHERE session_id = ? AND generation = ? AND path = ? AND cleared_at IS NULL",
			start.SessionID, start.Generation, path)
		return err
	})
	return id, found, err
}

// ForgetResource takes back the record of a resource that was not made, because
// somebody else has its path: it is not ours to clear.
func (s *Store) ForgetResource(ctx context.Context, start teardown.StartStep, id string) error {
	return s.write(ctx, func(tx queries) error {
		_, err := tx.exec(ctx, "DELETE FROM resources WHERE id = ? AND session_id = ? AND cleared_at IS NULL", id, start.SessionID)
		return err
	})
}
