package store

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/stretchr/testify/require"

	"unwind/migrations"
	"unwind/teardown"
	"unwind/test/pgtest"
)

// populated are facts as the first schema held them: a live session, one that is
// parked with a worktree in quarantine, one that is finalized, two of a task that
// holds the worktree of one of them, one of a task that is archived, and traces of
// a session whose row is gone.
const populated = `
INSERT INTO hosts (id, name, last_seen) VALUES ('h1', 'one', '2031-01-01 00:00:00+00:00');
INSERT INTO tasks (id, state, terminated_at, created_at, updated_at) VALUES
	('t1', 'active', NULL, '2031-01-01 00:00:00+00:00', '2031-01-01 00:00:00+00:00'),
	('t2', 'archived', '2031-01-02 00:00:00+00:00', '2031-01-01 00:00:00+00:00', '2031-01-02 00:00:00+00:00');
INSERT INTO sessions (id, host, task_id, generation, terminated_at, created_at, updated_at) VALUES
	('early', 'h1', 't1', 1, NULL, '2031-01-01 00:00:00+00:00', '2031-01-01 00:00:00+00:00'),
	('fork', 'h1', 't1', 1, NULL, '2031-01-01 00:00:00+00:00', '2031-01-01 00:00:00+00:00'),
	('late', 'h1', 't2', 1, '2031-01-02 00:00:00+00:00', '2031-01-01 00:00:00+00:00', '2031-01-02 00:00:00+00:00'),
	('live', 'h1', 't1', 1, NULL, '2031-01-01 00:00:00+00:00', '2031-01-01 00:00:00+00:00'),
	('parked', 'h1', NULL, 2, '2031-01-02 00:00:00+00:00', '2031-01-01 00:00:00+00:00', '2031-01-02 00:00:00+00:00'),
	('done', 'h1', NULL, 1, '2031-01-02 00:00:00+00:00', '2031-01-01 00:00:00+00:00', '2031-01-02 00:00:00+00:00');
INSERT INTO runtimes (id, session_id, generation, kind, role, handle, state) VALUES
	('r1', 'live', 1, 'tmux', 'agent', '{"kind":"tmux","session":"live"}', 'running');
INSERT INTO worktrees (id, host, repository, path, state, remover_kind, remover_id, remover_generation, quarantine_path, created_at, updated_at) VALUES
	('w0', 'h1', '/src/app', '/wt/early', 'active', '', '', 0, '', '2031-01-01 00:00:00+00:00', '2031-01-01 00:00:00+00:00'),
	('w4', 'h1', '/src/app', '/wt/late', 'active', '', '', 0, '', '2031-01-01 00:00:00+00:00', '2031-01-01 00:00:00+00:00'),
	('w1', 'h1', '/src/app', '/wt/live', 'active', '', '', 0, '', '2031-01-01 00:00:00+00:00', '2031-01-01 00:00:00+00:00'),
	('w2', 'h1', '/src/app', '/wt/parked', 'preserved', 'session', 'parked', 2, '/wt/.parked.unwind-w2', '2031-01-01 00:00:00+00:00', '2031-01-01 00:00:00+00:00'),
	('w3', 'h1', '/src/app', '/wt/done', 'removed', 'session', 'done', 1, '', '2031-01-01 00:00:00+00:00', '2031-01-01 00:00:00+00:00');
INSERT INTO leases (worktree_id, holder_kind, holder_id, generation, acquired_at, released_at, disposition, code) VALUES
	('w0', 'session', 'early', 1, '2031-01-01 00:00:00+00:00', NULL, 'pending', ''),
	('w0', 'session', 'fork', 1, '2031-01-02 00:00:00+00:00', NULL, 'pending', ''),
	('w4', 'session', 'late', 1, '2031-01-01 00:00:00+00:00', NULL, 'pending', ''),
	('w1', 'session', 'live', 1, '2031-01-01 00:00:00+00:00', NULL, 'pending', ''),
	('w1', 'task', 't1', 1, '2031-01-01 00:00:00+00:00', NULL, 'pending', ''),
	('w2', 'session', 'parked', 2, '2031-01-01 00:00:00+00:00', '2031-01-02 00:00:00+00:00', 'preserved', 'modified'),
	('w3', 'session', 'done', 1, '2031-01-01 00:00:00+00:00', '2031-01-02 00:00:00+00:00', 'removed', ''),
	('w3', 'session', 'forgotten', 1, '2031-01-01 00:00:00+00:00', '2031-01-02 00:00:00+00:00', 'retained', '');
INSERT INTO resources (id, session_id, generation, kind, path) VALUES ('x1', 'parked', 2, 'dir', '/state/parked');
INSERT INTO finalizations (holder_kind, holder_id, generation, round, parked_at, parked_reason, outcome, finished_at) VALUES
	('session', 'parked', 2, 3, '2031-01-02 00:00:00+00:00', 'preserved', 'preserved', NULL),
	('session', 'done', 1, 1, NULL, '', 'finalized', '2031-01-02 00:00:00+00:00');
`

