package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"unwind/migrations"
	"unwind/teardown"
)

// MigrationReport says what Migrate did.
type MigrationReport struct {
	From, To int64    // schema versions
	Applied  []string // file names, in the order in which they ran
}

// Migrate brings the database at url to this program's schema version; a
// missing SQLite file is made. Several at once wait for each other. A database
// of a newer version is left as it is: CodeSchemaVersion.
func Migrate(ctx context.Context, url string) (MigrationReport, error) {
	at, err := locate(url)
	if err != nil {
		return MigrationReport{}, err
	}
	if at.dialect == SQLite {
		if _, err := at.inspectFile(); err != nil {
			return MigrationReport{}, err
		}
	}
	return at.migrate(ctx)
}

// SchemaVersion answers the version of the database at url, 0 if it was never
// migrated, and the one that this program needs. It writes nothing.
func SchemaVersion(ctx context.Context, url string) (have, want int64, err error) {
	at, err := locate(url)
	if err != nil {
		return 0, 0, err
	}
	want = at.wantedVersion()
	if at.dialect == SQLite {
		if empty, err := at.inspectFile(); err != nil || empty {
			return 0, want, err
		}
	}
	db, err := at.connect(ctx)
	if err != nil {
		return 0, want, err
	}
	defer db.Close()
	have, err = appliedVersion(ctx, queries{db}, at.dialect)
	return have, want, at.explain(err)
}

// migrate runs what is missing. SQLite has no lock for this that spans several
// transactions, hence the file.
func (l location) migrate(ctx context.Context) (report MigrationReport, err error) {
	if l.dialect == SQLite {
		if err := l.create(); err != nil {
			return report, err
		}
		held, err := lockFile(ctx, l.path+".lock")
		if err != nil {
			return report, err
		}
		defer held.Close()
	}
	db, err := l.connectToMigrate(ctx)
	if err != nil {
		return report, err
	}
	defer db.Close()
	report.From, err = appliedVersion(ctx, queries{db}, l.dialect)
	if err != nil {
		return report, l.explain(err)
	}
	if report.From > l.wantedVersion() {
		return report, l.checkVersion(report.From)
	}
	if l.dialect == SQLite && report.From == 0 {
		blank, err := isBlank(ctx, queries{db})
		if err != nil {
			return report, l.explain(err)
		}
		if !blank {
			return report, l.anothersDatabase()
		}
	}
	provider, err := l.provider(db.DB, l.migrations())
	if err != nil {
		return report, l.explain(err)
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return report, l.migrationFailed(err)
	}
	for _, result := range results {
		report.Applied = append(report.Applied, result.Source.Path)
	}
	report.To, err = appliedVersion(ctx, queries{db}, l.dialect)
	return report, l.explain(err)
}

// connectToMigrate opens connections apart from the store's. SQLite's enforce
// no foreign keys, since rebuilding a table drops the old one; checkedStore
// looks at the result instead.
func (l location) connectToMigrate(ctx context.Context) (*sqlx.DB, error) {
	if l.dialect == SQLite {
		l.dsn = sqliteDSN(l.path, "foreign_keys(0)")
	}
	return l.connect(ctx)
}

func (l location) migrations() fs.FS {
	if l.dialect == SQLite {
		return migrations.SQLite()
	}
	return migrations.Postgres()
}

func (l location) provider(db *sql.DB, files fs.FS) (*goose.Provider, error) {
	quiet := goose.WithSlog(slog.New(slog.DiscardHandler))
	if l.dialect == SQLite {
		store, err := database.NewStore(database.DialectSQLite3, migrations.Table)
		if err != nil {
			return nil, err
		}
		return goose.NewProvider(goose.DialectCustom, db, files, quiet,
			goose.WithDisableGlobalRegistry(true), goose.WithStore(checkedStore{store}))
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, files, quiet,
		goose.WithDisableGlobalRegistry(true), goose.WithTableName(migrations.Table), goose.WithSessionLocker(locker))
}

// checkedStore refuses a migration of SQLite that leaves a dangling reference.
// Its Insert is the last statement in the migration's transaction.
type checkedStore struct{ database.Store }

func (c checkedStore) Insert(ctx context.Context, db database.DBTxConn, request database.InsertRequest) error {
	rows, err := db.QueryContext(ctx, "SELECT DISTINCT \"table\" FROM pragma_foreign_key_check")
	if err != nil {
		return err
	}
	defer rows.Close()
	var broken []string
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return err
		}
		broken = append(broken, table)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if len(broken) > 0 {
		return fmt.Errorf("rows of %s would refer to rows that do not exist", strings.Join(broken, ", "))
	}
	return c.Store.Insert(ctx, db, request)
}

func (l location) migrationFailed(err error) error {
	if troubleOf(err) == troubleAway {
		return l.explain(err)
	}
	message := "The database could not be migrated and is as it was before the migration that failed"
	var partial *goose.PartialError
	if errors.As(err, &partial) {
		message = fmt.Sprintf("Migration %s failed; the database is as it was before it", partial.Failed.Source.Path)
	}
	return &teardown.Error{Code: teardown.CodeSchemaVersion, Message: message, Cause: l.redact(err)}
}

// wantedVersion is the newest version among the embedded migrations.
func (l location) wantedVersion() int64 {
	var newest int64
	names, _ := fs.Glob(l.migrations(), "*.sql")
	for _, name := range names {
		if version, err := goose.NumericComponent(name); err == nil {
			newest = max(newest, version)
		}
	}
	return newest
}

// appliedVersion reads goose's table without making it, as goose would.
func appliedVersion(ctx context.Context, q queries, dialect Dialect) (int64, error) {
	exists := "SELECT to_regclass(?) IS NOT NULL"
	if dialect == SQLite {
		exists = "SELECT COUNT(*) > 0 FROM sqlite_master WHERE type = 'table' AND name = ?"
	}
	var migrated bool
	if _, err := q.one(ctx, &migrated, exists, migrations.Table); err != nil || !migrated {
		return 0, err
	}
	var version int64
	_, err := q.one(ctx, &version, "SELECT COALESCE(MAX(version_id), 0) FROM "+migrations.Table+" WHERE is_applied")
	return version, err
}

// isBlank reports whether a SQLite file has no tables but goose's, as a crash
// during the first use leaves it.
func isBlank(ctx context.Context, q queries) (bool, error) {
	var blank bool
	_, err := q.one(ctx, &blank,
		"SELECT COUNT(*) = 0 FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name <> ?", migrations.Table)
	return blank, err
}

func (l location) anothersDatabase() error {
	return &teardown.Error{Code: teardown.CodeSchemaVersion, Message: fmt.Sprintf(
		"%s is another program's database; name another file in UNWIND_DATABASE_URL", l.path)}
}

func (l location) checkVersion(have int64) error {
	want := l.wantedVersion()
	switch {
	case have == want:
		return nil
	case have == 0 && l.dialect == SQLite:
		return l.anothersDatabase()
	case have == 0:
		return &teardown.Error{Code: teardown.CodeSchemaVersion,
			Message: "The database holds no facts of unwind yet; run `unwind migrate`"}
	case have < want:
		return &teardown.Error{Code: teardown.CodeSchemaVersion, Message: fmt.Sprintf(
			"The database has schema version %d and this unwind needs %d; run `unwind migrate`", have, want)}
	}
	return &teardown.Error{Code: teardown.CodeSchemaVersion, Message: fmt.Sprintf(
		"The database has schema version %d and this unwind knows only %d; upgrade unwind", have, want)}
}
