package resource_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/resource"
	"unwind/teardown"
)

// place is a root to clear in, and beside it a directory that must stay as it is.
type place struct {
	*testing.T
	cleaner       resource.Cleaner
	root, outside string
}

func setup(t *testing.T) place {
	t.Helper()
	t.Parallel()
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	p := place{T: t, root: filepath.Join(base, "root"), outside: filepath.Join(base, "outside")}
	p.cleaner = resource.Cleaner{Roots: []string{p.root}, Home: filepath.Join(base, "home")}
	p.dir(p.root)
	p.file(filepath.Join(p.outside, "precious"))
	p.file(filepath.Join(p.outside, "dir", "precious"))
	return p
}

func (p place) file(path string) string {
	p.Helper()
	p.dir(filepath.Dir(path))
	require.NoError(p, os.WriteFile(path, []byte("content"), 0o600))
	return path
}

func (p place) dir(path string) string {
	p.Helper()
	require.NoError(p, os.MkdirAll(path, 0o755))
	return path
}

func (p place) fifo(path string) string {
	p.Helper()
	require.NoError(p, syscall.Mkfifo(path, 0o600))
	return path
}

func (p place) link(target, path string) string {
	p.Helper()
	require.NoError(p, os.Symlink(target, path))
	return path
}

func (p place) clear(kind, path string) (resource.Outcome, error) {
	return p.cleaner.Clear(p.Context(), resource.Item{ID: "r1", Kind: kind, Path: path}, nil)
}

func (p place) requireOutsideIntact() {
	p.Helper()
	p.requireIntact(p.outside)
}

func (p place) requireIntact(dir string) {
	p.Helper()
	for _, name := range []string{"precious", "dir/precious"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(p, err)
		require.Equal(p, "content", string(content))
	}
}

func requireError(t *testing.T, err error, code teardown.Code, retryable bool) {
	t.Helper()
	var e *teardown.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, code, e.Code, e.Error())
	require.Equal(t, retryable, e.Retryable, e.Error())
}

