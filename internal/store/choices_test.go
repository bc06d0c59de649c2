package store_test

import (
	"context"
	"database/sql"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

var choicePromises = []promise{
	{"times are bound and read as UTC with microseconds", func(t *testing.T, b *bundle) {
		b.session("s1")
		until := time.Date(2031, 3, 4, 5, 6, 7, 123456789, time.FixedZone("far", -(3*3600+1800)))
		_, err := b.Hold(ctx, "s1", &until, "x")
		require.NoError(t, err)
		session, err := b.Session(ctx, "s1")
		require.NoError(t, err)
		require.Equal(t, time.Date(2031, 3, 4, 8, 36, 7, 123456000, time.UTC), *session.HeldUntil)
		require.Equal(t, time.UTC, session.CreatedAt.Location())
		locked, _, err := b.Terminate(ctx, "s1", "") // reads by RETURNING
		require.NoError(t, err)
		require.Equal(t, session.HeldUntil, locked.HeldUntil)
		require.Equal(t, time.UTC, locked.HeldUntil.Location())
	}},
	{"JSON columns hold text", func(t *testing.T, b *bundle) {
		b.withRuntimes()
		kind := "SELECT pg_typeof(handle)::text FROM runtimes WHERE id = 'r1'"
		if b.Dialect() == store.SQLite {
			kind = "SELECT typeof(handle) FROM runtimes WHERE id = 'r1'"
		}
		var is, handle string
		require.NoError(t, b.DB().Get(&is, kind))
		require.Equal(t, "text", is)
		require.NoError(t, b.DB().Get(&handle, "SELECT handle FROM runtimes WHERE id = 'r1'"))
		require.JSONEq(t, `{"kind":"tmux","role":"agent","session":"s1"}`, handle)
	}},
	{"a handle that somebody wrote by hand names no runtime, and hides nothing else", func(t *testing.T, b *bundle) {
		step := b.withRuntimes("/wt/s1")
		for _, nonsense := range []string{`{"kind":`, `[1,2]`, `"text"`, `{"pid":"many"}`, "\u0001", `{"identity":[{}]}`} {
			b.exec("UPDATE runtimes SET handle = ?", nonsense)
			detail, err := b.SessionDetail(ctx, "s1")
			require.NoError(t, err)
			require.Len(t, detail.Worktrees, 1)
			begun, err := b.Begin(ctx, teardown.BeginInput{SessionID: "s1"})
			require.NoError(t, err)
			require.Len(t, begun.Runtimes, 2)
			r, err := b.Runtime(ctx, "r1")
			require.NoError(t, err)
			require.Empty(t, r.Handle.V.Kind)
		}
		for _, tolerable := range []string{"", "null", "{}"} {
			b.exec("UPDATE runtimes SET handle = ?", tolerable)
			_, err := b.Runtime(ctx, "r1")
			require.NoError(t, err)
		}
		b.runtimeGone(step, "r1")
		b.runtimeGone(step, "r2")
		b.exec("UPDATE leases SET details = '{}', disposition = 'who knows'")
		require.NotNil(t, b.result(step, "/wt/s1").Details)
		b.exec("UPDATE leases SET details = 'null'")
		require.NotNil(t, b.result(step, "/wt/s1").Details)
		done, err := b.Finish(ctx, step)
		require.NoError(t, err)
		require.True(t, done.Superseded, "an unknown disposition is not final")
	}},
	{"a recorded parent that goes in circles is walked once", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/a", "/wt/b")
		b.exec("UPDATE worktrees SET parent_id = ? WHERE id = ?", idOf("/wt/b"), idOf("/wt/a"))
		b.exec("UPDATE worktrees SET parent_id = ? WHERE id = ?", idOf("/wt/a"), idOf("/wt/b"))
		require.Equal(t, teardown.CodeChildPreserved, b.claim(step, "/wt/a").Result.Code)
		b.exec("UPDATE worktrees SET parent_id = id")
		b.remove(step, "/wt/b")
	}},
	{"a dangling reference is refused by the database", func(t *testing.T, b *bundle) {
		db := b.DB()
		_, err := db.Exec(db.Rebind("INSERT INTO leases (worktree_id, holder_kind, holder_id, generation, acquired_at) VALUES ('nothing', 'session', 's', 1, ?)"), time.Now().UTC())
		require.Error(t, err)
		_, err = db.Exec(db.Rebind("INSERT INTO worktrees (id, host, repository, path, state, created_at, updated_at) VALUES ('w', 'h', '', '/', 'asleep', ?, ?)"), time.Now().UTC(), time.Now().UTC())
		require.Error(t, err)
	}},
	{"leases and finalizations outlive their holder", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.exec("DELETE FROM sessions WHERE id = 's1'")
		plan, err := b.ReleaseLeases(ctx, step)
		require.NoError(t, err)
		require.True(t, plan.Superseded)
		require.Equal(t, teardown.DispositionSuperseded, b.claim(step, "/wt/s1").Result.Disposition)
		require.Equal(t, teardown.DispositionPending, b.disposition(step, "/wt/s1"))
	}},
	{"a context that is over is the database's absence, and retryable", func(t *testing.T, b *bundle) {
		b.session("s1")
		over, cancel := context.WithCancel(ctx)
		cancel()
		_, err := b.Session(over, "s1")
		requireCode(t, teardown.CodeDatabaseUnavailable, true, err)
		require.ErrorIs(t, err, context.Canceled)
		_, _, err = b.Terminate(over, "s1", "")
		requireCode(t, teardown.CodeDatabaseUnavailable, true, err)
	}},
	{"a closed store says that the database is away", func(t *testing.T, b *bundle) {
		other := open(t, b.url)
		require.NoError(t, other.Ping(ctx))
		require.NoError(t, other.Close())
		_, err := other.Session(ctx, "s1")
		require.Error(t, err)
		require.NotEmpty(t, teardown.CodeOf(err))
	}},
}

