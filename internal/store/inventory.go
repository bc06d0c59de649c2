package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/pressly/goose/v3/database"
)

// kept are the facts that no migration may lose or change: of each table the key
// and what is said about it. A migration that moves one of these elsewhere has to
// change this list with it.
var kept = []struct {
	table     string
	key, says []string
}{
	{"hosts", []string{"id"}, []string{"name"}},
	{"tasks", []string{"id"}, []string{"generation", "state", "terminated_at"}},
	{"sessions", []string{"id"}, []string{"host", "task_id", "generation", "terminated_at"}},
	{"runtimes", []string{"id"}, []string{"session_id", "generation", "handle", "state", "released_at"}},
	{"worktrees", []string{"id"}, []string{"host", "repository", "path", "nonce", "state", "remover_kind", "remover_id", "remover_generation",
		"quarantine_path", "condemned_at"}},
	{"leases", []string{"worktree_id", "holder_kind", "holder_id", "generation"}, []string{"released_at", "disposition", "saved_ref"}},
	{"resources", []string{"id"}, []string{"session_id", "generation", "kind", "path", "cleared_at"}},
	{"finalizations", []string{"holder_kind", "holder_id", "generation"}, []string{"round", "parked_at", "outcome", "finished_at"}},
}

// inventory holds, for each table and key, what is said about it.
type inventory map[string]map[string]string

// takeInventory reads every fact that is kept. A table that is not there yet has
// none.
func takeInventory(ctx context.Context, db database.DBTxConn, dialect Dialect) (inventory, error) {
	taken := inventory{}
	for _, facts := range kept {
		there, err := tableExists(ctx, db, dialect, facts.table)
		if err != nil {
			return nil, err
		}
		if !there {
			continue
		}
		rows, err := factsOf(ctx, db, "SELECT "+strings.Join(slices.Concat(facts.key, facts.says), ", ")+" FROM "+facts.table, len(facts.key))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", facts.table, err)
		}
		taken[facts.table] = rows
	}
	return taken, nil
}

func tableExists(ctx context.Context, db database.DBTxConn, dialect Dialect, table string) (there bool, err error) {
	// Not to_regclass, which may answer from what this connection has seen before: a
	// table that another process has just made is missing there.
	question := "SELECT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = ANY (current_schemas(FALSE)) AND tablename = $1)"
	if dialect == SQLite {
		question = "SELECT COUNT(*) > 0 FROM sqlite_master WHERE type = 'table' AND name = $1"
	}
	err = db.QueryRowContext(ctx, question, table).Scan(&there)
	return there, err
}

func factsOf(ctx context.Context, db database.DBTxConn, query string, keys int) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	facts := map[string]string{}
	values := make([]sql.NullString, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		facts[joined(values[:keys])] = joined(values[keys:])
	}
	return facts, rows.Err()
}

func joined(values []sql.NullString) string {
	var b strings.Builder
	for i, value := range values {
		if i > 0 {
			b.WriteByte(' ')
		}
		if value.Valid {
			b.WriteString(value.String)
		} else {
			b.WriteString("NULL")
		}
	}
	return b.String()
}

// lost names up to ten facts of before that after does not hold any more, or
// holds otherwise. What was added meanwhile is no loss.
func (before inventory) lost(after inventory) []string {
	var lost []string
	for table, facts := range before {
		for key, says := range facts {
			now, there := after[table][key]
			switch {
			case !there:
				lost = append(lost, table+" "+key+" would be gone")
			case now != says:
				lost = append(lost, table+" "+key+" would change")
			}
		}
	}
	slices.Sort(lost)
	return lost[:min(len(lost), 10)]
}