func requireGone(t *testing.T, path string) {
	t.Helper()
	_, err := os.Lstat(path)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestClearIsIdempotent(t *testing.T) {
	p := setup(t)
	below := p.dir(filepath.Join(p.root, "session"))
	for kind, path := range map[string]string{
		"file":   p.file(filepath.Join(below, "prompt.md")),
		"secret": p.file(filepath.Join(below, "env")),
		"fifo":   p.fifo(filepath.Join(below, "events")),
		"dir":    filepath.Dir(p.file(filepath.Join(below, "mcp", "a", "b", "config.json"))),
	} {
		require.NoError(t, p.cleaner.Check(teardown.ResourceSpec{Kind: kind, Path: path}))
		outcome, err := p.clear(kind, path)
		require.NoError(t, err)
		require.False(t, outcome.AlreadyGone)
		require.EqualValues(t, 1, outcome.Files)
		requireGone(t, path)

		outcome, err = p.clear(kind, path)
		require.NoError(t, err)
		require.Equal(t, resource.Outcome{AlreadyGone: true}, outcome)
		require.NoError(t, p.cleaner.Check(teardown.ResourceSpec{Kind: kind, Path: path}))
	}
}

func TestMissingParentIsGone(t *testing.T) {
	p := setup(t)
	p.file(filepath.Join(p.root, "file"))
	for _, path := range []string{"nowhere/at/all", "file/below"} {
		outcome, err := p.clear("file", filepath.Join(p.root, path))
		require.NoError(t, err)
		require.True(t, outcome.AlreadyGone)
	}
}

func TestMissingRootIsNotGone(t *testing.T) {
	p := setup(t)
	require.NoError(t, os.Remove(p.root))
	_, err := p.clear("file", filepath.Join(p.root, "file"))
	requireError(t, err, teardown.CodeIOError, true)
}

func TestAnotherKindIsRefused(t *testing.T) {
	p := setup(t)
	socket := filepath.Join(p.root, "s")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	there := map[string]string{
		"file":   p.file(filepath.Join(p.root, "file")),
		"dir":    p.dir(filepath.Join(p.root, "dir")),
		"fifo":   p.fifo(filepath.Join(p.root, "fifo")),
		"socket": socket,
	}
	for _, kind := range []string{"file", "dir", "fifo", "secret"} {
		for what, path := range there {
			if kind == what || kind == "secret" && what == "file" {
				continue
			}
			_, err := p.clear(kind, path)
			requireError(t, err, teardown.CodeUnsafeTarget, false)
			require.ErrorContains(t, err, "registered as a "+kind)
			_, err = os.Lstat(path)
			require.NoError(t, err)
			requireError(t, p.cleaner.Check(teardown.ResourceSpec{Kind: kind, Path: path}), teardown.CodeUnsafeTarget, false)
		}
	}
}

func TestALinkIsUnlinkedAndNotFollowed(t *testing.T) {
	p := setup(t)
	for kind, target := range map[string]string{"file": "precious", "dir": "dir", "fifo": "precious"} {
		link := p.link(filepath.Join(p.outside, target), filepath.Join(p.root, kind))
		_, err := p.clear(kind, link)
		require.NoError(t, err)
		requireGone(t, link)
	}
	secret := p.link(filepath.Join(p.outside, "precious"), filepath.Join(p.root, "secret"))
	_, err := p.clear("secret", secret)
	requireError(t, err, teardown.CodeUnsafeTarget, false)

	dir := p.dir(filepath.Join(p.root, "tree"))
	p.link(p.outside, filepath.Join(dir, "away"))
	p.link("../..", filepath.Join(dir, "up"))
	p.link("nowhere", filepath.Join(dir, "dangling"))
	_, err = p.clear("dir", dir)
	require.NoError(t, err)
	requireGone(t, dir)
	p.requireOutsideIntact()
}

func TestALinkInThePathIsRefused(t *testing.T) {
	p := setup(t)
	inside := p.file(filepath.Join(p.root, "real", "precious"))
	for name, target := range map[string]string{"away": p.outside, "inside": "real"} {
		p.link(target, filepath.Join(p.root, name))
		path := filepath.Join(p.root, name, "precious")
		_, err := p.clear("file", path)
		requireError(t, err, teardown.CodeUnsafeTarget, false)
		requireError(t, p.cleaner.Check(teardown.ResourceSpec{Kind: "file", Path: path}), teardown.CodeUnsafeTarget, false)
	}
	require.FileExists(t, inside)
	p.requireOutsideIntact()
}

func TestARootThatBecameALinkIsRefused(t *testing.T) {
	p := setup(t)
	require.NoError(t, os.Remove(p.root))
	p.link(p.outside, p.root)
	_, err := p.clear("file", filepath.Join(p.root, "precious"))
	requireError(t, err, teardown.CodeUnsafeTarget, false)
	p.requireOutsideIntact()
}

func TestPathsThatAreNeverOurs(t *testing.T) {
	p := setup(t)
	inner := p.dir(filepath.Join(p.root, "users", "inner"))
	p.cleaner.Roots = append(p.cleaner.Roots, inner)
	p.cleaner.Home = p.dir(filepath.Join(p.root, "users", "me"))
	p.cleaner.Protected = []string{p.dir(filepath.Join(p.root, "state"))}
	for _, bad := range []struct {
		kind, path string
		code       teardown.Code
	}{
		{"dir", p.root, teardown.CodeUnsafeTarget},
		{"dir", filepath.Dir(p.root), teardown.CodeUnsafeTarget},
		{"dir", "/", teardown.CodeUnsafeTarget},
		{"dir", inner, teardown.CodeUnsafeTarget},
		{"dir", filepath.Dir(inner), teardown.CodeUnsafeTarget},
		{"dir", p.cleaner.Home, teardown.CodeUnsafeTarget},
		{"dir", p.cleaner.Protected[0], teardown.CodeUnsafeTarget},
		{"file", filepath.Join(p.outside, "precious"), teardown.CodeOutsideRoots},
		{"file", p.root + "-beside/file", teardown.CodeOutsideRoots},
		{"file", p.root + "/../outside/precious", teardown.CodeInvalidManifest},
		{"file", p.root + "/file/", teardown.CodeInvalidManifest},
		{"file", p.root + "/a\x00b", teardown.CodeInvalidManifest},
		{"file", "file", teardown.CodeInvalidManifest},
		{"file", "", teardown.CodeInvalidManifest},
		{"file", p.root + "/\xff", teardown.CodePathNotUTF8},
		{"socket", p.root + "/file", teardown.CodeInvalidManifest},
		{"dir", p.root + "/app/.git", teardown.CodeUnsafeTarget},
		{"file", p.root + "/app/.Git/HEAD", teardown.CodeUnsafeTarget},
	} {
		requireError(t, p.cleaner.Check(teardown.ResourceSpec{Kind: bad.kind, Path: bad.path}), bad.code, false)
		_, err := p.clear(bad.kind, bad.path)
		requireError(t, err, bad.code, false)
	}
	require.DirExists(t, inner)
	p.requireOutsideIntact()
}

func TestRepositoriesAreKept(t *testing.T) {
	p := setup(t)
	for name, fill := range map[string]func(string){
		"repository": func(dir string) { p.dir(filepath.Join(dir, ".git", "objects")) },
		"worktree":   func(dir string) { p.file(filepath.Join(dir, ".git")) },
		"upper case": func(dir string) { p.file(filepath.Join(dir, ".GIT")) },
		"bare": func(dir string) {
			p.file(filepath.Join(dir, "HEAD"))
			p.dir(filepath.Join(dir, "objects"))
			p.dir(filepath.Join(dir, "refs"))
		},
	} {
		for _, depth := range []string{".", "deep/down"} {
			dir := p.dir(filepath.Join(p.root, name+strings.ReplaceAll(depth, "/", "-")))
			other := p.file(filepath.Join(dir, "aaa"))
			fill(p.dir(filepath.Join(dir, depth)))
			_, err := p.clear("dir", dir)
			requireError(t, err, teardown.CodeNestedRepository, false)
			require.FileExists(t, other, "nothing was removed")
			if depth == "." {
				requireError(t, p.cleaner.Check(teardown.ResourceSpec{Kind: "dir", Path: dir}), teardown.CodeNestedRepository, false)
			}
		}
	}
}

// requireRefused: everybody who asks gets the same answer, and nothing goes.
func (p place) requireRefused(kind, path string, code teardown.Code, sentence string) {
	p.Helper()
	_, inspected := p.cleaner.Inspect(p.Context(), resource.Item{Kind: kind, Path: path})
	_, cleared := p.clear(kind, path)
	for _, err := range []error{p.cleaner.Check(teardown.ResourceSpec{Kind: kind, Path: path}), inspected, cleared} {
		requireError(p.T, err, code, false)
		require.ErrorContains(p, err, sentence)
	}
}

func TestWhatLiesInsideARepositoryIsKept(t *testing.T) {
	p := setup(t)
	p.file(filepath.Join(p.root, "worktree", ".git"))
	p.dir(filepath.Join(p.root, "checkout", ".git"))
	p.file(filepath.Join(p.root, "bare", "HEAD"))
	p.dir(filepath.Join(p.root, "bare", "objects"))
	p.dir(filepath.Join(p.root, "bare", "refs"))
	for name, what := range map[string]string{"worktree": "working tree ", "checkout": "working tree ", "bare": "repository "} {
		at := filepath.Join(p.root, name)
		sentence := "lies inside the git " + what + at + "; resources lie outside of worktrees and repositories"
		file := p.file(filepath.Join(at, "file"))
		deep := p.file(filepath.Join(at, "src", "deep", "file"))
		p.requireRefused("file", file, teardown.CodeNestedRepository, sentence)
		p.requireRefused("secret", deep, teardown.CodeNestedRepository, sentence)
		p.requireRefused("dir", filepath.Join(at, "src"), teardown.CodeNestedRepository, sentence)
		p.requireRefused("file", filepath.Join(at, "src", "not", "there"), teardown.CodeNestedRepository, sentence)
		require.FileExists(t, file)
		require.FileExists(t, deep)
	}
}

func TestARootMayBeARepository(t *testing.T) {
	p := setup(t)
	p.dir(filepath.Join(p.root, ".git"))
	path := p.file(filepath.Join(p.root, "state", "file"))
	require.NoError(t, p.cleaner.Check(teardown.ResourceSpec{Kind: "file", Path: path}))
	_, err := p.clear("dir", filepath.Dir(path))
	require.NoError(t, err)
	requireGone(t, path)
}

func TestNothingOfUnwindsOwnIsRemoved(t *testing.T) {
	p := setup(t)
	state := filepath.Join(p.root, "a", "state")
	id := p.file(filepath.Join(state, "host-id"))
	lock := p.file(filepath.Join(state, "locks", "lock"))
	database := p.file(filepath.Join(p.root, "b", "unwind.db"))
	p.cleaner.Protected = []string{state, database, database + "-wal"}
	for kind, path := range map[string]string{"secret": id, "file": lock, "dir": filepath.Dir(lock)} {
		p.requireRefused(kind, path, teardown.CodeUnsafeTarget, "it is inside "+state)
	}
	p.requireRefused("file", filepath.Join(state, "not", "there"), teardown.CodeUnsafeTarget, "never removed")
	p.requireRefused("file", database, teardown.CodeUnsafeTarget, "never removed")
	p.requireRefused("file", database+"-wal", teardown.CodeUnsafeTarget, "never removed")
	p.requireRefused("dir", filepath.Dir(database), teardown.CodeUnsafeTarget, "it is or contains "+database)
	for _, path := range []string{id, lock, database} {
		require.FileExists(t, path)
	}
}

// The same things under paths that do not tell: by their real path, where they
// are protected by that of a link.
func TestWhatIsProtectedIsKnownByIdentity(t *testing.T) {
	p := setup(t)
	actual := p.dir(filepath.Join(p.root, "real", "state"))
	id := p.file(filepath.Join(actual, "host-id"))
	database := p.file(filepath.Join(p.root, "data", "deep", "unwind.db"))
	p.cleaner.Protected = []string{p.link(actual, filepath.Join(p.outside, "state")), p.link(database, filepath.Join(p.outside, "unwind.db"))}
	p.requireRefused("file", id, teardown.CodeUnsafeTarget, "it is inside "+actual)
	p.requireRefused("dir", actual, teardown.CodeUnsafeTarget, "never removed")
	p.requireRefused("file", database, teardown.CodeUnsafeTarget, "never removed")
	for _, dir := range []string{filepath.Dir(actual), filepath.Join(p.root, "data")} {
		_, err := p.cleaner.Inspect(t.Context(), resource.Item{Kind: "dir", Path: dir})
		requireError(t, err, teardown.CodeUnsafeTarget, false)
		_, err = p.clear("dir", dir)
		requireError(t, err, teardown.CodeUnsafeTarget, false)
	}
	require.FileExists(t, id)
	require.FileExists(t, database)
}

func TestInspectSeesWhatClearDoes(t *testing.T) {
	p := setup(t)
	dir := p.dir(filepath.Join(p.root, "dir"))
	p.file(filepath.Join(dir, "one"))
	p.file(filepath.Join(dir, "deep", "two"))
	item := resource.Item{Kind: "dir", Path: dir}
	seen, err := p.cleaner.Inspect(t.Context(), item)
	require.NoError(t, err)
	nested := p.file(filepath.Join(dir, "deep", "app", ".git"))
	_, err = p.cleaner.Inspect(t.Context(), item)
	requireError(t, err, teardown.CodeNestedRepository, false)
	require.NoError(t, os.Remove(nested))
	cleared, err := p.clear("dir", dir)
	require.NoError(t, err)
	require.Equal(t, cleared, seen)
	seen, err = p.cleaner.Inspect(t.Context(), item)
	require.NoError(t, err)
	require.True(t, seen.AlreadyGone)

	file := p.file(filepath.Join(p.root, "file"))
	seen, err = p.cleaner.Inspect(t.Context(), resource.Item{Kind: "file", Path: file})
	require.NoError(t, err)
	require.Equal(t, resource.Outcome{Files: 1, Bytes: int64(len("content"))}, seen)
	require.FileExists(t, file)
}

func TestATooLongNameIsAMistakeInTheManifest(t *testing.T) {
	p := setup(t)
	long := strings.Repeat("n", 300)
	p.requireRefused("file", filepath.Join(p.root, long), teardown.CodeInvalidManifest, "longer than the file system allows")
	p.requireRefused("file", filepath.Join(p.root, long, "file"), teardown.CodeInvalidManifest, "longer than the file system allows")
}

func TestDirectoryOfReadOnlyDirectories(t *testing.T) {
	p := setup(t)
	dir := filepath.Join(p.root, "cache")
	p.file(filepath.Join(dir, "a", "b", "file"))
	for _, sub := range []string{"a/b", "a", "."} {
		require.NoError(t, os.Chmod(filepath.Join(dir, sub), 0o555))
	}
	_, err := p.clear("dir", dir)
	require.NoError(t, err)
	requireGone(t, dir)
}

func TestPermissionDeniedIsRetryable(t *testing.T) {
	p := setup(t)
	if os.Geteuid() == 0 {
		t.Skip("root may remove everything")
	}
	path := p.file(filepath.Join(p.root, "closed", "file"))
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o500))
	_, err := p.clear("file", path)
	requireError(t, err, teardown.CodePermissionDenied, true)
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o700))
	_, err = p.clear("file", path)
	require.NoError(t, err)

	dir := p.dir(filepath.Join(p.root, "unreadable"))
	require.NoError(t, os.Chmod(dir, 0))
	_, err = p.clear("dir", dir)
	requireError(t, err, teardown.CodePermissionDenied, true)
}