// taskLeases is the version that gives open tasks what their sessions hold.
const taskLeases = 6

func bothDialects(t *testing.T, test func(t *testing.T, at location)) {
	t.Parallel()
	for _, dialect := range []Dialect{SQLite, Postgres} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			url := "sqlite://" + filepath.Join(t.TempDir(), "unwind.db")
			if dialect == Postgres {
				url = pgtest.Database(t)
			}
			at, err := locate(url)
			require.NoError(t, err)
			test(t, at)
		})
	}
}

// upTo are the migrations of a version that landed, and of all before it.
func upTo(t *testing.T, at location, version int64) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{}
	names, err := fs.Glob(at.migrations(), "*.sql")
	require.NoError(t, err)
	for _, name := range names {
		number, err := goose.NumericComponent(name)
		require.NoError(t, err)
		if number > version {
			continue
		}
		content, err := fs.ReadFile(at.migrations(), name)
		require.NoError(t, err)
		files[name] = &fstest.MapFile{Data: content}
	}
	return files
}

// populate makes a database of the version, with facts in it.
func populate(t *testing.T, at location, version int64) {
	t.Helper()
	_, err := at.migrate(t.Context(), upTo(t, at, version))
	require.NoError(t, err)
	db, err := at.connect(t.Context())
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec(populated)
	require.NoError(t, err)
}

func inventoryOf(t *testing.T, at location) inventory {
	t.Helper()
	db, err := at.connect(t.Context())
	require.NoError(t, err)
	defer db.Close()
	taken, err := takeInventory(t.Context(), db.DB, at.dialect)
	require.NoError(t, err)
	return taken
}

// tablesOf lists the tables, and the versions that were applied.
func tablesOf(t *testing.T, at location) (names []string, applied []int64) {
	t.Helper()
	db, err := at.connect(t.Context())
	require.NoError(t, err)
	defer db.Close()
	tables := "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
	if at.dialect == SQLite {
		tables = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
	}
	require.NoError(t, db.Select(&names, tables))
	require.NoError(t, db.Select(&applied, "SELECT version_id FROM "+migrations.Table+" ORDER BY version_id"))
	return names, applied
}

func TestEverySchemaThatLandedIsMigratedWithItsFacts(t *testing.T) {
	bothDialects(t, func(t *testing.T, at location) {
		landed := versions(at.migrations())
		for _, version := range landed[:len(landed)-1] {
			t.Run(fmt.Sprint(version), func(t *testing.T) {
				at := at
				switch at.dialect {
				case SQLite:
					at, _ = locate("sqlite://" + filepath.Join(t.TempDir(), "unwind.db"))
				case Postgres:
					at, _ = locate(pgtest.Database(t))
				}
				populate(t, at, version)
				before := inventoryOf(t, at)
				require.Len(t, before["leases"], 8)
				report, err := at.migrate(t.Context(), at.migrations())
				require.NoError(t, err)
				require.Equal(t, version, report.From)
				require.Equal(t, at.wantedVersion(), report.To)
				require.NotEmpty(t, report.Applied)
				after := inventoryOf(t, at)
				if version < taskLeases {
					const given = "w0 task t1 1"
					require.Equal(t, "NULL pending ", after["leases"][given])
					delete(after["leases"], given)
				}
				require.Equal(t, before, after)
				requireUsable(t, at)
				again, err := at.migrate(t.Context(), at.migrations())
				require.NoError(t, err)
				require.Empty(t, again.Applied)
				require.Empty(t, again.Snapshot)
				if at.dialect == Postgres {
					require.Empty(t, report.Snapshot)
					return
				}
				info, err := os.Stat(report.Snapshot)
				require.NoError(t, err)
				require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
				require.Equal(t, filepath.Dir(at.path), filepath.Dir(report.Snapshot))
				copied, err := locate("sqlite://" + report.Snapshot)
				require.NoError(t, err)
				require.Equal(t, before, inventoryOf(t, copied))
				_, err = Open(t.Context(), "sqlite://"+report.Snapshot)
				require.Equal(t, teardown.CodeSchemaVersion, teardown.CodeOf(err))
				require.ErrorContains(t, err, fmt.Sprintf("schema version %d", version))
			})
		}
	})
}

