package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
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
	// Snapshot is a copy of the SQLite database as it was before; "" if there was
	// nothing to copy. It is never deleted.
	Snapshot string
}

// Migrate brings the database at url to this program's schema version; a
// missing SQLite file is made. Several at once wait for each other, for at most
// five minutes. A database of a newer version is left as it is:
// CodeSchemaVersion.
//
// A SQLite database with facts is copied first, to a file beside it. All that is
// missing is one transaction, which fails, and leaves the database as it was, if
// a fact would be lost or changed by it.
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
	return at.migrate(ctx, at.migrations())
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
	have, err = at.appliedVersion(ctx, queries{db}, at.migrations())
	return have, want, at.explain(err)
}

// migrate runs what is missing of these files, all or nothing. On SQLite a file
// lock goes around it, so that the copy is that of what is migrated and only the
// first of several makes one.
func (l location) migrate(ctx context.Context, files fs.FS) (report MigrationReport, err error) {
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
	report.From, err = l.appliedVersion(ctx, queries{db}, files)
	if err != nil {
		return report, l.explain(err)
	}
	newest := newestVersion(files)
	if report.From > newest {
		return report, l.checkVersion(report.From)
	}
	if l.dialect == SQLite {
		if err := l.beforeMigrating(ctx, db, &report, newest); err != nil {
			return report, err
		}
	}
	provider, err := l.provider(ctx, db.DB, files)
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
	report.To, err = l.appliedVersion(ctx, queries{db}, files)
	return report, l.explain(err)
}

// beforeMigrating refuses a file of another program, and copies one that holds
// facts and is about to be changed.
func (l location) beforeMigrating(ctx context.Context, db *sqlx.DB, report *MigrationReport, newest int64) error {
	if report.From == 0 {
		blank, err := isBlank(ctx, queries{db})
		if err == nil && !blank {
			err = l.anothersDatabase()
		}
		return l.explain(err)
	}
	if report.From == newest {
		return nil
	}
	var err error
	report.Snapshot, err = l.snapshot(ctx, db, report.From)
	return err
}

// snapshot copies the database, with what its journal holds, to a new file beside
// it that only its owner can read.
func (l location) snapshot(ctx context.Context, db *sqlx.DB, version int64) (string, error) {
	path := fmt.Sprintf("%s.v%d-%s", l.path, version, time.Now().UTC().Format("20060102T150405.000000Z"))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = file.Close()
	}
	if err == nil {
		_, err = db.ExecContext(ctx, "VACUUM INTO ?", path)
	}
	if err != nil {
		_ = os.Remove(path)
		return "", &teardown.Error{Code: teardown.CodeDatabaseUnavailable, Retryable: true, Cause: err, Message: fmt.Sprintf(
			"No copy of the database could be made at %s, so it was not migrated; check that there is room on the disk", path)}
	}
	return path, nil
}

// connectToMigrate opens connections apart from the store's. SQLite's enforce
// no foreign keys, since rebuilding a table drops the old one; allOrNothing looks
// at the result instead.
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

func (l location) provider(ctx context.Context, db *sql.DB, files fs.FS) (*goose.Provider, error) {
	dialect := database.DialectPostgres
	if l.dialect == SQLite {
		dialect = database.DialectSQLite3
	}
	store, err := database.NewStore(dialect, migrations.Table)
	if err != nil {
		return nil, err
	}
	whole := &allOrNothing{Store: store, at: l, wanted: versions(files)}
	if l.dialect == Postgres {
		if err := whole.makeTable(ctx, db); err != nil {
			return nil, err
		}
	}
	return goose.NewProvider(goose.DialectCustom, db, files,
		goose.WithSlog(slog.New(slog.DiscardHandler)), goose.WithDisableGlobalRegistry(true),
		goose.WithStore(whole), goose.WithSessionLocker(whole),
		// Has goose begin no transactions of its own.
		goose.WithIsolateDDL(true),
		// Two branches of development may have taken their numbers in another order
		// than that in which they came together.
		goose.WithAllowOutofOrder(true),
	)
}

