// Package lock serializes work on one session, one path or one repository of
// this host: between processes, between attempts inside one process, and
// between a process and the children that outlive it.
//
// A lock is a flock(2) on a file that is opened anew for each attempt and never
// deleted. It belongs to the open file, not to the process, which is what sets
// it apart from fcntl(2) locks: two attempts in one process exclude each other,
// and a child that inherited the descriptor keeps the lock when its parent is
// killed.
//
// Locks are taken in this order: session, paths sorted (so a parent before its
// children), repository. A lock is never waited for inside a transaction.
package lock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"unwind/teardown"
)

const retryInterval = 50 * time.Millisecond

// Dir is the directory of lock files, below the state directory. It is made
// when the first lock is taken. It has to be on a local file system.
type Dir string

// Wait says how long to try for a lock that somebody else holds.
type Wait struct {
	// Limit is how long to go on trying. Zero means one try. A lock that was
	// released a moment ago may still look held while an unrelated child process
	// is between fork and exec, so a caller that expects a free lock should allow
	// some time.
	Limit time.Duration
	// Each, if set, is called before each pause between two tries (every 50 ms):
	// the place for a heartbeat.
	Each func()
}

// Session takes the lock of a session: its runtimes, secrets, resources, start
// and changes of generation. It fails with busy (retryable) when the wait is
// over, with invalid_id for an id that is none, and with permission_denied or
// io_error when the lock file cannot be used. When ctx ends, the error is busy
// and wraps ctx's.
func (d Dir) Session(ctx context.Context, id string, wait Wait) (*Held, error) {
	if err := teardown.ValidateID(id); err != nil {
		return nil, err
	}
	return d.take(ctx, "session-"+id, "session "+id, wait)
}

// Path takes the lock of a worktree's directory and of its row. The path has to
// be canonical, or two names of one directory would not exclude each other.
// Errors are those of Session.
func (d Dir) Path(ctx context.Context, canonicalPath string, wait Wait) (*Held, error) {
	return d.takeHashed(ctx, "path", canonicalPath, wait)
}

// Repository takes the lock of a repository's shared parts, named by the
// canonical path of its common directory. Errors are those of Session.
func (d Dir) Repository(ctx context.Context, commonDir string, wait Wait) (*Held, error) {
	return d.takeHashed(ctx, "repository", commonDir, wait)
}

// Host takes the lock of something that exists once on this host, such as the
// migration of its database or its development servers. The name follows the
// rules of an id. Errors are those of Session.
func (d Dir) Host(ctx context.Context, name string, wait Wait) (*Held, error) {
	if err := teardown.ValidateID(name); err != nil {
		return nil, err
	}
	return d.take(ctx, "host-"+name, name+" on this host", wait)
}

func (d Dir) takeHashed(ctx context.Context, kind, path string, wait Wait) (*Held, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return nil, &teardown.Error{Code: teardown.CodeInternal, Message: fmt.Sprintf(
			"the %s lock needs a canonical absolute path, not %q", kind, path)}
	}
	sum := sha256.Sum256([]byte(path))
	return d.take(ctx, kind+"-"+hex.EncodeToString(sum[:16]), fmt.Sprintf("%s %q", kind, path), wait)
}

func (d Dir) take(ctx context.Context, name, what string, wait Wait) (*Held, error) {
	file, err := d.open(name)
	if err != nil {
		return nil, unusable(what, err)
	}
	held := &Held{file: file}
	if err := held.acquire(ctx, what, wait); err != nil {
		held.Release()
		return nil, err
	}
	return held, nil
}

func (d Dir) open(name string) (*os.File, error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, err
	}
	// os.OpenFile adds O_CLOEXEC: a child gets the lock by ExtraFiles only.
	return os.OpenFile(filepath.Join(string(d), name+".lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
}

// Held is one lock that is held.
type Held struct{ file *os.File }

// File is the open lock file, for exec.Cmd.ExtraFiles: a child that has it
// keeps the lock until it ends, even if this process is killed.
func (h *Held) File() *os.File { return h.file }

// Release gives the lock up, unless a child still has the file. It may be
// called again, and on nil.
func (h *Held) Release() {
	if h == nil {
		return
	}
	// Closing, not LOCK_UN: unlocking would free it under a child that shares it.
	_ = h.file.Close()
}

func (h *Held) acquire(ctx context.Context, what string, wait Wait) error {
	deadline := time.Now().Add(wait.Limit)
	// Most are held for a moment only.
	for interval := retryInterval / 16; ; interval = min(2*interval, retryInterval) {
		free, err := h.try()
		if err != nil {
			return unusable(what, err)
		}
		if free {
			return nil
		}
		pause := min(interval, time.Until(deadline))
		if pause <= 0 {
			return busy(what, nil)
		}
		if wait.Each != nil {
			wait.Each()
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return busy(what, context.Cause(ctx))
		case <-timer.C:
		}
	}
}

func (h *Held) try() (free bool, err error) {
	for {
		err := unix.Flock(int(h.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, &fs.PathError{Op: "flock", Path: h.file.Name(), Err: err}
		}
	}
}

func busy(what string, cause error) error {
	return &teardown.Error{Code: teardown.CodeBusy, Retryable: true, Cause: cause, Message: fmt.Sprintf(
		"somebody else is working on %s; try again when that is done", what)}
}

func unusable(what string, err error) error {
	code := teardown.CodeIOError
	if errors.Is(err, fs.ErrPermission) {
		code = teardown.CodePermissionDenied
	}
	return &teardown.Error{Code: code, Retryable: true, Cause: err, Message: fmt.Sprintf(
		"the lock file of %s cannot be used; make the state directory writable for this user", what)}
}