// requireUsable goes on with what was under way before the migration.
func requireUsable(t *testing.T, at location) {
	t.Helper()
	db, err := at.connect(t.Context())
	require.NoError(t, err)
	s := &Store{db: db, at: at, writing: make(chan struct{}, 1)}
	defer s.Close()
	begun, err := s.Begin(t.Context(), teardown.BeginInput{SessionID: "parked"})
	require.NoError(t, err)
	require.Equal(t, teardown.ReasonPreserved, begun.ParkedReason)
	require.Equal(t, teardown.Step{SessionID: "parked", Generation: 2, Round: 3}, begun.Step)
	_, err = s.BeginTurn(t.Context(), "live", "t1", "test")
	require.NoError(t, err)
	_, changed, err := s.Terminate(t.Context(), "live", "test")
	require.NoError(t, err)
	require.True(t, changed)
}

func TestAMigrationThatLosesAFactIsRolledBack(t *testing.T) {
	bothDialects(t, func(t *testing.T, at location) {
		newest := at.wantedVersion()
		populate(t, at, newest)
		before := inventoryOf(t, at)
		for name, statement := range map[string]string{
			"lease gone":       "DELETE FROM leases WHERE holder_id = 'forgotten'",
			"quarantine gone":  "UPDATE worktrees SET quarantine_path = '' WHERE id = 'w2'",
			"made live":        "UPDATE sessions SET terminated_at = NULL WHERE id = 'done'",
			"a table replaced": "DROP TABLE resources",
		} {
			files := upTo(t, at, newest)
			files["00999_lose.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + statement + ";\n")}
			_, err := at.migrate(t.Context(), files)
			require.Equal(t, teardown.CodeSchemaVersion, teardown.CodeOf(err), "%s: %v", name, err)
			require.ErrorContains(t, err, "00999_lose.sql failed; the database is as it was before", name)
			require.Equal(t, before, inventoryOf(t, at), name)
		}
		files := upTo(t, at, newest)
		files["00999_add.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nALTER TABLE hosts ADD COLUMN colour TEXT NOT NULL DEFAULT '';\n")}
		_, err := at.migrate(t.Context(), files)
		require.NoError(t, err)
		require.Equal(t, before, inventoryOf(t, at))
	})
}

func TestSeveralMigrationsAreOneTransaction(t *testing.T) {
	bothDialects(t, func(t *testing.T, at location) {
		populate(t, at, 1)
		before := inventoryOf(t, at)
		tables, applied := tablesOf(t, at)
		for name, last := range map[string]string{"refused": "DELETE FROM leases WHERE holder_id = 'forgotten'", "in error": "CREATE TABLE broken ("} {
			files := upTo(t, at, at.wantedVersion())
			files["00998_add.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE added (id TEXT);\n")}
			files["00999_last.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + last + ";\n")}
			report, err := at.migrate(t.Context(), files)
			require.Equal(t, teardown.CodeSchemaVersion, teardown.CodeOf(err), "%s: %v", name, err)
			require.ErrorContains(t, err, "00999_last.sql failed; the database is as it was before", name)
			require.Empty(t, report.Applied, name)
			require.Equal(t, before, inventoryOf(t, at), name)
			tablesNow, appliedNow := tablesOf(t, at)
			require.Equal(t, tables, tablesNow, name)
			require.Equal(t, applied, appliedNow, name)
		}
		report, err := at.migrate(t.Context(), at.migrations())
		require.NoError(t, err)
		require.Equal(t, at.wantedVersion(), report.To)
	})
}

func TestAMigrationThatIsMissingInBetweenIsApplied(t *testing.T) {
	bothDialects(t, func(t *testing.T, at location) {
		files := fstest.MapFS{
			"00001_one.sql":   {Data: []byte("-- +goose Up\nCREATE TABLE one (id TEXT);\n")},
			"00003_three.sql": {Data: []byte("-- +goose Up\nCREATE TABLE three (id TEXT);\n")},
		}
		_, err := at.migrate(t.Context(), files)
		require.NoError(t, err)
		files["00002_two.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE two (id TEXT);\n")}
		report, err := at.migrate(t.Context(), files)
		require.NoError(t, err)
		require.Equal(t, int64(1), report.From, "the first that is missing counts")
		require.Equal(t, int64(3), report.To)
		require.Equal(t, []string{"00002_two.sql"}, report.Applied)
	})
}