// allOrNothing makes all that goose does one transaction: goose does it on the
// one connection that it has locked, and unlocks when it is done. It refuses
// migrations that lose or change a fact, or, on SQLite, leave a dangling
// reference.
type allOrNothing struct {
	database.Store
	at     location
	wanted []int64
	before inventory
}

// makeTable makes the table of versions with its first row at once. Goose would do
// it in two steps and before it locks, so that another process could find the table
// empty, which it takes for a fault.
func (m *allOrNothing) makeTable(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", lock.DefaultLockID+1); err != nil {
		return err
	}
	if there, err := m.TableExists(ctx, tx); err != nil || there {
		return err
	}
	if err := m.CreateVersionTable(ctx, tx); err != nil {
		return err
	}
	if err := m.Store.Insert(ctx, tx, database.InsertRequest{Version: 0}); err != nil {
		return err
	}
	return tx.Commit()
}

const defaultMigrationPatience = 5 * time.Minute

// SessionLock begins the transaction, after Postgres's advisory lock, which has
// the number that goose's own has, and a time limit. It waits for the transactions
// of stores, and they for it.
func (m *allOrNothing) SessionLock(ctx context.Context, conn *sql.Conn) error {
	begin, patience := "BEGIN", cmp.Or(m.at.migrationPatience, defaultMigrationPatience)
	if m.at.dialect == SQLite {
		begin = "BEGIN IMMEDIATE"
	} else if err := lockMigration(ctx, conn, patience); err != nil {
		return err
	}
	_, err := conn.ExecContext(ctx, begin)
	if err == nil && m.at.dialect == Postgres {
		err = m.excludeStores(ctx, conn, patience)
	}
	if err == nil {
		m.before, err = takeInventory(ctx, conn, m.at.dialect)
	}
	if err != nil {
		return errors.Join(err, m.unlock(context.WithoutCancel(ctx), conn, "ROLLBACK"))
	}
	return nil
}

// excludeStores locks the table of versions, which each transaction of a store
// reads first. Nothing waits longer for a lock than patience.
func (m *allOrNothing) excludeStores(ctx context.Context, conn *sql.Conn, patience time.Duration) error {
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", patience.Milliseconds())); err != nil {
		return err
	}
	if there, err := m.TableExists(ctx, conn); err != nil || !there {
		return err
	}
	_, err := conn.ExecContext(ctx, "LOCK TABLE "+migrations.Table+" IN ACCESS EXCLUSIVE MODE")
	var refused *pq.Error
	if errors.As(err, &refused) && refused.Code == lockNotAvailable {
		err = &teardown.Error{Code: teardown.CodeDatabaseUnavailable, Retryable: true, Cause: err,
			Message: "Somebody is at work in the database and does not come to an end, so it was not migrated; stop the workers, then migrate again"}
	}
	return err
}

const lockNotAvailable = "55P03"

// SessionUnlock commits if nothing is missing any more.
func (m *allOrNothing) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	if m.complete(ctx, conn) {
		return m.unlock(ctx, conn, "COMMIT")
	}
	return m.unlock(ctx, conn, "ROLLBACK")
}

// complete is false, too, if a statement has failed and Postgres answers nothing
// more.
func (m *allOrNothing) complete(ctx context.Context, conn *sql.Conn) bool {
	applied, err := m.ListMigrations(ctx, conn)
	if err != nil {
		return false
	}
	for _, version := range m.wanted {
		if !slices.ContainsFunc(applied, func(a *database.ListMigrationsResult) bool { return a.Version == version && a.IsApplied }) {
			return false
		}
	}
	return true
}

func (m *allOrNothing) unlock(ctx context.Context, conn *sql.Conn, end string) error {
	_, err := conn.ExecContext(ctx, end)
	if m.at.dialect == SQLite {
		return err
	}
	_, unlockErr := conn.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", lock.DefaultLockID)
	return errors.Join(err, unlockErr)
}

