// Package store keeps the facts: hosts, tasks, sessions, what they hold and what
// became of it, in Postgres or SQLite.
//
// Every method is one short transaction (or one consistent read) and may be
// repeated after a crash or a lost answer. Errors are *teardown.Error; one that
// the database caused has CodeDatabaseUnavailable and is retryable. Times are
// UTC, truncated to microseconds, which is what both databases keep.
//
// Every transaction reads the schema's version first and refuses another one than
// this program's, CodeSchemaVersion.
//
// The rules are those of the protocol: a method that decides on a generation
// locks the session's or task's row, one that looks at leases locks the worktree's row,
// rows are locked in the order task, sessions, worktrees, leases, finalization,
// several of one kind in the order of their ids. Whoever writes a finalization
// holds its session's row, so that reading it under that lock is enough.
package store
