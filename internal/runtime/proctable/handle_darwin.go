package proctable

import (
	"context"
	"errors"
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
	for end := time.Now().Add(d); ctx.Err() == nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		running := false
		for _, h := range handles {
			running = running || !h.Ended()
		}
		if !running {
			return
		}
	}
}
