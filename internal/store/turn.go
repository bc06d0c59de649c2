package store

import (
	"context"
	"fmt"
	"time"

	"unwind/teardown"
)

// Turn is what a session does at the moment: of the sessions that share a
// worktree, at most one runs a turn.
type Turn struct {
	SessionID  string    `db:"session_id"`
	Generation int64     `db:"generation"`
	ID         string    `db:"id"`
	BegunAt    time.Time `db:"begun_at"`
	BegunBy    string    `db:"begun_by"`
}

// A turn of a session that was terminated, or is at another generation, counts
// no more.
const runningTurns = `SELECT t.session_id, t.generation, t.id, t.begun_at, t.begun_by
	FROM turns t JOIN sessions s ON s.id = t.session_id AND s.generation = t.generation AND s.terminated_at IS NULL`

// BeginTurn admits a turn of a live session; the same id again is a no-op. It
// answers busy, retryable, with the holder's name, while the session itself or
// one that shares a worktree with it runs another turn. Other codes:
// session_not_found, session_terminated, task_closed.
func (s *Store) BeginTurn(ctx context.Context, sessionID, id, by string) (turn Turn, err error) {
	err = s.write(ctx, func(tx queries) error {
		turn, err = beginTurn(ctx, tx, sessionID, id, by)
		return err
	})
	return turn, err
}

func beginTurn(ctx context.Context, tx queries, sessionID, id, by string) (Turn, error) {
	session, err := lockLiveSession(ctx, tx, sessionID)
	if err != nil {
		return Turn{}, err
	}
	held, err := heldBy(ctx, tx, session.holder())
	if err != nil {
		return Turn{}, err
	}
	// Whoever shares a worktree locks it, too.
	if _, err := lockWorktrees(ctx, tx, ids(held)...); err != nil {
		return Turn{}, err
	}
	var running []Turn
	if err := tx.all(ctx, &running, runningTurns+` WHERE t.session_id = ? OR t.session_id IN (
			SELECT theirs.holder_id FROM leases mine JOIN leases theirs ON theirs.worktree_id = mine.worktree_id
			WHERE mine.holder_kind = 'session' AND mine.holder_id = ? AND mine.generation = ? AND mine.released_at IS NULL
				AND theirs.holder_kind = 'session' AND theirs.released_at IS NULL) ORDER BY t.session_id`,
		sessionID, sessionID, session.Generation); err != nil {
		return Turn{}, err
	}
	for _, other := range running {
		if other.SessionID == sessionID && other.ID == id {
			return other, nil
		}
	}
	if len(running) > 0 {
		return Turn{}, turnRuns(running[0])
	}
	turn := Turn{SessionID: sessionID, Generation: session.Generation, ID: id, BegunAt: now(), BegunBy: readable(by, maxText)}
	_, err = tx.exec(ctx, `INSERT INTO turns (session_id, generation, id, begun_at, begun_by) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (session_id) DO UPDATE SET generation = excluded.generation, id = excluded.id,
			begun_at = excluded.begun_at, begun_by = excluded.begun_by`,
		turn.SessionID, turn.Generation, turn.ID, turn.BegunAt, turn.BegunBy)
	return turn, err
}

func turnRuns(t Turn) error {
	return &teardown.Error{Code: teardown.CodeBusy, Retryable: true, Details: []string{t.SessionID}, Message: fmt.Sprintf(
		"Session %s runs turn %s since %s; wait for its end, or run `unwind turn end %s` if nobody runs it any more",
		t.SessionID, t.ID, t.BegunAt.Format(time.RFC3339), t.SessionID)}
}

// EndTurn ends the session's turn; with an id, only that one. Ended is false if
// none runs. Another turn than the named one is conflict; unknown sessions are
// session_not_found.
func (s *Store) EndTurn(ctx context.Context, sessionID, id string) (turn Turn, ended bool, err error) {
	err = s.write(ctx, func(tx queries) error {
		_, found, err := lockSession(ctx, tx, sessionID)
		if err != nil {
			return err
		}
		if !found {
			return sessionNotFound(sessionID)
		}
		ended, err = tx.one(ctx, &turn, runningTurns+" WHERE t.session_id = ?", sessionID)
		if err != nil || !ended {
			return err
		}
		if id != "" && turn.ID != id {
			return conflict("Session %s runs turn %s, not %s; that one has ended", sessionID, turn.ID, id)
		}
		_, err = tx.exec(ctx, "DELETE FROM turns WHERE session_id = ?", sessionID)
		return err
	})
	return turn, ended && err == nil, err
}

// RunningTurn answers the turn that the session runs, if it runs one.
func (s *Store) RunningTurn(ctx context.Context, sessionID string) (turn Turn, found bool, err error) {
	err = s.read(ctx, func(q queries) error {
		found, err = q.one(ctx, &turn, runningTurns+" WHERE t.session_id = ?", sessionID)
		return err
	})
	return turn, found, err
}
