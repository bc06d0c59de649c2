package worktree

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// maxOpen is how many directories of one descent are open at a time. A tree can
// be deeper than a process may have descriptors.
const maxOpen = 64

const openDirectory = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

var errChanged = errors.New("the directory was changed while it was looked at")

// level is one directory of a descent that is under way.
type level struct {
	dir  *os.File // nil while it is closed to save descriptors
	id   fileID
	name string // in the parent
	// names are the entries still to visit.
	names []string
	// node is the walk's number for the directory.
	node int32
	// handed are the directories in it that others delete meanwhile.
	handed sync.WaitGroup
}

// descent is a depth-first way through a tree by descriptors, so that neither
// the length of paths nor links put in the way matter.
type descent struct{ levels []*level }

func (d *descent) top() *level { return d.levels[len(d.levels)-1] }
func (d *descent) fd() int     { return int(d.top().dir.Fd()) }

// start opens the root of the tree.
func (d *descent) start(dir int, name string) error {
	fd, err := openRetry(dir, name)
	if err != nil {
		return err
	}
	return d.push(fd, name)
}

// enter opens a directory of the top level. want is what was seen there.
func (d *descent) enter(name string, want fileID) error {
	fd, err := openRetry(d.fd(), name)
	if err != nil {
		return err
	}
	if err := d.push(fd, name); err != nil {
		return err
	}
	if d.top().id != want {
		_ = d.leave()
		return fmt.Errorf("%s: %w", printable(name), errChanged)
	}
	if i := len(d.levels) - 1 - maxOpen; i >= 0 && d.levels[i].dir != nil {
		_ = d.levels[i].dir.Close()
		d.levels[i].dir = nil
	}
	return nil
}

func (d *descent) push(fd int, name string) error {
	s, err := fdStat(fd)
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	d.levels = append(d.levels, &level{dir: os.NewFile(uintptr(fd), name), id: s.id, name: name})
	return nil
}

// list reads the names in the top level's directory.
func (d *descent) list() error {
	top := d.top()
	if _, err := top.dir.Seek(0, 0); err != nil {
		return err
	}
	names, err := top.dir.Readdirnames(-1)
	top.names = names
	return err
}

// next takes the next name of the top level.
func (d *descent) next() (string, bool) {
	top := d.top()
	if len(top.names) == 0 {
		return "", false
	}
	last := len(top.names) - 1
	name := top.names[last]
	top.names = top.names[:last]
	return name, true
}

// leave closes the top level and makes sure that its parent is open again.
func (d *descent) leave() error {
	top := d.top()
	d.levels = d.levels[:len(d.levels)-1]
	defer top.dir.Close()
	if len(d.levels) == 0 || d.top().dir != nil {
		return nil
	}
	parent := d.top()
	fd, err := openRetry(int(top.dir.Fd()), "..")
	if err != nil {
		return err
	}
	parent.dir = os.NewFile(uintptr(fd), parent.name)
	if s, err := fdStat(fd); err != nil || s.id != parent.id {
		return fmt.Errorf("%s: %w", printable(parent.name), errChanged)
	}
	return nil
}

func (d *descent) close() {
	for _, level := range d.levels {
		level.handed.Wait()
		if level.dir != nil {
			_ = level.dir.Close()
		}
	}
	d.levels = nil
}

// duplicate answers another descriptor of a directory, which no child inherits.
func duplicate(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) }

func openRetry(dir int, name string) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, openDirectory, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}
