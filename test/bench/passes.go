package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	_ "github.com/lib/pq"  // driver "postgres"
	_ "modernc.org/sqlite" // driver "sqlite"

	"unwind/internal/reconcile"
	"unwind/internal/store"
	"unwind/internal/temporalclient"
	"unwind/teardown"
	"unwind/test/devserver"
	"unwind/test/pgtest"
)

// One session of a hundred is due; the others were finalized long ago, each with
// a worktree, a runtime and a resource that are gone.
const dueOfHundred = 1

var sizes = []int{1_000, 10_000, 100_000}

// passes measures reconcile's pass over growing databases. Temporal is real; no
// worker runs, so that what a pass starts stays as it is.
func passes(ctx context.Context, _ options) ([]row, error) {
	server, err := devserver.Launch()
	if err != nil {
		return nil, err
	}
	defer server.Close()
	connection, err := temporalclient.Dial(ctx, temporalclient.Options{Program: "unwind-bench", Env: only{"TEMPORAL_ADDRESS": server.Address}})
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	var rows []row
	for _, size := range sizes {
		sqlite, err := passOver(ctx, connection, store.SQLite, size)
		if err != nil {
			return nil, err
		}
		postgres, err := passOver(ctx, connection, store.Postgres, size)
		if err != nil {
			return nil, err
		}
		what := fmt.Sprintf("reconcile, %d sessions, %d due (SQLite; baseline Postgres): ", size, size*dueOfHundred/100)
		rows = append(rows,
			row{what + "pass that starts them", milliseconds(sqlite.first), milliseconds(postgres.first), times(float64(sqlite.first), float64(postgres.first))},
			row{what + "pass with nothing due", milliseconds(sqlite.idle), milliseconds(postgres.idle), times(float64(sqlite.idle), float64(postgres.idle))},
			row{what + "most memory in use", mebibytes(int64(sqlite.heap)), mebibytes(int64(postgres.heap)), ""})
	}
	return rows, nil
}

type passed struct {
	first, idle time.Duration
	heap        uint64
}

func passOver(ctx context.Context, temporal *temporalclient.Connection, dialect store.Dialect, size int) (passed, error) {
	say("reconcile: %d sessions on %s", size, dialect)
	dir, err := os.MkdirTemp("", "unwind-bench-")
	if err != nil {
		return passed{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	url := "sqlite://" + filepath.Join(dir, "bench.db")
	if dialect == store.Postgres {
		if url, err = pgtest.Launch(); err != nil {
			return passed{}, err
		}
	}
	if _, err := store.Migrate(ctx, url); err != nil {
		return passed{}, err
	}
	name := fmt.Sprintf("%s-%d", dialect, size)
	if err := populate(ctx, url, dialect, name, size); err != nil {
		return passed{}, err
	}
	s, err := store.Open(ctx, url)
	if err != nil {
		return passed{}, err
	}
	defer func() { _ = s.Close() }()
	d := reconcile.Deps{Store: s, Temporal: temporal, TaskQueue: "bench", Host: store.Host{ID: "h1"}, Serving: true,
		Logger: slog.New(slog.DiscardHandler), StartsPerSecond: 1_000_000, Window: 1_000_000, Policy: teardown.Policy{}}
	var measured passed
	measured.heap, err = mostMemory(func() error {
		began := time.Now()
		summary, err := reconcile.Once(ctx, d)
		measured.first = time.Since(began)
		if want := size * dueOfHundred / 100; err == nil && summary.Started != want {
			err = fmt.Errorf("the pass started %d, not %d", summary.Started, want)
		}
		return err
	})
	if err != nil {
		return measured, err
	}
	if err := execute(ctx, url, dialect, "UPDATE sessions SET held_by = 'bench'"); err != nil {
		return measured, err
	}
	began := time.Now()
	_, err = reconcile.Once(ctx, d)
	measured.idle = time.Since(began)
	return measured, err
}

// populate writes the rows as years of use leave them.
func populate(ctx context.Context, url string, dialect store.Dialect, name string, size int) error {
	numbers := "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < " + strconv.Itoa(size) + ") "
	id, at := "'"+name+"-' || n", "'2026-01-02 03:04:05+00:00'"
	old := " FROM numbers WHERE n % 100 >= " + strconv.Itoa(dueOfHundred)
	return execute(ctx, url, dialect,
		"INSERT INTO sessions (id, host, terminated_at, created_at, updated_at) "+numbers+"SELECT "+id+", 'h1', "+at+", "+at+", "+at+" FROM numbers",
		"INSERT INTO finalizations (holder_kind, holder_id, generation, finished_at) "+numbers+"SELECT 'session', "+id+", 1, "+at+old,
		"INSERT INTO worktrees (id, host, repository, path, state, created_at, updated_at) "+numbers+
			"SELECT "+id+", 'h1', '/src', '/wt/' || n, 'removed', "+at+", "+at+old,
		"INSERT INTO leases (worktree_id, holder_kind, holder_id, generation, acquired_at, released_at, disposition) "+numbers+
			"SELECT "+id+", 'session', "+id+", 1, "+at+", "+at+", 'removed'"+old,
		"INSERT INTO runtimes (id, session_id, generation, kind, role, state, released_at) "+numbers+
			"SELECT "+id+", "+id+", 1, 'process', 'agent', 'released', "+at+old,
		"INSERT INTO resources (id, session_id, generation, kind, path, cleared_at) "+numbers+
			"SELECT "+id+", "+id+", 1, 'file', '/state/' || n, "+at+old,
		"ANALYZE") // as Postgres does by itself after a while
}

func execute(ctx context.Context, url string, dialect store.Dialect, statements ...string) error {
	source := url
	if dialect == store.SQLite {
		source = strings.TrimPrefix(url, "sqlite://")
	} else {
		// Postgres does not guess the type of what is selected.
		for i := range statements {
			statements[i] = strings.ReplaceAll(statements[i], "+00:00'", "+00:00'::timestamptz")
		}
	}
	db, err := sqlx.Open(string(dialect), source)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// mostMemory looks at the heap while something runs, and answers the most that
// was in use beyond what was before.
func mostMemory(run func() error) (most uint64, err error) {
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	before := memory.HeapAlloc
	done := make(chan error)
	go func() { done <- run() }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		runtime.ReadMemStats(&memory)
		if memory.HeapAlloc > before {
			most = max(most, memory.HeapAlloc-before)
		}
		select {
		case err := <-done:
			return most, err
		case <-tick.C:
		}
	}
}

// only is an environment of these variables alone.
type only map[string]string

func (o only) LookupEnv(name string) (string, bool) { value, ok := o[name]; return value, ok }
func (o only) Environ() []string                    { return nil }
