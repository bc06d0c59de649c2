package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	_ "modernc.org/sqlite" // driver "sqlite"

	"unwind/teardown"
)

// Store is one database. It is safe for concurrent use.
type Store struct {
	db *sqlx.DB
	at location
	// writing is held by the one transaction that may write, for SQLite alone.
	// Waiting here is in turn; waiting for SQLite's own lock is not, and a busy
	// process would starve some of its own until they give up.
	writing chan struct{}
	// file is SQLite's, as it was opened.
	file fs.FileInfo
	// schema is the version that this program knows, outdated what was said when
	// another one was found.
	schema   int64
	outdated atomic.Pointer[teardown.Error]
}

func newStore(db *sqlx.DB, at location) *Store {
	return &Store{db: db, at: at, writing: make(chan struct{}, 1), schema: at.wantedVersion()}
}

// Open opens the database at url, "sqlite:///abs/path.db" or "postgres://…". It
// migrates nothing, except that a SQLite file that is missing or empty is made.
// A database of another version gives CodeSchemaVersion with the sentence what
// to run, one that does not answer CodeDatabaseUnavailable, a URL that cannot
// be used "invalid_config".
func Open(ctx context.Context, url string) (*Store, error) {
	at, err := locate(url)
	if err != nil {
		return nil, err
	}
	if at.dialect == SQLite {
		if err := at.makeFile(ctx); err != nil {
			return nil, err
		}
	}
	db, err := at.connect(ctx)
	if err != nil {
		return nil, err
	}
	s := newStore(db, at)
	if at.dialect == SQLite {
		if s.file, err = os.Stat(at.path); err != nil {
			_ = db.Close()
			return nil, at.cannotOpen(err)
		}
	}
	have, err := at.appliedVersion(ctx, queries{db}, at.migrations())
	if err == nil && have < at.wantedVersion() && at.awaitMigration(ctx) {
		have, err = at.appliedVersion(ctx, queries{db}, at.migrations())
	}
	if err == nil {
		err = at.checkVersion(have)
	}
	if err != nil {
		_ = db.Close()
		return nil, at.explain(err)
	}
	return s, nil
}

// awaitMigration waits for a process that makes or migrates a SQLite database at
// this moment. It reports whether there may have been one.
func (l location) awaitMigration(ctx context.Context) bool {
	lock := l.path + ".lock"
	if _, err := os.Stat(lock); l.dialect != SQLite || err != nil {
		return false
	}
	held, err := lockFile(ctx, lock)
	if err != nil {
		return false
	}
	_ = held.Close()
	return true
}

// Close closes the connections.
func (s *Store) Close() error { return s.at.explain(s.db.Close()) }

// Dialect says which database it is.
func (s *Store) Dialect() Dialect { return s.at.dialect }

// Ping asks whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.at.explain(s.db.PingContext(ctx))
}

// Lost says that the SQLite file that is open is not the one at its path any
// more: it was deleted or replaced, and what is written goes where nobody else
// looks. The error is CodeDatabaseUnavailable; nil if all is well, or if it could
// not be told.
func (s *Store) Lost() error {
	if s.at.dialect != SQLite {
		return nil
	}
	now, err := os.Stat(s.at.path)
	what := "replaced"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		what = "deleted"
	case err != nil || os.SameFile(now, s.file):
		return nil
	}
	return &teardown.Error{Code: teardown.CodeDatabaseUnavailable, Retryable: true, Message: fmt.Sprintf(
		"The database file %s was %s while it was open; put the right file there, with every program that has it open stopped, and start again", s.at.path, what)}
}

// Outdated says that the schema was migrated, or put back, while the database was
// open: under another version than this program's nothing is read or written. It
// is CodeSchemaVersion with the sentence what to run, and nil as long as no
// transaction has found another version.
func (s *Store) Outdated() error {
	if found := s.outdated.Load(); found != nil {
		return found
	}
	return nil
}

// Writable asks whether facts could be written, and writes none.
func (s *Store) Writable(ctx context.Context) error {
	nothing := errors.New("nothing is to be written")
	err := s.write(ctx, func(tx queries) error {
		// The databases refuse the statement, not what it would change.
		if _, err := tx.exec(ctx, "UPDATE hosts SET name = name WHERE id = ?", ""); err != nil {
			return s.at.explain(err)
		}
		return &teardown.Error{Cause: nothing}
	})
	if errors.Is(err, nothing) {
		return nil
	}
	return err
}

// NewID makes an id for a runtime, a worktree or a resource. Later ones sort
// after earlier ones, so that lists keep the order of the manifest.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// connect opens a pool and makes sure that the database answers.
func (l location) connect(ctx context.Context) (*sqlx.DB, error) {
	db, err := l.pool()
	if err != nil {
		return nil, &teardown.Error{Code: codeInvalidConfig, Cause: l.redact(err),
			Message: "The database URL cannot be used; check its options"}
	}
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(4)
	db.SetConnMaxIdleTime(5 * time.Minute)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		_ = db.Close()
		return nil, l.explain(err)
	}
	return db, nil
}

// pool opens no connection yet. It errs on options that the driver does not
// know.
func (l location) pool() (*sqlx.DB, error) {
	if l.dialect == SQLite {
		return sqlx.Open("sqlite", l.dsn)
	}
	connector, err := pq.NewConnector(l.dsn)
	if err != nil {
		return nil, err
	}
	return sqlx.NewDb(sql.OpenDB(connector), "postgres"), nil
}

// makeFile creates and migrates a SQLite database on its first use. A file that
// holds something else is left as it is.
func (l location) makeFile(ctx context.Context) error {
	empty, err := l.inspectFile()
	if err != nil {
		return err
	}
	if !empty {
		db, err := l.connect(ctx)
		if err != nil {
			return err
		}
		blank, err := isBlank(ctx, queries{db})
		if closeErr := db.Close(); err == nil {
			err = closeErr
		}
		if err != nil || !blank {
			return l.explain(err)
		}
	}
	_, err = l.migrate(ctx, l.migrations())
	return err
}

// inspectFile reports whether the file is missing or empty, without having
// SQLite open it, which would write beside it.
func (l location) inspectFile() (empty bool, err error) {
	info, err := os.Stat(l.path)
	if os.IsNotExist(err) {
		return true, nil
	}
	if err != nil {
		return false, l.cannotOpen(err)
	}
	if !info.Mode().IsRegular() {
		return false, l.notOurs(fmt.Errorf("it is a %s", fileKind(info.Mode())))
	}
	if info.Size() == 0 {
		return true, nil
	}
	file, err := os.Open(l.path)
	if err != nil {
		return false, l.cannotOpen(err)
	}
	defer file.Close()
	const magic = "SQLite format 3\x00"
	head := make([]byte, len(magic))
	if n, _ := file.Read(head); string(head[:n]) != magic {
		return false, l.notOurs(nil)
	}
	return false, nil
}

func fileKind(mode fs.FileMode) string {
	if mode.IsDir() {
		return "directory"
	}
	return "special file"
}

func (l location) cannotOpen(cause error) error {
	return &teardown.Error{Code: teardown.CodeDatabaseUnavailable, Retryable: true, Cause: cause, Message: fmt.Sprintf(
		"The database file %s cannot be opened; check that it and its directory may be read and written", l.path)}
}

// create makes the empty file, for its owner only: it names paths and processes.
func (l location) create() error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return l.cannotOpen(err)
	}
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return l.cannotOpen(err)
	}
	return file.Close()
}
