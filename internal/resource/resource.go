// Package resource clears what belongs to one session's agent: files,
// directories, FIFOs and secrets, below the roots and nowhere else.
//
// Everything is done by descriptor, through os.Root opened at the root, one
// path component at a time. A link is never followed: as a component of the
// path it refuses the resource, as the resource it is unlinked itself, below a
// directory it goes with the directory.
//
// A secret is unlinked, not overwritten. On file systems that journal, copy on
// write, compress or sit on flash memory the old blocks stay whatever is written
// over them, so overwriting would promise what it cannot keep.
package resource

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"unwind/teardown"
)

// Cleaner clears resources. Its paths are absolute and canonical.
type Cleaner struct {
	// Roots are the directories below which resources lie. A root itself is
	// never removed, nor is a directory that contains one.
	Roots []string
	// Home is kept like a root; "" if there is none.
	Home string
	// Protected are files and directories, there or not, that are kept with all
	// that is in them, such as unwind's own state directory.
	Protected []string
}

// Item is one registered resource.
type Item struct {
	ID   string
	Kind string // see teardown.ResourceFile
	Path string // absolute and clean
}

// Outcome says what clearing a resource came to.
type Outcome struct {
	// AlreadyGone: we looked, and nothing was there.
	AlreadyGone bool
	Files       int64 // removed, directories not counted
	Bytes       int64 // that these held
}

// Check reports whether a resource may be registered: of a known kind, inside a
// root, not reached through a link, and, where it exists already, what its kind
// says and nothing that Clear would refuse at first sight. It changes nothing.
// The error has the codes of Clear, and invalid_manifest or path_not_utf8.
func (c Cleaner) Check(spec teardown.ResourceSpec) error {
	where, err := c.locate(spec.Kind, spec.Path)
	if err != nil {
		return err
	}
	found, err := where.open()
	if err != nil || found == nil {
		return err
	}
	defer found.close()
	if !found.info.IsDir() {
		return nil
	}
	look := walk{kept: identities(c.kept())}
	dir, err := look.enter(found.parent, found.name, found.info, spec.Path, found.mount)
	if err == nil {
		dir.close()
	}
	return err
}

// Clear removes a resource, and answers AlreadyGone if it is not there. It may
// be called again after a crash or an error.
//
// Not retryable, and the resource is refused as it stands:
//   - outside_roots: it is not below a root.
//   - unsafe_target: it is a root, the home or something protected, or contains
//     it; it is inside something protected; it is part of a repository's own
//     files; its path leads through a link; something of another kind is there.
//   - nested_repository: it lies inside a repository or a worktree below the
//     root, or a directory holds one, which a person could lose. Nothing was removed, unless it was put there while the
//     directory was being removed; it is not touched.
//   - mount_point: another file system is mounted there or below. As above.
//
// Retryable: permission_denied, io_error (also when the root itself is missing,
// for then nobody can tell what is in it), in_use (something goes on writing
// into the directory), timeout (ctx ended).
//
// progress, which may be nil, is called every now and then while it works.
func (c Cleaner) Clear(ctx context.Context, item Item, progress func(teardown.Progress)) (Outcome, error) {
	found, err := c.find(ctx, item)
	if err != nil {
		return Outcome{}, err
	}
	if found == nil {
		return Outcome{AlreadyGone: true}, nil
	}
	defer found.close()
	if found.info.IsDir() {
		return c.clearDir(ctx, item.Path, found, progress)
	}
	if err := found.parent.Remove(found.name); errors.Is(err, fs.ErrNotExist) {
		return Outcome{AlreadyGone: true}, nil
	} else if err != nil {
		return Outcome{}, failed(item.Path, err)
	}
	return Outcome{Files: 1, Bytes: sizeOf(found.info)}, nil
}

// Inspect answers what Clear would, as far as that can be told without removing
// anything; Outcome counts what would be removed.
func (c Cleaner) Inspect(ctx context.Context, item Item) (Outcome, error) {
	found, err := c.find(ctx, item)
	if err != nil {
		return Outcome{}, err
	}
	if found == nil {
		return Outcome{AlreadyGone: true}, nil
	}
	defer found.close()
	if !found.info.IsDir() {
		return Outcome{Files: 1, Bytes: sizeOf(found.info)}, nil
	}
	walk := c.walk(ctx, item.Path, nil)
	if err := walk.inspect(found.parent, found.name, found.info, item.Path, found.mount); err != nil {
		return goneMeanwhile(err)
	}
	return Outcome{Files: walk.progress.Files, Bytes: walk.progress.Bytes}, nil
}

// find answers nil if nothing is there.
func (c Cleaner) find(ctx context.Context, item Item) (*found, error) {
	where, err := c.locate(item.Kind, item.Path)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, outOfTime(ctx, item.Path)
	}
	return where.open()
}

// found is a resource that is there.
type found struct {
	parent *os.Root
	name   string
	info   fs.FileInfo // of the thing itself, not of what a link leads to
	mount  mount       // of the parent
}

func (f *found) close() { _ = f.parent.Close() }

// open finds the resource without following a link. It answers nil if there is
// nothing.
func (p place) open() (*found, error) {
	parent, err := p.openParent()
	if err != nil || parent == nil {
		return nil, err
	}
	f := &found{parent: parent, name: filepath.Base(p.relative)}
	if err := f.look(); err != nil {
		f.close()
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, failed(p.path, err)
	}
	err = p.matches(f.info)
	if err == nil && isOneOf(p.protected, f.info) {
		err = refused(teardown.CodeUnsafeTarget, p.path, "it is one of unwind's own files, which are never removed")
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *found) look() (err error) {
	if f.info, err = f.parent.Lstat(f.name); err != nil {
		return err
	}
	f.mount, err = mountOf(f.parent)
	return err
}

func sizeOf(info fs.FileInfo) int64 {
	if info.Mode().IsRegular() {
		return info.Size()
	}
	return 0
}
