package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/lib/pq"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"unwind/teardown"
)

// trouble is what an error of a driver means for us.
type trouble int

const (
	troubleOther     trouble = iota
	troubleAway              // not reachable, too slow, full, or locked by others
	troubleCollision         // rolled back in favour of another transaction: run it again
	troubleSchema            // a table or column is missing
	troubleNotOurs           // the file is not a database
	troubleTaken             // the id is in use
	troubleReadOnly          // whoever asks may only read
)

// troubleOf is the one place that knows both drivers' errors.
func troubleOf(err error) trouble {
	var fromPostgres *pq.Error
	if errors.As(err, &fromPostgres) {
		return troubleOfPostgres(string(fromPostgres.Code))
	}
	var fromSQLite *sqlite.Error
	if errors.As(err, &fromSQLite) {
		return troubleOfSQLite(fromSQLite.Code())
	}
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.ECONNREFUSED),
		errors.Is(err, syscall.ENOENT), errors.As(err, &network):
		return troubleAway
	}
	return troubleOther
}

// troubleOfPostgres judges an SQLSTATE; the first two characters are its class.
func troubleOfPostgres(state string) trouble {
	switch state {
	case "40001", "40P01": // serialization failure, deadlock
		return troubleCollision
	case "23505": // unique violation
		return troubleTaken
	case "42P01", "42703", "3F000": // undefined table, column, schema
		return troubleSchema
	case "42501", "25006": // insufficient privilege, read-only transaction (a standby)
		return troubleReadOnly
	case "57014", lockNotAvailable, "3D000": // cancelled, lock not available, no such database
		return troubleAway
	}
	switch state[:min(2, len(state))] {
	case "08", "28", "53", "57", "58": // connection, authorization, resources, shutdown, system
		return troubleAway
	}
	return troubleOther
}

// troubleOfSQLite judges a result code, extended or not.
func troubleOfSQLite(code int) trouble {
	switch code {
	case sqlite3.SQLITE_BUSY_SNAPSHOT:
		return troubleCollision
	case sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE:
		return troubleTaken
	}
	switch code & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
		sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_PROTOCOL:
		return troubleAway
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return troubleReadOnly
	case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
		return troubleNotOurs
	}
	return troubleOther
}

// explain turns what a driver said into the error that callers get. An error
// that is ours already stays as it is.
func (l location) explain(err error) error {
	if err == nil {
		return nil
	}
	var ours *teardown.Error
	if errors.As(err, &ours) {
		return err
	}
	cause := l.redact(err)
	if errors.Is(err, pq.ErrSSLNotSupported) {
		return &teardown.Error{Code: codeInvalidConfig, Cause: cause,
			Message: "The Postgres server does not speak TLS, which it is asked for unless told otherwise; add sslmode=disable to UNWIND_DATABASE_URL if the network is your own"}
	}
	switch troubleOf(err) {
	case troubleAway, troubleCollision:
		return &teardown.Error{Code: teardown.CodeDatabaseUnavailable, Retryable: true, Cause: cause,
			Message: "The database did not do what it was asked; check that it runs, that UNWIND_DATABASE_URL names it and that its disk is not full"}
	case troubleReadOnly:
		return l.readOnly(cause)
	case troubleSchema:
		return &teardown.Error{Code: teardown.CodeSchemaVersion, Cause: cause,
			Message: "The database lacks a table that this version of unwind needs; run `unwind migrate`"}
	case troubleNotOurs:
		return l.notOurs(cause)
	case troubleTaken:
		return &teardown.Error{Code: teardown.CodeConflict, Cause: cause, Message: "An id is in use already; choose another"}
	}
	return &teardown.Error{Code: teardown.CodeInternal, Cause: cause,
		Message: "The database holds or was given something that unwind does not understand"}
}

// notOurs is the answer to a file that is no SQLite database, or a broken one.
func (l location) notOurs(cause error) error {
	return &teardown.Error{Code: teardown.CodeDatabaseUnavailable, Cause: cause, Message: fmt.Sprintf(
		"%s is not a SQLite database, or a broken one; name another file in UNWIND_DATABASE_URL or restore this one", l.path)}
}

// readOnly says who may write. It counts as retryable, because a finalization
// waits for a database and is not given up over one.
func (l location) readOnly(cause error) error {
	message := "The database may only be read by this user, or is a standby; name the primary in UNWIND_DATABASE_URL, with the user that owns the tables"
	if l.dialect == SQLite {
		message = fmt.Sprintf("This user may read, but not write the database; only the owner of %s and of its directory may, so run it as that user, or name another file in UNWIND_DATABASE_URL", l.path)
	}
	return &teardown.Error{Code: teardown.CodeDatabaseUnavailable, Retryable: true, Cause: cause, Message: message}
}

// internal is for what cannot happen unless a caller or a row is wrong.
func internal(format string, args ...any) error {
	return &teardown.Error{Code: teardown.CodeInternal, Message: fmt.Sprintf(format, args...)}
}

func sessionNotFound(id string) error {
	return &teardown.Error{Code: teardown.CodeSessionNotFound, Message: fmt.Sprintf(
		"There is no session %s; `unwind list` shows those that are known", id)}
}

func sessionLive(id string) error {
	return &teardown.Error{Code: teardown.CodeSessionLive, Message: fmt.Sprintf(
		"Session %s is live; run `unwind terminate %s` first", id, id)}
}

func taskNotFound(id string) error {
	return &teardown.Error{Code: teardown.CodeTaskNotFound, Message: fmt.Sprintf(
		"There is no task %s; `unwind task list` shows those that are known", id)}
}

func taskActive(id string) error {
	return &teardown.Error{Code: teardown.CodeTaskActive, Message: fmt.Sprintf(
		"Task %s is active; run `unwind task archive %s` or `unwind task delete %s` first", id, id, id)}
}

func notFound(me Holder) error {
	if me.Kind == HolderTask {
		return taskNotFound(me.ID)
	}
	return sessionNotFound(me.ID)
}

// named begins a sentence about a holder.
func named(me Holder) string {
	if me.Kind == HolderTask {
		return "Task " + me.ID
	}
	return "Session " + me.ID
}

func sessionTerminated(id string) error {
	return &teardown.Error{Code: teardown.CodeSessionTerminated, Message: fmt.Sprintf(
		"Session %s is terminated; `unwind restore %s` makes it live again", id, id)}
}

func conflict(format string, args ...any) error {
	return &teardown.Error{Code: teardown.CodeConflict, Message: fmt.Sprintf(format, args...)}
}

// readable makes text from outside fit for both databases and for a payload:
// UTF-8 without NUL, not longer than limit bytes.
func readable(text string, limit int) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD")
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

func invalidManifest(format string, args ...any) error {
	return &teardown.Error{Code: teardown.CodeInvalidManifest, Message: fmt.Sprintf(format, args...)}
}

func unusable(code teardown.Code, format string, args ...any) error {
	return &teardown.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func taskClosed(id string) error {
	return unusable(teardown.CodeTaskClosed, "Task %s is archived, deleted or not known; use another task", id)
}

// maxText bounds one text from outside that is stored.
const maxText = 4096
