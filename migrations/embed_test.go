package migrations_test

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/migrations"
)

// A version that one database lacks would make the other's programs refuse it.
func TestBothDatabasesHaveTheSameVersions(t *testing.T) {
	t.Parallel()
	inSQLite, err := fs.Glob(migrations.SQLite(), "*")
	require.NoError(t, err)
	inPostgres, err := fs.Glob(migrations.Postgres(), "*")
	require.NoError(t, err)
	require.NotEmpty(t, inSQLite)
	require.Equal(t, inSQLite, inPostgres)
}