// A transaction sees one schema from its beginning to its end.
func TestMigratingWaitsForTransactions(t *testing.T) {
	bothDialects(t, func(t *testing.T, at location) {
		s := migratedStore(t, at)
		files := withOneMore(t, at, "CREATE TABLE added (id TEXT)")
		migrated := make(chan error, 1)
		require.NoError(t, s.write(t.Context(), func(tx queries) error {
			go func() {
				_, err := at.migrate(context.Background(), files)
				migrated <- err
			}()
			select {
			case err := <-migrated:
				return fmt.Errorf("it did not wait: %w", err)
			case <-time.After(300 * time.Millisecond):
			}
			_, err := tx.exec(t.Context(), "INSERT INTO hosts (id, name, last_seen) VALUES ('h1', 'one', ?)", now())
			return err
		}))
		require.NoError(t, <-migrated)
		err := s.write(t.Context(), func(queries) error { return nil })
		require.Equal(t, teardown.CodeSchemaVersion, teardown.CodeOf(err))
	})
}

func TestMigratingWaitsForATransactionForALimitedTime(t *testing.T) {
	t.Parallel()
	at, err := locate(pgtest.Database(t))
	require.NoError(t, err)
	s := migratedStore(t, at)
	at.migrationPatience = 300 * time.Millisecond
	require.NoError(t, s.write(t.Context(), func(queries) error {
		_, err := at.migrate(t.Context(), withOneMore(t, at, "CREATE TABLE added (id TEXT)"))
		require.Equal(t, teardown.CodeDatabaseUnavailable, teardown.CodeOf(err))
		require.ErrorContains(t, err, "stop the workers, then migrate again")
		return nil
	}))
	require.NoError(t, s.write(t.Context(), func(queries) error { return nil }), "nothing was migrated")
}

func TestATransactionThatBeginsWhileItIsMigratedSeesWhatComesOfIt(t *testing.T) {
	t.Parallel()
	at, err := locate(pgtest.Database(t))
	require.NoError(t, err)
	s := migratedStore(t, at)
	migrated := make(chan error, 1)
	files := withOneMore(t, at, "SELECT pg_sleep(1)")
	go func() {
		_, err := at.migrate(context.Background(), files)
		migrated <- err
	}()
	require.Eventually(t, func() bool {
		var locked bool
		require.NoError(t, s.db.Get(&locked, "SELECT COUNT(*) > 0 FROM pg_locks WHERE granted AND mode = 'AccessExclusiveLock' AND relation = to_regclass($1)", migrations.Table))
		return locked
	}, time.Minute, 5*time.Millisecond)
	for name, begin := range map[string]func(context.Context, func(queries) error) error{"write": s.write, "read": s.read} {
		err := begin(t.Context(), func(queries) error { return nil })
		require.ErrorContains(t, err, "schema version 999", name)
	}
	require.NoError(t, <-migrated)
}

func migratedStore(t *testing.T, at location) *Store {
	t.Helper()
	_, err := at.migrate(t.Context(), at.migrations())
	require.NoError(t, err)
	db, err := at.connect(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return newStore(db, at)
}

func withOneMore(t *testing.T, at location, statement string) fstest.MapFS {
	t.Helper()
	files := upTo(t, at, at.wantedVersion())
	files["00999_last.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + statement + ";\n")}
	return files
}

func TestMigratingWaitsForAnotherOneForALimitedTime(t *testing.T) {
	t.Parallel()
	at, err := locate(pgtest.Database(t))
	require.NoError(t, err)
	db, err := at.connect(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	other, err := db.DB.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, lockMigration(t.Context(), other, time.Minute))
	at.migrationPatience = 300 * time.Millisecond
	_, err = at.migrate(t.Context(), at.migrations())
	require.Equal(t, teardown.CodeDatabaseUnavailable, teardown.CodeOf(err))
	require.ErrorContains(t, err, "Another process is migrating the database; try again when it is done")
	var free bool
	require.NoError(t, other.QueryRowContext(context.Background(), "SELECT pg_advisory_unlock($1)", lock.DefaultLockID).Scan(&free))
	require.True(t, free, "it is the lock that goose takes, too")
	require.NoError(t, other.Close())
	_, err = at.migrate(t.Context(), at.migrations())
	require.NoError(t, err)
}
