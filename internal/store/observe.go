package store

import (
	"context"
	"strings"
)

// RuntimeFilter selects a page of the runtimes of a host, by id.
type RuntimeFilter struct {
	Host string
	// Live: only those of live sessions, at their generation.
	Live bool
	// Left: only those that are not released.
	Left  bool
	After string // the last id of the page before
	Limit int    // 0 means 1000
}

// Runtimes lists a page of the runtimes of a host, by id. A page is short only if
// it is the last.
func (s *Store) Runtimes(ctx context.Context, filter RuntimeFilter) ([]Runtime, error) {
	condition := ""
	if filter.Live {
		condition += " AND s.terminated_at IS NULL AND r.generation = s.generation"
	}
	if filter.Left {
		condition += " AND r.state <> 'released'"
	}
	limit := filter.Limit
	if limit <= 0 {
		limit = 1000
	}
	var page []Runtime
	err := s.read(ctx, func(q queries) error {
		page = nil
		return q.all(ctx, &page, "SELECT "+qualified("r", runtimeColumns)+` FROM runtimes r JOIN sessions s ON s.id = r.session_id
			WHERE s.host = ? AND r.id > ?`+condition+" ORDER BY r.id LIMIT ?", filter.Host, filter.After, limit)
	})
	return page, err
}

// SessionAt is a session that holds, or has held, the worktree at a path.
type SessionAt struct {
	Path       string `db:"path"`
	SessionID  string `db:"session_id"`
	Generation int64  `db:"generation"`
	// Live: it is live and holds the worktree.
	Live bool `db:"live"`
}

// SessionsAt lists the sessions that hold a worktree at one of the paths at their
// generation, or have held it, the longest path first.
func (s *Store) SessionsAt(ctx context.Context, host string, paths []string) (found []SessionAt, err error) {
	err = s.read(ctx, func(q queries) error {
		found = nil
		return q.among(ctx, &found, `SELECT w.path, s.id AS session_id, s.generation, s.terminated_at IS NULL AND l.released_at IS NULL AS live
			FROM worktrees w JOIN leases l ON l.worktree_id = w.id AND l.holder_kind = 'session'
				JOIN sessions s ON s.id = l.holder_id AND s.generation = l.generation
			WHERE w.host = ? AND w.path IN (?)
			ORDER BY LENGTH(w.path) DESC, s.id`, host, paths)
	})
	return found, err
}

// qualified puts the name of a table before each of several columns.
func qualified(table, columns string) string {
	names := strings.Split(columns, ", ")
	for i, name := range names {
		names[i] = table + "." + name
	}
	return strings.Join(names, ", ")
}