// TableExists keeps goose from finding out by a statement that fails, which would
// abort the transaction.
func (m *allOrNothing) TableExists(ctx context.Context, db database.DBTxConn) (bool, error) {
	return tableExists(ctx, db, m.at.dialect, m.Tablename())
}

// Insert follows each migration's last statement.
func (m *allOrNothing) Insert(ctx context.Context, db database.DBTxConn, request database.InsertRequest) error {
	if m.at.dialect == SQLite {
		if err := checkReferences(ctx, db); err != nil {
			return err
		}
	}
	after, err := takeInventory(ctx, db, m.at.dialect)
	if err != nil {
		return err
	}
	if lost := m.before.lost(after); len(lost) > 0 {
		return fmt.Errorf("%s; if somebody has changed them meanwhile, stop the workers and migrate again", strings.Join(lost, ", "))
	}
	return m.Store.Insert(ctx, db, request)
}

func lockMigration(ctx context.Context, conn *sql.Conn, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		var free bool
		if err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", lock.DefaultLockID).Scan(&free); err != nil && ctx.Err() == nil {
			return err
		}
		if free {
			return nil
		}
		select {
		case <-ctx.Done():
			return migratedElsewhere(ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func migratedElsewhere(cause error) error {
	return &teardown.Error{Code: teardown.CodeDatabaseUnavailable, Retryable: true, Cause: cause,
		Message: "Another process is migrating the database; try again when it is done"}
}

func checkReferences(ctx context.Context, db database.DBTxConn) error {
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
	return nil
}

func (l location) migrationFailed(err error) error {
	var ours *teardown.Error
	if errors.As(err, &ours) {
		return ours
	}
	if troubleOf(err) == troubleAway {
		return l.explain(err)
	}
	message := "The database could not be migrated and is as it was before"
	var partial *goose.PartialError
	if errors.As(err, &partial) {
		message = fmt.Sprintf("Migration %s failed; the database is as it was before", partial.Failed.Source.Path)
	}
	return &teardown.Error{Code: teardown.CodeSchemaVersion, Message: message, Cause: l.redact(err)}
}

// wantedVersion is the newest version among the embedded migrations.
func (l location) wantedVersion() int64 { return newestVersion(l.migrations()) }

func newestVersion(files fs.FS) int64 {
	all := versions(files)
	return all[len(all)-1]
}

// versions lists those of the files, in order.
func versions(files fs.FS) []int64 {
	var all []int64
	names, _ := fs.Glob(files, "*.sql")
	for _, name := range names {
		if version, err := goose.NumericComponent(name); err == nil {
			all = append(all, version)
		}
	}
	slices.Sort(all)
	return all
}

// appliedVersion reads goose's table without making it, as goose would. It is
// the last version up to which nothing is missing, or the newest one that was
// applied if that is newer than all of the files.
func (l location) appliedVersion(ctx context.Context, q queries, files fs.FS) (int64, error) {
	exists := "SELECT to_regclass(?) IS NOT NULL"
	if l.dialect == SQLite {
		exists = "SELECT COUNT(*) > 0 FROM sqlite_master WHERE type = 'table' AND name = ?"
	}
	var migrated bool
	if _, err := q.one(ctx, &migrated, exists, migrations.Table); err != nil || !migrated {
		return 0, err
	}
	var applied []int64
	if err := q.all(ctx, &applied, "SELECT version_id FROM "+migrations.Table+" WHERE is_applied AND version_id > 0 ORDER BY version_id"); err != nil || len(applied) == 0 {
		return 0, err
	}
	if newest := applied[len(applied)-1]; newest > newestVersion(files) {
		return newest, nil
	}
	var have int64
	for _, version := range versions(files) {
		if !slices.Contains(applied, version) {
			break
		}
		have = version
	}
	return have, nil
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
