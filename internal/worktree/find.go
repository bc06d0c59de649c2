package worktree

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Found is what Find came to.
type Found struct {
	// Repositories are common directories, canonical and sorted.
	Repositories []string
	// Unread are directories that could not be looked into.
	Unread []string
}

// Find looks for repositories at and below a directory: those that lie there, and
// those to which a worktree there belongs. It follows no links, stays in the file
// system of the directory, and looks neither into repositories nor into
// node_modules. each is called with every directory that is looked at; it may be
// nil. The error is that of dir itself, or that ctx has ended.
func Find(ctx context.Context, dir string, each func()) (Found, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Found{}, err
	}
	top, err := deviceOf(dir)
	if err != nil {
		return Found{}, err
	}
	var found Found
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if !errors.Is(err, fs.ErrNotExist) {
				found.Unread = append(found.Unread, path)
			}
			return fs.SkipDir
		case !entry.IsDir():
			return nil
		case path != dir && (entry.Name() == ".git" || entry.Name() == "node_modules"):
			return fs.SkipDir
		}
		if device, err := deviceOf(path); err != nil || device != top {
			return fs.SkipDir
		}
		if each != nil {
			each()
		}
		common, err := commonDirAt(path)
		if err != nil {
			return nil
		}
		repo, err := newRepository(common)
		if err != nil {
			return nil
		}
		found.Repositories = append(found.Repositories, repo.common)
		if repo.common == path { // a bare one, or a .git directory that was named
			return fs.SkipDir
		}
		return nil
	})
	slices.Sort(found.Repositories)
	found.Repositories = slices.Compact(found.Repositories)
	return found, err
}

func deviceOf(path string) (uint64, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	return uint64(info.Sys().(*syscall.Stat_t).Dev), nil //nolint:unconvert // int32 on macOS
}
