package proctable

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Handle holds on to exactly one process: a signal through it cannot reach
// another one that was given the same number since.
type Handle struct {
	Ref
	fd int // a pidfd, or -1 where there is none: kernel, sandbox, open files
}

// Open takes hold of the process that ref names; ErrGone if it has ended.
func Open(ref Ref) (*Handle, error) {
	if err := signallable(ref); err != nil {
		return nil, err
	}
	fd, err := unix.PidfdOpen(ref.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, ErrGone
	}
	if err != nil {
		fd = -1
	}
	h := &Handle{Ref: ref, fd: fd}
	// Read after the process is held: from here on the number cannot change hands.
	alive, err := Alive(ref)
	if err == nil && !alive {
		err = ErrGone
	}
	if err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// Signal sends one signal. ErrGone: the process has ended; ErrDenied: it may
// not be signalled by us.
func (h *Handle) Signal(signal unix.Signal) error {
	if h.fd < 0 {
		alive, err := Alive(h.Ref)
		if err != nil {
			return err
		}
		if !alive {
			return ErrGone
		}
		return procError(unix.Kill(h.PID, signal))
	}
	return procError(unix.PidfdSendSignal(h.fd, signal, nil, 0))
}

// Ended reports whether the process with all its threads has ended.
func (h *Handle) Ended() bool {
	if h.fd < 0 {
		alive, err := Alive(h.Ref)
		return err == nil && !alive
	}
	fds := []unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// Close lets go of the process.
func (h *Handle) Close() {
	if h.fd >= 0 {
		unix.Close(h.fd)
		h.fd = -1
	}
}

// Await returns when all the processes have ended, when d has passed or when
// ctx is done.
func Await(ctx context.Context, handles []*Handle, d time.Duration) {
	const step = 50 * time.Millisecond
	for end := time.Now().Add(d); ctx.Err() == nil; {
		var running []unix.PollFd
		blind := false
		for _, h := range handles {
			if h.Ended() {
				continue
			}
			if h.fd < 0 {
				blind = true
				continue
			}
			running = append(running, unix.PollFd{Fd: int32(h.fd), Events: unix.POLLIN})
		}
		left := time.Until(end)
		if len(running) == 0 && !blind || left <= 0 {
			return
		}
		wait := min(left, step)
		if _, err := unix.Poll(running, int(wait.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			time.Sleep(wait)
		}
	}
}
