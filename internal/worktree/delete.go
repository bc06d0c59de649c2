package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"unwind/teardown"
)

// refills is how often a directory that is not empty after all is emptied
// again.
const refills = 3

// deletion deletes one tree by descriptors: no link is followed and no mount
// entered. Its own .git file goes last, so that what is left after a crash
// still says what it was.
type deletion struct {
	descent
	ctx      context.Context
	progress func(teardown.Progress)
	reached  func(step string)
	dev      uint64
	euid     int
	done     teardown.Progress
}

// deleteDirectory deletes dir and everything in it. That it is gone already is
// success.
func deleteDirectory(ctx context.Context, dir string, progress func(teardown.Progress), reached func(string)) error {
	d := &deletion{ctx: ctx, progress: progress, reached: reached, euid: os.Geteuid(), done: teardown.Progress{Step: "deleting"}}
	return d.delete(dir, func(parent int) error {
		if err := d.unlink(d.fd(), ".git", 0); err != nil {
			return err
		}
		return d.unlink(parent, filepath.Base(dir), unix.AT_REMOVEDIR)
	})
}

// emptyDirectory deletes everything in dir but its .git file.
func emptyDirectory(ctx context.Context, dir string, progress func(teardown.Progress), reached func(string)) error {
	d := &deletion{ctx: ctx, progress: progress, reached: reached, euid: os.Geteuid(), done: teardown.Progress{Step: "deleting"}}
	return d.delete(dir, func(int) error { return nil })
}

// delete empties dir, and then does the rest with its parent.
func (d *deletion) delete(dir string, rest func(parent int) error) error {
	defer d.close()
	parent, err := openRetry(unix.AT_FDCWD, filepath.Dir(dir))
	if err != nil {
		return ignoreAbsent(err)
	}
	defer func() { _ = unix.Close(parent) }()
	above, err := fdStat(parent)
	if err != nil {
		return err
	}
	d.dev = above.id.dev
	if err := d.open(parent, filepath.Base(dir)); err != nil {
		return ignoreAbsent(err)
	}
	if err := d.empty(); err != nil {
		return err
	}
	d.report()
	return rest(parent)
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// open enters a directory, making it usable first if it is our own.
func (d *deletion) open(parent int, name string) error {
	s, err := statAt(parent, name)
	if err != nil {
		return err
	}
	if s.kind != unix.S_IFDIR {
		return fmt.Errorf("%s: %w", printable(name), unix.ENOTDIR)
	}
	if s.mount || s.id.dev != d.dev {
		return fmt.Errorf("something is mounted on %s: %w", printable(name), unix.EBUSY)
	}
	if s.perm&0o700 != 0o700 && int(s.uid) == d.euid {
		if err := unix.Fchmodat(parent, name, s.perm|0o700, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			// Kernels before 6.6 cannot change what they may not follow.
			if err := unix.Fchmodat(parent, name, s.perm|0o700, 0); err != nil {
				return err
			}
		}
	}
	if len(d.levels) > 0 {
		err = d.enter(name, s.id)
	} else {
		err = d.start(parent, name)
	}
	if err != nil {
		return err
	}
	return d.list()
}

// empty goes through the tree until only the root and its .git are left.
func (d *deletion) empty() error {
	refilled := map[fileID]int{}
	for {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		if name, more := d.next(); more {
			if err := d.remove(name); err != nil {
				return err
			}
			continue
		}
		if len(d.levels) == 1 {
			return nil
		}
		name, id := d.top().name, d.top().id
		if err := d.leave(); err != nil {
			return err
		}
		err := d.unlink(d.fd(), name, unix.AT_REMOVEDIR)
		if errors.Is(err, unix.ENOTEMPTY) && refilled[id] < refills {
			refilled[id]++
			err = d.open(d.fd(), name)
		}
		if err != nil {
			return err
		}
	}
}

func (d *deletion) remove(name string) error {
	if len(d.levels) == 1 && name == ".git" {
		return nil
	}
	s, err := statAt(d.fd(), name)
	if err != nil {
		return ignoreAbsent(err)
	}
	if s.kind == unix.S_IFDIR {
		return d.open(d.fd(), name)
	}
	if err := d.unlink(d.fd(), name, 0); err != nil {
		return err
	}
	d.done.Bytes += s.size
	return nil
}

func (d *deletion) unlink(dir int, name string, flags int) error {
	err := ignoreAbsent(unix.Unlinkat(dir, name, flags))
	if err != nil {
		return fmt.Errorf("%s: %w", printable(name), err)
	}
	if d.done.Files++; d.done.Files%256 == 0 {
		d.report()
	}
	d.reached("deleting")
	return nil
}

func (d *deletion) report() { d.progress(d.done) }