func TestLargeAndDeepDirectory(t *testing.T) {
	p := setup(t)
	dir := p.dir(filepath.Join(p.root, "big"))
	for i := range 1500 {
		p.file(filepath.Join(dir, fmt.Sprint(i%7), fmt.Sprint(i)))
	}
	p.file(filepath.Join(dir, strings.Repeat("d/", 400), "bottom"))
	var last teardown.Progress
	calls := 0
	outcome, err := p.cleaner.Clear(p.Context(), resource.Item{Kind: "dir", Path: dir}, func(progress teardown.Progress) {
		calls++
		last = progress
	})
	require.NoError(t, err)
	require.Equal(t, resource.Outcome{Files: 1501, Bytes: 1501 * int64(len("content"))}, outcome)
	require.Greater(t, calls, 4)
	require.EqualValues(t, 1501, last.TotalFiles)
	require.Equal(t, "removing big", last.Step)
	requireGone(t, dir)
}

func TestEndOfTheContext(t *testing.T) {
	p := setup(t)
	dir := p.dir(filepath.Join(p.root, "dir"))
	for i := range 1000 {
		p.file(filepath.Join(dir, fmt.Sprint(i)))
	}
	ctx, cancel := context.WithCancel(p.Context())
	_, err := p.cleaner.Clear(ctx, resource.Item{Kind: "dir", Path: dir}, func(progress teardown.Progress) {
		if progress.TotalFiles > 0 && progress.Files > 0 {
			cancel() // in the middle of the removal
		}
	})
	requireError(t, err, teardown.CodeTimeout, true)
	require.ErrorIs(t, err, context.Canceled)
	require.DirExists(t, dir)
	_, err = p.cleaner.Clear(ctx, resource.Item{Kind: "file", Path: filepath.Join(p.root, "x")}, nil)
	requireError(t, err, teardown.CodeTimeout, true)

	_, err = p.clear("dir", dir)
	require.NoError(t, err)
	requireGone(t, dir)
}

