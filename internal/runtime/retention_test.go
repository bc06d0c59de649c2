package runtime_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/runtime"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// kept makes a directory with files of the given sizes; each is an hour older
// than the one before it.
func kept(t *testing.T, size int, names ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for i, name := range names {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x", size)), 0o600))
		at := noon.Add(-time.Duration(i+1) * time.Hour)
		require.NoError(t, os.Chtimes(path, at, at))
	}
	return dir
}

func left(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func nobody(string) bool { return false }

func TestPruneByAge(t *testing.T) {
	t.Parallel()
	dir := kept(t, 10, "tmux-a.txt", "tmux-b.txt", "tmux-c.txt", ".tmux-d.txt.123")
	removed, err := runtime.Retention{Keep: 90 * time.Minute, Space: 1 << 20}.Prune(dir, noon, func(path string) bool {
		return path == filepath.Join(dir, "tmux-c.txt")
	})
	require.NoError(t, err)
	require.Len(t, removed, 2)
	require.Equal(t, []string{"tmux-a.txt", "tmux-c.txt"}, left(t, dir), "one is young, one is needed")
}

func TestPruneBySpaceTakesTheOldestAndWhatIsNeededLast(t *testing.T) {
	t.Parallel()
	needed := func(path string) bool { return strings.HasSuffix(path, "-d.txt") }
	for space, want := range map[int64][]string{
		40: {"tmux-a.txt", "tmux-b.txt", "tmux-c.txt", "tmux-d.txt"},
		39: {"tmux-a.txt", "tmux-b.txt", "tmux-d.txt"},
		10: {"tmux-d.txt"},
		9:  {},
	} {
		dir := kept(t, 10, "tmux-a.txt", "tmux-b.txt", "tmux-c.txt", "tmux-d.txt")
		_, err := runtime.Retention{Keep: 24 * time.Hour, Space: space}.Prune(dir, noon, needed)
		require.NoError(t, err)
		require.Equal(t, want, left(t, dir), space)
	}
}

func TestPruneTouchesNothingElse(t *testing.T) {
	t.Parallel()
	dir := kept(t, 10, "notes.txt", "tmux-.txt", "tmux-a b.txt", ".hidden")
	outside := filepath.Join(t.TempDir(), "tmux-a.txt")
	require.NoError(t, os.WriteFile(outside, []byte("mine"), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "tmux-link.txt")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "tmux-dir.txt"), 0o700))
	before := left(t, dir)
	removed, err := runtime.Retention{}.Prune(dir, noon, nobody)
	require.NoError(t, err)
	require.Empty(t, removed)
	require.Equal(t, before, left(t, dir))
	require.FileExists(t, outside)
}

func TestPruneWithoutADirectory(t *testing.T) {
	t.Parallel()
	removed, err := runtime.Retention{}.Prune(filepath.Join(t.TempDir(), "none"), noon, nobody)
	require.NoError(t, err)
	require.Empty(t, removed)
}
