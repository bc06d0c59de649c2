package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/migrations"
	"unwind/teardown"
	"unwind/test/pgtest"
)

func TestAMissingSQLiteFileIsMade(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state", "un wind?#%25é.db")
	at := (&url.URL{Scheme: "sqlite", Path: path}).String()
	s := open(t, at)
	require.Equal(t, store.SQLite, s.Dialect())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "it names paths and processes")
	directory, err := os.Stat(filepath.Dir(path))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), directory.Mode().Perm())
	have, want, err := store.SchemaVersion(ctx, at)
	require.NoError(t, err)
	require.Equal(t, want, have)
	require.NotZero(t, have)
}

func TestAnEmptySQLiteFileIsMigrated(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "empty.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	open(t, "sqlite://"+path)

	// A crash during the first use leaves goose's table at most.
	blank := filepath.Join(t.TempDir(), "blank.db")
	db, err := sql.Open("sqlite", blank)
	require.NoError(t, err)
	_, err = db.Exec("CREATE TABLE " + migrations.Table + " (id INTEGER PRIMARY KEY AUTOINCREMENT, version_id INTEGER NOT NULL, is_applied INTEGER NOT NULL, tstamp TIMESTAMP DEFAULT (datetime('now')))")
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO " + migrations.Table + " (version_id, is_applied) VALUES (0, 1)")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	open(t, "sqlite://"+blank)
}

func TestAFileThatIsNotADatabaseIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "notes.txt")
	content := strings.Repeat("not a database, but somebody's notes\n", 100)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	for _, call := range calls {
		requireCode(t, teardown.CodeDatabaseUnavailable, false, call("sqlite://"+path))
		requireCode(t, teardown.CodeDatabaseUnavailable, false, call("sqlite://"+dir))
	}
	now, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, content, string(now))
	requireOnly(t, dir, "notes.txt")
}

var calls = map[string]func(url string) error{
	"Open": func(url string) error {
		s, err := store.Open(ctx, url)
		if err == nil {
			_ = s.Close()
		}
		return err
	},
	"Migrate":       func(url string) error { _, err := store.Migrate(ctx, url); return err },
	"SchemaVersion": func(url string) error { _, _, err := store.SchemaVersion(ctx, url); return err },
}

func requireOnly(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	require.Equal(t, names, found)
}

func TestAnotherProgramsDatabaseIsLeftAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "other.db")
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	_, err = db.Exec("CREATE TABLE photos (id INTEGER PRIMARY KEY)")
	require.NoError(t, err)
	requireCode(t, teardown.CodeSchemaVersion, false, calls["Open"]("sqlite://"+path))
	requireCode(t, teardown.CodeSchemaVersion, false, calls["Migrate"]("sqlite://"+path))
	var tables int
	require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM sqlite_master").Scan(&tables))
	require.Equal(t, 1, tables)
	require.NoError(t, db.Close())
}

func TestSchemaVersionWritesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	have, want, err := store.SchemaVersion(ctx, "sqlite://"+filepath.Join(dir, "missing.db"))
	require.NoError(t, err)
	require.Zero(t, have)
	require.NotZero(t, want)
	requireOnly(t, dir)

	empty := pgtest.Database(t)
	have, _, err = store.SchemaVersion(ctx, empty)
	require.NoError(t, err)
	require.Zero(t, have)
	requireCode(t, teardown.CodeSchemaVersion, false, calls["Open"](empty))
}

func TestAnUnmigratedPostgresSaysWhatToRun(t *testing.T) {
	t.Parallel()
	at := pgtest.Database(t)
	err := calls["Open"](at)
	requireCode(t, teardown.CodeSchemaVersion, false, err)
	require.ErrorContains(t, err, "`unwind migrate`")
	report, err := store.Migrate(ctx, at)
	require.NoError(t, err)
	_, want, err := store.SchemaVersion(ctx, at)
	require.NoError(t, err)
	require.Equal(t, int64(0), report.From)
	require.Equal(t, want, report.To)
	require.Equal(t, "00001_facts.sql", report.Applied[0])
	open(t, at)
	report, err = store.Migrate(ctx, at)
	require.NoError(t, err)
	require.Equal(t, store.MigrationReport{From: want, To: want}, report)
}

func TestAnotherSchemaVersionIsRefused(t *testing.T) {
	t.Parallel()
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			b := setup(t, dialect)
			b.session("s1")
			b.exec("INSERT INTO " + migrations.Table + " (version_id, is_applied) VALUES (99, TRUE)")
			for _, name := range []string{"Open", "Migrate"} {
				err := calls[name](b.url)
				requireCode(t, teardown.CodeSchemaVersion, false, err)
				require.ErrorContains(t, err, "upgrade unwind")
			}
			have, _, err := store.SchemaVersion(ctx, b.url)
			require.NoError(t, err)
			require.Equal(t, int64(99), have)
		})
	}
}

// A store that is open knows one schema: under another it neither reads nor writes.
func TestASchemaThatIsMigratedMeanwhileIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, dialect := range dialects {
		for says, change := range map[string]string{
			"upgrade unwind":       "INSERT INTO " + migrations.Table + " (version_id, is_applied) VALUES (99, TRUE)",
			"run `unwind migrate`": "DELETE FROM " + migrations.Table + " WHERE version_id > 1",
		} {
			t.Run(string(dialect)+" "+says, func(t *testing.T) {
				t.Parallel()
				b := setup(t, dialect)
				b.session("s1")
				require.NoError(t, b.Outdated())
				b.exec(change)
				_, _, err := b.Terminate(ctx, "s1", "test")
				requireCode(t, teardown.CodeSchemaVersion, false, err)
				require.ErrorContains(t, err, says)
				require.Equal(t, err, b.Outdated())
				_, err = b.Session(ctx, "s1")
				requireCode(t, teardown.CodeSchemaVersion, false, err)
				var terminated int
				require.NoError(t, b.DB().Get(&terminated, "SELECT COUNT(*) FROM sessions WHERE terminated_at IS NOT NULL"))
				require.Zero(t, terminated)
			})
		}
	}
}

