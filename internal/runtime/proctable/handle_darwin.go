package proctable

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Handle names a process that was there when it was opened. This system has no
// handle on a process: between the comparison of the start time and the signal
// is a window of microseconds.
type Handle struct{ Ref }

// Open takes note of the process that ref names; ErrGone if it has ended.
func Open(ref Ref) (*Handle, error) {
	if err := signallable(ref); err != nil {
		return nil, err
	}
	alive, err := Alive(ref)
	if err == nil && !alive {
		err = ErrGone
	}
	return &Handle{Ref: ref}, err
}

// Signal sends one signal. ErrGone: the process has ended; ErrDenied: it may not
// be signalled by us.
func (h *Handle) Signal(signal unix.Signal) error {
	alive, err := Alive(h.Ref)
	if err != nil {
		return err
	}
	if !alive {
		return ErrGone
	}
	switch err := unix.Kill(h.PID, signal); {
	case errors.Is(err, unix.ESRCH):
		return ErrGone
	case errors.Is(err, unix.EPERM):
		return ErrDenied
	default:
		return err
	}
}

// Ended reports whether the process has ended.
func (h *Handle) Ended() bool {
	alive, err := Alive(h.Ref)
	return err == nil && !alive
}

// Close lets go of the process.
func (h *Handle) Close() {}

// Await returns when all the processes have ended, when d has passed or when
// ctx is done.
func Await(ctx context.Context, handles []*Handle, d time.Duration) {
	const step = 50 * time.Millisecond
	queue, err := unix.Kqueue()
	if err == nil {
		defer func() { _ = unix.Close(queue) }()
		for _, h := range handles {
			// One that cannot be watched is looked at after each step, as all are: the
			// number may belong to another process by the time that it is watched.
			_, _ = unix.Kevent(queue, []unix.Kevent_t{exitOf(h.PID)}, nil, nil)
		}
	}
	running := slices.Clone(handles)
	for end := time.Now().Add(d); ctx.Err() == nil; {
		running = slices.DeleteFunc(running, (*Handle).Ended)
		left := time.Until(end)
		if len(running) == 0 || left <= 0 {
			return
		}
		wait := min(left, step)
		limit := unix.NsecToTimespec(wait.Nanoseconds())
		_, err := unix.Kevent(queue, nil, make([]unix.Kevent_t, 1), &limit)
		if err != nil && !errors.Is(err, unix.EINTR) {
			time.Sleep(wait)
		}
	}
}

// exitOf is told once, when the process exits.
func exitOf(pid int) unix.Kevent_t {
	var event unix.Kevent_t
	unix.SetKevent(&event, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	event.Fflags = unix.NOTE_EXIT
	return event
}
