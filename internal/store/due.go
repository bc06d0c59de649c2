package store

import (
	"context"
	"time"

	"unwind/teardown"
)

// Due is a session, or a task, whose finalization is to be started or woken.
type Due struct {
	SessionID string `db:"id"`
	TaskID    string `db:"task_id"` // instead of SessionID
	// ParkedReason is set by WakeableTasks.
	ParkedReason string `db:"parked_reason"`
	Host         string `db:"host"`
	Generation   int64  `db:"generation"`
}

// Due lists, by id and after the given one, up to limit sessions of any host
// that are terminated and neither finished, parked nor held at the given time.
// Whether a workflow runs for them is not the database's to know.
func (s *Store) Due(ctx context.Context, after string, limit int, at time.Time) ([]Due, error) {
	type row struct {
		Due
		HeldUntil *time.Time `db:"held_until"`
		HeldBy    string     `db:"held_by"`
	}
	var due []Due
	err := s.read(ctx, func(q queries) error {
		due = nil
		from := after
		for len(due) < limit {
			var rows []row
			if err := q.all(ctx, &rows, `SELECT s.id, s.host, s.generation, s.held_until, s.held_by
				FROM sessions s LEFT JOIN finalizations f
					ON f.holder_kind = 'session' AND f.holder_id = s.id AND f.generation = s.generation
				WHERE s.id > ? AND s.terminated_at IS NOT NULL AND f.finished_at IS NULL AND f.parked_at IS NULL
				ORDER BY s.id LIMIT ?`, from, limit); err != nil {
				return err
			}
			for _, r := range rows {
				held := Session{HeldUntil: r.HeldUntil, HeldBy: r.HeldBy}.Held(at)
				if !held && len(due) < limit {
					due = append(due, r.Due)
				}
				from = r.SessionID
			}
			if len(rows) < limit {
				return nil
			}
		}
		return nil
	})
	return due, err
}

// Unreachable lists, by id and after the given one, up to limit sessions of a
// host that are parked because it did not answer.
func (s *Store) Unreachable(ctx context.Context, host, after string, limit int) ([]Due, error) {
	var due []Due
	err := s.read(ctx, func(q queries) error {
		due = nil
		return q.all(ctx, &due, `SELECT s.id, s.host, s.generation
			FROM sessions s JOIN finalizations f
				ON f.holder_kind = 'session' AND f.holder_id = s.id AND f.generation = s.generation
			WHERE s.id > ? AND s.host = ? AND s.terminated_at IS NOT NULL AND f.finished_at IS NULL
				AND f.parked_at IS NOT NULL AND f.parked_reason = ?
			ORDER BY s.id LIMIT ?`, after, host, teardown.ReasonHostUnreachable, limit)
	})
	return due, err
}

// DueTasks is Due for tasks: those that are closed and neither finished nor
// parked, also such whose row is gone.
func (s *Store) DueTasks(ctx context.Context, after string, limit int) ([]Due, error) {
	var due []Due
	err := s.read(ctx, func(q queries) error {
		due = nil
		return q.all(ctx, &due, `SELECT id AS task_id, MAX(generation) AS generation FROM (
				SELECT t.id, t.generation FROM tasks t LEFT JOIN finalizations f
						ON f.holder_kind = 'task' AND f.holder_id = t.id AND f.generation = t.generation
					WHERE t.terminated_at IS NOT NULL AND f.finished_at IS NULL AND f.parked_at IS NULL
				UNION
				SELECT f.holder_id, f.generation FROM finalizations f
					WHERE f.holder_kind = 'task' AND f.finished_at IS NULL AND f.parked_at IS NULL
						AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = f.holder_id)
				UNION
				SELECT l.holder_id, l.generation FROM leases l
					WHERE l.holder_kind = 'task' AND l.released_at IS NULL
						AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = l.holder_id)
						AND NOT EXISTS (SELECT 1 FROM finalizations f WHERE f.holder_kind = 'task' AND f.holder_id = l.holder_id AND f.generation = l.generation)
			) AS due WHERE id > ? GROUP BY id ORDER BY id LIMIT ?`, after, limit)
	})
	return due, err
}

// WakeableTasks lists tasks that are parked for something that has passed: the host
// did not answer, and is this one; or a session of theirs was not finalized, and
// all are by now.
func (s *Store) WakeableTasks(ctx context.Context, host, after string, limit int) ([]Due, error) {
	var due []Due
	err := s.read(ctx, func(q queries) error {
		due = nil
		return q.all(ctx, &due, `SELECT f.holder_id AS task_id, f.generation, f.parked_reason FROM finalizations f
			WHERE f.holder_kind = 'task' AND f.holder_id > ? AND f.finished_at IS NULL AND f.parked_at IS NOT NULL
				AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = f.holder_id AND t.generation <> f.generation)
				AND ((f.parked_reason = ? AND EXISTS (SELECT 1 FROM worktrees w WHERE w.host = ? AND w.state = 'deleting'
						AND w.remover_kind = 'task' AND w.remover_id = f.holder_id AND w.remover_generation = f.generation))
					OR (f.parked_reason IN (?, ?, ?) AND NOT EXISTS (SELECT 1 FROM sessions s LEFT JOIN finalizations g
						ON g.holder_kind = 'session' AND g.holder_id = s.id AND g.generation = s.generation
						WHERE s.task_id = f.holder_id AND g.finished_at IS NULL)))
			ORDER BY f.holder_id LIMIT ?`, after, teardown.ReasonHostUnreachable, host,
			teardown.ReasonSessionPreserved, teardown.ReasonSessionFailed, teardown.ReasonSessionHeld, limit)
	})
	return due, err
}