func TestSomethingGoesOnWriting(t *testing.T) {
	p := setup(t)
	dir := p.dir(filepath.Join(p.root, "busy"))
	for i := range 50 {
		p.file(filepath.Join(dir, fmt.Sprint(i)))
	}
	var stop atomic.Bool
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; !stop.Load(); i++ {
			_ = os.WriteFile(filepath.Join(dir, fmt.Sprint("new", i%1000)), nil, 0o600)
		}
	})
	_, err := p.clear("dir", dir)
	stop.Store(true)
	writer.Wait()
	if err != nil {
		requireError(t, err, teardown.CodeInUse, true)
		_, err = p.clear("dir", dir)
	}
	require.NoError(t, err)
	requireGone(t, dir)
}

// TestSwapsNeverLeadOutside exchanges directories on the way, and in the tree,
// for links and FIFOs while resources are cleared. Whatever Clear answers, it
// must not hang, and must not touch what the links lead to, be it outside the
// root or inside.
func TestSwapsNeverLeadOutside(t *testing.T) {
	p := setup(t)
	neighbour := p.file(filepath.Join(p.root, "neighbour", "precious"))
	p.file(filepath.Join(p.root, "neighbour", "dir", "precious"))
	work := filepath.Join(p.root, "work")
	prepare := func() {
		for _, name := range []string{"precious", "dir/precious", "dir/sub/file"} {
			path := filepath.Join(work, name)
			_ = os.MkdirAll(filepath.Dir(path), 0o755)
			// It may lead through a link just now, so nothing is overwritten.
			if file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
				_ = file.Close()
			}
		}
	}
	var stop atomic.Bool
	var swapper sync.WaitGroup
	swapper.Go(func() {
		aside := filepath.Join(p.root, "aside")
		for i := 0; !stop.Load(); i++ {
			victim := []string{work, filepath.Join(work, "dir")}[i%2]
			if os.Rename(victim, aside) != nil {
				continue
			}
			switch i % 3 {
			case 0:
				_ = os.Symlink(p.outside, victim)
			case 1:
				_ = os.Symlink("neighbour", victim)
			case 2:
				_ = syscall.Mkfifo(victim, 0o600)
			}
			_ = os.Remove(victim)
			_ = os.Rename(aside, victim)
			_ = os.RemoveAll(aside)
		}
	})
	deadline := time.Now().Add(2 * time.Second)
	for i := 0; time.Now().Before(deadline); i++ {
		prepare()
		_, _ = p.clear("file", filepath.Join(work, "precious"))
		_, _ = p.clear("file", filepath.Join(work, "dir", "precious"))
		_, _ = p.clear("dir", filepath.Join(work, "dir"))
		if i%4 == 0 {
			_, _ = p.clear("dir", work)
		}
	}
	stop.Store(true)
	swapper.Wait()
	p.requireIntact(filepath.Dir(neighbour))
	p.requireIntact(p.outside)
}
