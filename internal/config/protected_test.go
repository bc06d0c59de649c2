package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/config"
)

func TestProtectedListsWhatIsUnwindsOwn(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "real", "data"), 0o700))
	require.NoError(t, os.Symlink("real", filepath.Join(dir, "link")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "real", "data", "facts.db"), nil, 0o600))
	require.NoError(t, os.Symlink("data/facts.db", filepath.Join(dir, "real", "unwind.db")))

	c := config.Config{StateDir: filepath.Join(dir, "link", "not", "there"), DatabaseURL: "sqlite://" + dir + "/link/unwind.db"}
	protected := c.Protected()
	for _, path := range []string{
		"link/not/there", "real/not/there",
		"link/unwind.db", "link/unwind.db-wal", "real/unwind.db", "real/unwind.db-shm",
		"real/data/facts.db", "real/data/facts.db-wal", "real/data/facts.db-shm", "real/data/facts.db-journal", "link/unwind.db.lock",
	} {
		require.Contains(t, protected, filepath.Join(dir, path))
	}

	c.DatabaseURL = "sqlite://" + dir + "/with%20space.db"
	require.Contains(t, c.Protected(), filepath.Join(dir, "with space.db-wal"))
	c.DatabaseURL = "postgres://user@host/database"
	require.ElementsMatch(t, []string{filepath.Join(dir, "link", "not", "there"), filepath.Join(dir, "real", "not", "there")}, c.Protected())
}