func TestManyMigrateAtOnce(t *testing.T) {
	t.Parallel()
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			at := "sqlite://" + filepath.Join(t.TempDir(), "new.db")
			call := calls["Open"] // makes it
			if dialect == store.Postgres {
				at, call = pgtest.Database(t), calls["Migrate"]
			}
			errs := make([]error, 4)
			var functions []func()
			for i := range errs {
				functions = append(functions, func() { errs[i] = call(at) })
			}
			together(functions...)
			for _, err := range errs {
				require.NoError(t, err)
			}
			b := open(t, at)
			var versions int
			require.NoError(t, b.DB().Get(&versions, "SELECT COUNT(*) FROM "+migrations.Table+" WHERE version_id = 1"))
			require.Equal(t, 1, versions)
		})
	}
}

func TestBothSchemasAreTheSame(t *testing.T) {
	t.Parallel()
	type column struct {
		Table    string `db:"table_name"`
		Name     string `db:"column_name"`
		Nullable bool   `db:"nullable"`
	}
	var inSQLite, inPostgres []column
	require.NoError(t, setup(t, store.SQLite).DB().Select(&inSQLite, `
		SELECT m.name AS table_name, c.name AS column_name, NOT c."notnull" AS nullable
		FROM sqlite_master m JOIN pragma_table_info(m.name) c
		WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%' AND m.name <> 'unwind_migrations'
			AND m.name <> 'terminations' -- in place of Postgres' NOTIFY
		ORDER BY 1, 2`))
	require.NoError(t, setup(t, store.Postgres).DB().Select(&inPostgres, `
		SELECT table_name, column_name, is_nullable = 'YES' AS nullable FROM information_schema.columns
		WHERE table_schema = 'public' AND table_name <> 'unwind_migrations' ORDER BY table_name COLLATE "C", column_name COLLATE "C"`))
	require.Equal(t, inSQLite, inPostgres)
	require.Greater(t, len(inSQLite), 80)
}

func TestADatabaseThatIsAwayIsRetryable(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, refused.Close())
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, at := range map[string]string{
		"refused":            fmt.Sprintf("postgres://u:sekrit@%s/db?sslmode=disable", refused.Addr()),
		"silent":             fmt.Sprintf("postgres://u:sekrit@%s/db?sslmode=disable&connect_timeout=1", silent.Addr()),
		"no socket":          "postgres://u:sekrit@/db?sslmode=disable&host=" + t.TempDir(),
		"no such database":   strings.Replace(pgtest.Database(t), "unwind_test_", "not_there_", 1),
		"below a plain file": "sqlite://" + file + "/unwind.db",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			short, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			_, err := store.Open(short, at)
			requireCode(t, teardown.CodeDatabaseUnavailable, true, err)
			require.NotContains(t, err.Error(), "sekrit")
			_, err = store.Migrate(short, at)
			requireCode(t, teardown.CodeDatabaseUnavailable, true, err)
		})
	}
}

func TestAURLThatCannotBeUsedIsExplainedWithoutItsPassword(t *testing.T) {
	t.Parallel()
	for _, at := range []string{
		"", "unwind.db", "/abs/unwind.db", "mysql://u:sekrit@h/db", "sqlite://relative.db", "sqlite::memory:", "sqlite://u:sekrit@/x.db",
		"sqlite:///x.db?mode=sekrit", "sqlite:///a%00b", "postgres://u:sekrit%zz@h/db", "postgres://u:sek rit@h/db",
		"postgres://u:sekrit@h:port/db", "postgres://u:p@h/db?sslmode=nonsense&password=sekrit", "://sekrit",
	} {
		for name, call := range calls {
			err := call(at)
			requireCode(t, "invalid_config", false, err)
			require.NotContains(t, err.Error(), "sekrit", "%s(%q)", name, at)
			require.NotContains(t, err.Error(), "sek rit", "%s(%q)", name, at)
		}
	}
}

// A restart of the server breaks pooled connections, not the program.
func TestAStoreSurvivesItsConnections(t *testing.T) {
	t.Parallel()
	b := setup(t, store.Postgres)
	b.session("s1")
	admin := open(t, b.url)
	for range 3 {
		_, err := admin.DB().Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, err := b.Session(ctx, "s1")
			if err != nil {
				requireCode(t, teardown.CodeDatabaseUnavailable, true, err)
			}
			return err == nil
		}, time.Minute, 10*time.Millisecond)
	}
}

// The first use by several programs at once: who comes while another one makes
// the database waits for it.
func TestSeveralOpenADatabaseThatIsMadeMeanwhile(t *testing.T) {
	t.Parallel()
	for range 10 {
		url := "sqlite://" + filepath.Join(t.TempDir(), "unwind.db")
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() {
				time.Sleep(time.Duration(n) * 5 * time.Millisecond)
				s, err := store.Open(context.Background(), url)
				if err != nil {
					t.Error(err)
					return
				}
				_ = s.Close()
			})
		}
		all.Wait()
	}
}
