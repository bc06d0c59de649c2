package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"unwind/teardown"
)

// refills is how often a directory that is not empty after all is emptied
// again.
const refills = 3

// deleters bounds how many directories of one tree are emptied at a time.
const deleters = 4

// deletion deletes one tree by descriptors: no link is followed and no mount
// entered. Its own .git file goes last, so that what is left after a crash
// still says what it was.
type deletion struct {
	descent
	*deleting
	// inside: the top of this descent is not the root of the tree.
	inside bool
}

// deleting is what the descents into one tree share.
type deleting struct {
	ctx context.Context
	observer
	dev  uint64
	euid int
	// slots are those for further descents.
	slots chan struct{}

	steps atomic.Int64

	mutex  sync.Mutex // for what follows
	done   teardown.Progress
	failed error
}

// observer is told how a deletion goes on.
type observer struct {
	// patience is how long the file system may take for one answer.
	patience time.Duration
	progress func(teardown.Progress)
	reached  func(step string)
}

func (e *Engine) unobserved() observer {
	return observer{e.patience(), func(teardown.Progress) {}, func(string) {}}
}

// deleteDirectory deletes dir and everything in it. That it is gone already is
// success. Where the file system does not answer it is given up and errNoAnswer;
// it goes no further then, should the answer still come.
func deleteDirectory(ctx context.Context, dir string, by observer) error {
	return deleteBy(ctx, dir, by, func(d *deletion, parent int) error {
		if err := d.unlink(d.fd(), ".git", 0, 0); err != nil {
			return err
		}
		return d.unlink(parent, filepath.Base(dir), unix.AT_REMOVEDIR, 0)
	})
}

// emptyDirectory deletes everything in dir but its .git file.
func emptyDirectory(ctx context.Context, dir string, by observer) error {
	return deleteBy(ctx, dir, by, func(*deletion, int) error { return nil })
}

func deleteBy(ctx context.Context, dir string, by observer, rest func(d *deletion, parent int) error) error {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	d := &deletion{deleting: &deleting{ctx: ctx, observer: by, euid: os.Geteuid(),
		slots: make(chan struct{}, min(deleters, runtime.GOMAXPROCS(0))-1), done: teardown.Progress{Step: "deleting"}}}
	_, err := answered(ctx, by.patience, d.steps.Load, func() (struct{}, error) {
		return struct{}{}, d.delete(dir, func(parent int) error { return rest(d, parent) })
	})
	return err
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
		d.fail(err)
		return err
	}
	d.progress(d.done)
	return rest(parent)
}

// handOver has another descent delete a directory of the top level, if one is
// free.
func (d *deletion) handOver(name string) bool {
	select {
	case d.slots <- struct{}{}:
	default:
		return false
	}
	parent, err := duplicate(d.fd())
	if err != nil {
		<-d.slots
		return false
	}
	d.top().handed.Go(func() {
		other := &deletion{deleting: d.deleting, inside: true}
		d.fail(other.deleteIn(parent, name))
		other.close()
		_ = unix.Close(parent)
		<-d.slots
	})
	return true
}

func (d *deletion) deleteIn(parent int, name string) error {
	if err := d.open(parent, name); err != nil {
		return ignoreAbsent(err)
	}
	for range refills {
		if err := d.empty(); err != nil {
			return err
		}
		err := d.unlink(parent, name, unix.AT_REMOVEDIR, 0)
		if !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
		if err := d.list(); err != nil {
			return err
		}
	}
	return d.unlink(parent, name, unix.AT_REMOVEDIR, 0)
}

func (d *deleting) fail(err error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.failed == nil {
		d.failed = err
	}
}

// stopped answers why not to go on.
func (d *deleting) stopped() error {
	if err := d.ctx.Err(); err != nil {
		return err
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.failed
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
		if err := d.stopped(); err != nil {
			return err
		}
		if name, more := d.next(); more {
			if err := d.remove(name); err != nil {
				return err
			}
			continue
		}
		d.top().handed.Wait()
		if len(d.levels) == 1 {
			return d.stopped()
		}
		name, id := d.top().name, d.top().id
		if err := d.leave(); err != nil {
			return err
		}
		err := d.unlink(d.fd(), name, unix.AT_REMOVEDIR, 0)
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
	if len(d.levels) == 1 && !d.inside && name == ".git" {
		return nil
	}
	s, err := statAt(d.fd(), name)
	if err != nil {
		return ignoreAbsent(err)
	}
	if s.kind == unix.S_IFDIR {
		if d.handOver(name) {
			return nil
		}
		return d.open(d.fd(), name)
	}
	return d.unlink(d.fd(), name, 0, s.size)
}

func (d *deletion) unlink(dir int, name string, flags int, size int64) error {
	err := ignoreAbsent(unix.Unlinkat(dir, name, flags))
	if err != nil {
		return fmt.Errorf("%s: %w", printable(name), err)
	}
	d.steps.Add(1)
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.done.Bytes += size
	if d.done.Files++; d.done.Files%256 == 0 {
		d.progress(d.done)
	}
	d.reached("deleting")
	return nil
}
