package main

import (
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"unwind/migrations"
)

// newerSchema makes a database look like a later version's.
func newerSchema(t *testing.T, path string) {
	t.Helper()
	db, err := sqlx.Open("sqlite", path)
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO " + migrations.Table + " (version_id, is_applied) VALUES (9999, 1)")
	require.NoError(t, err)
	require.NoError(t, db.Close())
}
