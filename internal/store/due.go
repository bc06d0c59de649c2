package store

import (
	"context"
	"time"

	"unwind/teardown"
)

// Due is a session whose finalization is to be started or woken.
type Due struct {
	SessionID  string `db:"id"`
	Host       string `db:"host"`
	Generation int64  `db:"generation"`
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
