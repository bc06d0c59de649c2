// Package migrations holds the schema of both databases, as goose migrations.
// The two directories have the same versions and the same tables; internal/store
// runs them.
package migrations

import (
	"embed"
	"io/fs"
)

// Table is where goose records which versions were applied. It has a name of
// its own, for the database may be shared with a program that uses goose's
// default one.
const Table = "unwind_migrations"

//go:embed sqlite/*.sql postgres/*.sql
var files embed.FS

// SQLite returns the migrations of SQLite.
func SQLite() fs.FS { return directory("sqlite") }

// Postgres returns the migrations of Postgres.
func Postgres() fs.FS { return directory("postgres") }

func directory(name string) fs.FS {
	sub, err := fs.Sub(files, name)
	if err != nil {
		panic(err) // only for a name that is not a valid path
	}
	return sub
}
