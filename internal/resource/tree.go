package resource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"unwind/teardown"
)

const (
	// progressEvery is the number of entries between two calls of progress.
	progressEvery = 200
	// emptyTries bounds how often a directory that fills again is emptied.
	emptyTries = 3
)

func (c Cleaner) clearDir(ctx context.Context, path string, at *found, progress func(teardown.Progress)) (Outcome, error) {
	walk := c.walk(ctx, path, progress)
	if err := walk.inspect(at.parent, at.name, at.info, path, at.mount); err != nil {
		return goneMeanwhile(err)
	}
	walk.progress = teardown.Progress{Step: "removing " + filepath.Base(path), TotalFiles: walk.progress.Files}
	err := walk.remove(at.parent, at.name, at.info, path, at.mount)
	outcome := Outcome{Files: walk.progress.Files, Bytes: walk.progress.Bytes}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return outcome, err
	}
	return outcome, nil
}

func (c Cleaner) walk(ctx context.Context, path string, progress func(teardown.Progress)) *walk {
	return &walk{ctx: ctx, kept: identities(c.kept()), report: progress,
		progress: teardown.Progress{Step: "looking through " + filepath.Base(path)}}
}

func goneMeanwhile(err error) (Outcome, error) {
	if errors.Is(err, fs.ErrNotExist) {
		return Outcome{AlreadyGone: true}, nil
	}
	return Outcome{}, err
}

// walk goes through one directory tree, first to look, then to remove.
type walk struct {
	ctx      context.Context
	kept     []fs.FileInfo
	progress teardown.Progress
	report   func(teardown.Progress)
	entries  int
}

// identities of what is kept. The spelling of a path may differ where case does
// not count, and a bind mount has another path altogether.
func identities(paths []string) []fs.FileInfo {
	var kept []fs.FileInfo
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			kept = append(kept, info)
		}
	}
	return kept
}

func isOneOf(kept []fs.FileInfo, info fs.FileInfo) bool {
	return slices.ContainsFunc(kept, func(one fs.FileInfo) bool { return os.SameFile(one, info) })
}

// entered is a directory that may be emptied.
type entered struct {
	*os.Root
	names []string
	mount mount
}

func (e *entered) close() { _ = e.Close() }

// enter opens a directory and refuses it if it, or something directly in it, is
// not ours to remove.
func (w *walk) enter(parent *os.Root, name string, info fs.FileInfo, path string, above mount) (*entered, error) {
	if isOneOf(w.kept, info) {
		return nil, refused(teardown.CodeUnsafeTarget, path, "it is a directory that is never removed")
	}
	dir, err := openDir(parent, name, info)
	if err != nil {
		return nil, failed(path, err)
	}
	e := &entered{Root: dir}
	if err := e.read(path, above); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (e *entered) read(path string, above mount) (err error) {
	if e.mount, err = mountOf(e.Root); err != nil {
		return failed(path, err)
	}
	if e.mount != above {
		return refused(teardown.CodeMountPoint, path, "another file system is mounted there; unmount it")
	}
	if e.names, err = namesIn(e.Root); err != nil {
		return failed(path, err)
	}
	if i := slices.IndexFunc(e.names, isGitDir); i >= 0 {
		return refused(teardown.CodeNestedRepository, path, fmt.Sprintf(
			"it holds a git repository or worktree (%s); move it away or remove it by hand", e.names[i]))
	}
	if isBareRepository(e.names) {
		return refused(teardown.CodeNestedRepository, path, "it is a git repository; move it away or remove it by hand")
	}
	return nil
}

func namesIn(dir *os.Root) ([]string, error) {
	file, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return file.Readdirnames(-1)
}

func isBareRepository(names []string) bool {
	return !slices.ContainsFunc(bare[:], func(name string) bool { return !slices.Contains(names, name) })
}

// inspect looks through the whole tree, so that what is to be refused is refused
// before anything was removed.
func (w *walk) inspect(parent *os.Root, name string, info fs.FileInfo, path string, above mount) error {
	dir, err := w.enter(parent, name, info, path, above)
	if err != nil {
		return err
	}
	defer dir.close()
	for _, entry := range dir.names {
		below := filepath.Join(path, entry)
		err := w.each(dir.Root, entry, below, func(info fs.FileInfo) error {
			if info.IsDir() {
				return w.inspect(dir.Root, entry, info, below, dir.mount)
			}
			w.count(info)
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// remove empties a directory and removes it. It looks again at each directory
// before it removes anything in it.
func (w *walk) remove(parent *os.Root, name string, info fs.FileInfo, path string, above mount) error {
	for range emptyTries {
		if err := w.empty(parent, name, info, path, above); err != nil {
			return err
		}
		switch err := parent.Remove(name); {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EEXIST):
			return failed(path, err)
		}
	}
	return &teardown.Error{Code: teardown.CodeInUse, Retryable: true, Message: fmt.Sprintf(
		"something goes on writing into %s; end it", path)}
}

func (w *walk) empty(parent *os.Root, name string, info fs.FileInfo, path string, above mount) error {
	dir, err := w.enter(parent, name, info, path, above)
	if err != nil {
		return err
	}
	defer dir.close()
	makeWritable(dir.Root, info)
	for _, entry := range dir.names {
		below := filepath.Join(path, entry)
		err := w.each(dir.Root, entry, below, func(info fs.FileInfo) error {
			if info.IsDir() {
				return w.remove(dir.Root, entry, info, below, dir.mount)
			}
			if err := dir.Remove(entry); err != nil {
				return failed(below, err)
			}
			w.count(info)
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (w *walk) each(dir *os.Root, name, path string, visit func(fs.FileInfo) error) error {
	if w.ctx.Err() != nil {
		return outOfTime(w.ctx, path)
	}
	if w.entries++; w.report != nil && w.entries%progressEvery == 0 {
		w.report(w.progress)
	}
	info, err := dir.Lstat(name)
	if err != nil {
		return failed(path, err)
	}
	if !info.IsDir() && isOneOf(w.kept, info) {
		return refused(teardown.CodeUnsafeTarget, path, "it is a file that is never removed")
	}
	return visit(info)
}

func (w *walk) count(info fs.FileInfo) {
	w.progress.Files++
	w.progress.Bytes += sizeOf(info)
}

// makeWritable lets the owner remove what is in a directory that tools left
// read-only, such as Go's module cache. By descriptor; if it fails, so does the
// removal, and that is reported.
func makeWritable(dir *os.Root, info fs.FileInfo) {
	const needed = 0o300
	if info.Mode().Perm()&needed == needed {
		return
	}
	file, err := dir.Open(".")
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	_ = file.Chmod(info.Mode().Perm() | needed)
}
