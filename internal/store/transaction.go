package store

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"

	"unwind/migrations"
	"unwind/teardown"
)

const (
	// patience bounds one transaction with all its tries, so that a database
	// that hangs is reported as away.
	patience = 30 * time.Second
	// collisionTries is how often a transaction is run that the database rolled
	// back in favour of another. Rows are locked in one order, so this is rare.
	collisionTries = 8
)

// write runs do in a transaction that may change rows. It may run several
// times: what it answers must be set anew by each.
func (s *Store) write(ctx context.Context, do func(queries) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if s.at.dialect == SQLite {
		select {
		case s.writing <- struct{}{}:
			defer func() { <-s.writing }()
		case <-ctx.Done():
			return s.at.explain(ctx.Err())
		}
	}
	for try := 1; ; try++ {
		err := s.transact(ctx, nil, do)
		if err == nil || troubleOf(err) != troubleCollision || try == collisionTries {
			return s.at.explain(err)
		}
		select {
		case <-ctx.Done():
			return s.at.explain(err)
		case <-time.After(time.Duration(try) * (5*time.Millisecond + rand.N(20*time.Millisecond))):
		}
	}
}

// read runs do on one consistent state of the database.
func (s *Store) read(ctx context.Context, do func(queries) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	options := &sql.TxOptions{ReadOnly: true}
	if s.at.dialect == Postgres {
		options.Isolation = sql.LevelRepeatableRead
	}
	return s.at.explain(s.transact(ctx, options, do))
}

func (s *Store) transact(ctx context.Context, options *sql.TxOptions, do func(queries) error) error {
	tx, err := s.db.BeginTxx(ctx, options)
	if err != nil {
		return err
	}
	// After a commit this is a no-op; after a panic it frees the rows.
	defer func() { _ = tx.Rollback() }()
	if err := s.sameSchema(ctx, queries{tx}); err != nil {
		return err
	}
	if err := do(queries{tx}); err != nil {
		return err
	}
	return tx.Commit()
}

// sameSchema refuses a schema of another version. That it has been read keeps a
// migration waiting until the transaction ends, see allOrNothing.
func (s *Store) sameSchema(ctx context.Context, tx queries) error {
	var have int64
	if _, err := tx.one(ctx, &have, "SELECT COALESCE(MAX(version_id), 0) FROM "+migrations.Table+" WHERE is_applied"); err != nil || have == s.schema {
		return err
	}
	err := s.at.checkVersion(have)
	var found *teardown.Error
	if errors.As(err, &found) {
		s.outdated.Store(found)
	}
	return err
}