var timeColumn = regexp.MustCompile(`\b(\w+_at|held_until|last_seen)\b`)

// Text in one database and a number in the other, a time compares wrongly in
// one of them: it is set, read bare and tested for NULL.
func TestNoStatementComparesTimes(t *testing.T) {
	t.Parallel()
	allowed := regexp.MustCompile(`^(\w+\.)?(\w+_at|held_until|last_seen) IS (NOT )?NULL\b`)
	wrapped := regexp.MustCompile(`(?i)\b(COALESCE|MAX|MIN|NULLIF|CAST|DATE|STRFTIME)\s*\(\s*(\w+\.)?(\w+_at|held_until|last_seen)\b`)
	seen := 0
	for _, statement := range statements(t) {
		require.NotRegexp(t, wrapped, statement)
		conditions := afterKeyword(statement, "WHERE", "ON ", "AND ", "OR ", "ORDER BY")
		for _, condition := range conditions {
			for _, at := range timeColumn.FindAllStringIndex(condition, -1) {
				start := at[0]
				if dot := strings.LastIndexByte(condition[:start], ' '); dot >= 0 {
					start = dot + 1
				}
				require.Regexp(t, allowed, strings.TrimLeft(condition[start:], "("), statement)
				seen++
			}
		}
	}
	require.Greater(t, seen, 10, "the test must have found the conditions")
}

// afterKeyword cuts the parts of a statement that are conditions or orders: from
// such a word up to the next SET or SELECT.
func afterKeyword(statement string, words ...string) []string {
	var parts []string
	for _, piece := range regexp.MustCompile(`\b(SELECT|SET|INSERT|VALUES|RETURNING)\b`).Split(strings.Join(strings.Fields(statement), " "), -1) {
		first := -1
		for _, word := range words {
			if i := strings.Index(piece, word); i >= 0 && (first < 0 || i < first) {
				first = i
			}
		}
		if first >= 0 {
			parts = append(parts, piece[first:])
		}
	}
	return parts
}

