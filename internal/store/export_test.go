package store

import "github.com/jmoiron/sqlx"

// DB lets a test look at the rows, or write what a person might by hand.
func (s *Store) DB() *sqlx.DB { return s.db }
