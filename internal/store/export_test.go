package store

import "github.com/jmoiron/sqlx"

// DB lets a test look at the rows, or write what a person might by hand.
func (s *Store) DB() *sqlx.DB { return s.db }

// PassStatements are what a pass asks most, by the index that has to answer.
var PassStatements = map[string]string{
	"sessions_never_begun": neverBegunQuery + " AND s.id > ? ORDER BY s.id LIMIT 200",
	"finalizations_open":   underWayQuery + " AND f.holder_id > ? ORDER BY f.holder_id LIMIT 200",
	"worktrees_left":       straySelect + " AND w.host = ? AND w.id > ? ORDER BY w.id LIMIT 200",
	"runtimes_left":        rowlessRuntimes,
	"resources_left":       rowlessResources,
}
