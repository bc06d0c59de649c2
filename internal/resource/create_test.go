//go:build linux

package resource_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"unwind/internal/resource"
	"unwind/teardown"
)

func creating(t *testing.T) (resource.Cleaner, string) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	return resource.Cleaner{Roots: []string{root}}, root
}

func TestCreateEachKind(t *testing.T) {
	t.Parallel()
	c, root := creating(t)
	source := filepath.Join(root, "source")
	require.NoError(t, os.WriteFile(source, []byte("words"), 0o644))
	for kind, mode := range map[string]os.FileMode{
		teardown.ResourceDir: os.ModeDir | 0o700, teardown.ResourceFIFO: os.ModeNamedPipe | 0o600,
		teardown.ResourceFile: 0o600, teardown.ResourceSecret: 0o600,
	} {
		spec := teardown.ResourceSpec{Kind: kind, Path: filepath.Join(root, kind)}
		require.NoError(t, c.Absent(spec))
		for _, again := range []bool{false, true} {
			require.NoError(t, c.Create(spec, source, again), kind)
		}
		info, err := os.Lstat(spec.Path)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode(), kind)
		require.Equal(t, teardown.CodePathOccupied, teardown.CodeOf(c.Create(spec, source, false)))
		require.Equal(t, teardown.CodePathOccupied, teardown.CodeOf(c.Absent(spec)))
	}
	content, err := os.ReadFile(filepath.Join(root, teardown.ResourceSecret))
	require.NoError(t, err)
	require.Equal(t, "words", string(content))
	empty := teardown.ResourceSpec{Kind: teardown.ResourceFile, Path: filepath.Join(root, "empty")}
	require.NoError(t, c.Create(empty, "", false))
}

// What an attempt that was cut off has written is written anew, and is never
// more open than it should be.
func TestCreateAgainFillsAnew(t *testing.T) {
	t.Parallel()
	c, root := creating(t)
	source, path := filepath.Join(root, "source"), filepath.Join(root, "secret")
	require.NoError(t, os.WriteFile(source, []byte("new"), 0o600))
	require.NoError(t, os.WriteFile(path, []byte("half of what was"), 0o644))
	require.NoError(t, c.Create(teardown.ResourceSpec{Kind: teardown.ResourceSecret, Path: path}, source, true))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "new", string(content))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestWhatCannotBeCreated(t *testing.T) {
	t.Parallel()
	c, root := creating(t)
	fifo, large, outside := filepath.Join(root, "fifo"), filepath.Join(root, "large"), filepath.Join(t.TempDir(), "target")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	require.NoError(t, os.WriteFile(large, nil, 0o600))
	require.NoError(t, os.Truncate(large, resource.MaxSource+1))
	require.NoError(t, os.WriteFile(outside, []byte("mine"), 0o600))
	link := filepath.Join(root, "link")
	require.NoError(t, os.Symlink(outside, link))
	for name, c2 := range map[string]struct {
		spec   teardown.ResourceSpec
		source string
		again  bool
		code   teardown.Code
	}{
		"no directory":       {spec: teardown.ResourceSpec{Kind: "file", Path: filepath.Join(root, "no", "file")}, code: teardown.CodeInvalidManifest},
		"outside":            {spec: teardown.ResourceSpec{Kind: "file", Path: "/nosuch"}, code: teardown.CodeOutsideRoots},
		"no source":          {spec: teardown.ResourceSpec{Kind: "secret", Path: filepath.Join(root, "a")}, source: filepath.Join(root, "none"), code: teardown.CodeInvalidManifest},
		"a FIFO as source":   {spec: teardown.ResourceSpec{Kind: "secret", Path: filepath.Join(root, "a")}, source: fifo, code: teardown.CodeInvalidManifest},
		"too large a source": {spec: teardown.ResourceSpec{Kind: "secret", Path: filepath.Join(root, "a")}, source: large, code: teardown.CodeInvalidManifest},
		"a link":             {spec: teardown.ResourceSpec{Kind: "file", Path: link}, code: teardown.CodePathOccupied},
		"a link again":       {spec: teardown.ResourceSpec{Kind: "file", Path: link}, again: true, code: teardown.CodePathOccupied},
		"a FIFO again":       {spec: teardown.ResourceSpec{Kind: "file", Path: fifo}, again: true, code: teardown.CodePathOccupied},
		"another kind again": {spec: teardown.ResourceSpec{Kind: "dir", Path: large}, again: true, code: teardown.CodeUnsafeTarget},
	} {
		err := c.Create(c2.spec, c2.source, c2.again)
		require.Equal(t, c2.code, teardown.CodeOf(err), "%s: %v", name, err)
		var own *teardown.Error
		require.True(t, errors.As(err, &own) && !own.Retryable, name)
		require.NotContains(t, strings.ToLower(err.Error()), "mine")
	}
	content, err := os.ReadFile(outside)
	require.NoError(t, err)
	require.Equal(t, "mine", string(content))
	require.NoFileExists(t, filepath.Join(root, "a"), "without its source nothing is made")
}

// A FIFO goes although somebody waits at it, and nobody is left waiting for us:
// nothing is opened to be cleared.
func TestClearLetsGoOfFIFOsWithSomebodyAtThem(t *testing.T) {
	t.Parallel()
	for name, flag := range map[string]int{"a reader": os.O_RDONLY, "a writer": os.O_WRONLY} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, root := creating(t)
			path := filepath.Join(root, "events")
			require.NoError(t, unix.Mkfifo(path, 0o600))
			// Another name of the same FIFO, by which whoever waits is let go.
			keep := filepath.Join(t.TempDir(), "keep")
			require.NoError(t, os.Link(path, keep))
			waiting := make(chan *os.File)
			go func() {
				file, _ := os.OpenFile(keep, flag, 0) // waits for the other end
				waiting <- file
			}()
			outcome, err := c.Clear(t.Context(), resource.Item{Kind: teardown.ResourceFIFO, Path: path}, nil)
			require.NoError(t, err)
			require.False(t, outcome.AlreadyGone)
			require.NoFileExists(t, path)
			require.Zero(t, openFiles(t, path), "nothing of it is left open")
			other, err := os.OpenFile(keep, os.O_RDWR, 0)
			require.NoError(t, err)
			require.NoError(t, (<-waiting).Close())
			require.NoError(t, other.Close())
		})
	}
}

// openFiles counts this process's descriptors of a path, which may be unlinked.
func openFiles(t *testing.T, path string) (n int) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, path) {
			n++
		}
	}
	return n
}