func TestEveryConflictTargetIsNamed(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`^ON CONFLICT \([\w, ]+\)( WHERE state <> 'removed')?\s+DO\b`)
	seen := 0
	for _, statement := range statements(t) {
		for _, at := range regexp.MustCompile(`ON CONFLICT`).FindAllStringIndex(statement, -1) {
			target := strings.Join(strings.Fields(statement[at[0]:]), " ")
			require.Regexp(t, named, target)
			if strings.HasPrefix(target, "ON CONFLICT (host, path)") {
				require.Contains(t, target, "(host, path) WHERE state <> 'removed'", "a partial index is matched by its WHERE")
			}
			seen++
		}
	}
	require.Greater(t, seen, 4)
}

// FOR UPDATE is Postgres' alone.
func TestRowsAreLockedPortably(t *testing.T) {
	t.Parallel()
	locks := 0
	for _, statement := range statements(t) {
		require.NotContains(t, statement, "FOR UPDATE")
		if strings.Contains(statement, "SET id = id WHERE id = ? RETURNING") {
			locks++
		}
	}
	require.Equal(t, 3, locks)
}

// statements are the string literals of the package's code that are SQL.
func statements(t *testing.T) []string {
	t.Helper()
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	var found []string
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, 0)
		require.NoError(t, err)
		ast.Inspect(tree, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, err := strconv.Unquote(lit.Value)
				require.NoError(t, err)
				if regexp.MustCompile(`\b(SELECT|UPDATE|INSERT|WHERE|AND)\b`).MatchString(text) {
					found = append(found, text)
				}
			}
			return true
		})
	}
	return found
}

func TestTerminationNotifies(t *testing.T) {
	t.Parallel()
	b := setup(t, store.Postgres)
	until, cancel := context.WithCancel(ctx)
	defer cancel()
	terminations := b.Terminations(until)
	require.Eventually(t, func() bool {
		var listening int
		require.NoError(t, b.DB().Get(&listening, `SELECT COUNT(*) FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE 'LISTEN%' AND state = 'idle'`))
		return listening == 1
	}, time.Minute, 10*time.Millisecond)

	b.session("s1", "/wt/s1")
	b.terminate("s1") // update
	b.terminate("s1") // nothing new
	b.release(b.begin("s1"))
	b.exec("INSERT INTO sessions (id, host, terminated_at, created_at, updated_at) VALUES ('inserted', 'h', now(), 'now', 'now')")
	b.session("by-hand")
	b.exec("UPDATE sessions SET terminated_at = now(), generation = 7 WHERE id = 'by-hand'")
	b.exec("UPDATE sessions SET terminated_at = now() + interval '1 second' WHERE id = 'by-hand'")
	b.restored("by-hand")
	b.session("rolled-back")
	tx, err := b.DB().BeginTxx(ctx, nil)
	require.NoError(t, err)
	_, err = tx.Exec("UPDATE sessions SET terminated_at = now() WHERE id = 'rolled-back'")
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	b.exec("SELECT pg_notify('unwind_terminated', 'the end')")

	var told []string
	for len(told) == 0 || told[len(told)-1] != "the end" {
		select {
		case id := <-terminations:
			told = append(told, id)
		case <-time.After(time.Minute):
			t.Fatalf("told only %v", told)
		}
	}
	require.Equal(t, []string{"s1", "inserted", "by-hand", "the end"}, told)

	_, err = b.DB().Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()")
	require.NoError(t, err)
	require.Empty(t, <-terminations, "something may have been missed")
	cancel()
	_, more := <-terminations
	require.False(t, more)
}

