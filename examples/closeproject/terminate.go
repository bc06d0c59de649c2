package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"

	_ "github.com/lib/pq"
	_ "modernc.org/sqlite"
)

// Facts writes the one fact that is a caller's to write: that a session is over.
// An orchestrator that has unwind's tables in its own database does so in the
// transaction in which it closes the session.
type Facts struct {
	db *sql.DB
}

// OpenFacts opens unwind's database by the URL that unwind itself is given,
// sqlite:///… or postgres://…
func OpenFacts(ctx context.Context, databaseURL string) (*Facts, error) {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return nil, err
	}
	driver, source := "postgres", databaseURL
	if u.Scheme == "sqlite" {
		file := url.URL{Scheme: "file", Path: u.Path, RawQuery: "mode=rw&_pragma=busy_timeout(5000)"}
		driver, source = "sqlite", file.String()
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		return nil, err
	}
	if err := db.PingContext(ctx); err != nil {
		return nil, fmt.Errorf("unwind's database does not answer: %w", err)
	}
	return &Facts{db: db}, nil
}

// Terminate records that the session is over. Again, or for a session that is
// not known, it changes nothing; of the latter FinalizeSession says so.
func (f *Facts) Terminate(ctx context.Context, id string) error {
	_, err := f.db.ExecContext(ctx, `UPDATE sessions SET terminated_at = CURRENT_TIMESTAMP, termination_source = 'project-closed'
		WHERE id = $1 AND terminated_at IS NULL`, id)
	return err
}

// Close closes the database.
func (f *Facts) Close() error { return f.db.Close() }