func TestSQLiteTellsOfTerminationsByWhomever(t *testing.T) {
	t.Parallel()
	b := setup(t, store.SQLite)
	b.session("before")
	b.terminate("before")
	until, cancel := context.WithCancel(ctx)
	defer cancel()
	terminations := b.Terminations(until)
	next := func() string {
		select {
		case id := <-terminations:
			return id
		case <-time.After(time.Minute):
			t.Fatal("nothing was told")
			return ""
		}
	}
	b.session("s1")
	b.terminate("s1")
	b.terminate("s1") // nothing new
	require.Equal(t, "s1", next())
	// Another process, with a plain UPDATE or INSERT.
	b.session("by-hand")
	other, err := sql.Open("sqlite", strings.TrimPrefix(b.url, "sqlite://"))
	require.NoError(t, err)
	defer func() { _ = other.Close() }()
	_, err = other.Exec("UPDATE sessions SET terminated_at = '2026-01-01 00:00:00+00:00' WHERE id = 'by-hand'")
	require.NoError(t, err)
	require.Equal(t, "by-hand", next())
	_, err = other.Exec("INSERT INTO sessions (id, host, terminated_at, created_at, updated_at) VALUES ('inserted', 'h', 'now', 'now', 'now')")
	require.NoError(t, err)
	require.Equal(t, "inserted", next())

	// Who has missed lines is told so.
	_, err = other.Exec("INSERT INTO terminations (seq, session_id) VALUES ((SELECT MAX(seq) + 5 FROM terminations), 'late')")
	require.NoError(t, err)
	require.Empty(t, next())
	require.Equal(t, "late", next())
	cancel()
	_, more := <-terminations
	require.False(t, more)
}

func TestSQLiteKeepsTheNewestTerminationsOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, store.SQLite)
	b.exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)
		INSERT INTO sessions (id, host, terminated_at, created_at, updated_at) SELECT 's' || i, 'h', 'now', 'now', 'now' FROM n`)
	var kept int
	require.NoError(t, b.DB().Get(&kept, "SELECT COUNT(*) FROM terminations"))
	require.Equal(t, 1000, kept)
}

func TestSQLiteFileThatIsDeletedOrReplacedIsNoticed(t *testing.T) {
	t.Parallel()
	b := setup(t, store.SQLite)
	path := strings.TrimPrefix(b.url, "sqlite://")
	require.NoError(t, b.Lost())
	require.NoError(t, os.Rename(path, path+".aside"))
	requireCode(t, teardown.CodeDatabaseUnavailable, true, b.Lost())
	require.ErrorContains(t, b.Lost(), "was deleted while it was open")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.ErrorContains(t, b.Lost(), "was replaced while it was open")
	require.NoError(t, os.Rename(path+".aside", path))
	require.NoError(t, b.Lost(), "it is back")
	require.NoError(t, setup(t, store.Postgres).Lost())
}

func TestSQLiteConnectionsAreSetUp(t *testing.T) {
	t.Parallel()
	b := setup(t, store.SQLite)
	for pragma, want := range map[string]string{"journal_mode": "wal", "busy_timeout": "20000", "foreign_keys": "1", "synchronous": "2"} {
		var is string
		require.NoError(t, b.DB().Get(&is, "PRAGMA "+pragma))
		require.Equal(t, want, is, pragma)
	}
}

// A transaction that took its write lock only when it first writes would fail
// there, without waiting, if another has written since it began.
func TestSQLiteWritesTakeTheirLockAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, store.SQLite)
	b.session("s1")
	tx, err := b.DB().BeginTxx(ctx, nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()

	other := open(t, b.url)
	_, err = other.Session(ctx, "s1")
	require.NoError(t, err, "readers do not wait for a writer")
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, _, err = other.Terminate(short, "s1", "")
	requireCode(t, teardown.CodeDatabaseUnavailable, true, err)

	waited := make(chan error)
	go func() {
		_, _, err := other.Terminate(ctx, "s1", "")
		waited <- err
	}()
	require.NoError(t, tx.Commit())
	require.NoError(t, <-waited)
}

// The lock that an update of nothing takes must hold until the end.
func TestPostgresLockHolds(t *testing.T) {
	t.Parallel()
	b := setup(t, store.Postgres)
	b.session("s1")
	tx, err := b.DB().BeginTxx(ctx, &sql.TxOptions{})
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.Exec("UPDATE sessions SET id = id WHERE id = 's1'")
	require.NoError(t, err)
	_, err = b.Session(ctx, "s1")
	require.NoError(t, err, "readers do not wait")
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, _, err = b.Terminate(short, "s1", "")
	requireCode(t, teardown.CodeDatabaseUnavailable, true, err)
	require.NoError(t, tx.Rollback())
	b.terminate("s1")
}
