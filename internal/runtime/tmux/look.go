package tmux

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"unwind/internal/runtime"
	"unwind/internal/runtime/proctable"
	"unwind/teardown"
)

// secondLook is the pause before what could not be told is asked once more.
const secondLook = 300 * time.Millisecond

// Probe implements runtime.Kind.
func (k Kind) Probe(ctx context.Context, rt teardown.Runtime) (runtime.State, error) {
	return k.probe(rt, func(t *target) (runtime.State, error) { return t.look(ctx) })
}

// Survey implements runtime.Surveyor: one listing for each socket and option.
func (k Kind) Survey() runtime.Survey {
	type asked struct{ socket, option string }
	listings := map[asked]func() (listing, error){}
	return func(ctx context.Context, rt teardown.Runtime) (runtime.State, error) {
		return k.probe(rt, func(t *target) (runtime.State, error) {
			at := asked{t.server.socket, t.option}
			if listings[at] == nil {
				listings[at] = sync.OnceValues(func() (listing, error) { return t.server.list(ctx, t.option) })
			}
			t.list = func(context.Context) (listing, error) { return listings[at]() }
			return t.lookOnce(ctx)
		})
	}
}

// probe answers what needs no look, and leaves the rest to look.
func (k Kind) probe(rt teardown.Runtime, look func(*target) (runtime.State, error)) (runtime.State, error) {
	return runtime.Probe(rt, func() error { return check(rt) }, func() (runtime.State, error) { return look(k.target(rt)) })
}

// look asks, twice if need be, whether the recorded session is there.
func (t *target) look(ctx context.Context) (runtime.State, error) {
	state, err := t.lookOnce(ctx)
	if err == nil || !runtime.Retryable(err) {
		return state, err
	}
	select {
	case <-ctx.Done():
		return state, err
	case <-time.After(secondLook):
		return t.lookOnce(ctx)
	}
}

func (t *target) lookOnce(ctx context.Context) (runtime.State, error) {
	state, _, err := t.view(ctx)
	return state, err
}

// view compares the recorded server with the process table first: its death is
// that of its sessions, whoever answers at its socket now; and while it lives no
// message of a client that did not reach it means anything.
func (t *target) view(ctx context.Context) (runtime.State, listing, error) {
	process, running, err := runtime.Running(t.recorded)
	if err != nil {
		return 0, listing{}, err
	}
	if !running {
		return runtime.Gone, listing{}, nil
	}
	if process.Stopped {
		return 0, listing{}, runtime.Unreachable(nil, "The tmux server (process %d) is stopped; let it continue (kill -CONT %d), then try again.", process.PID, process.PID)
	}
	l, err := t.list(ctx)
	if err != nil {
		// The server may have gone with its last session while it was asked.
		if _, running, again := runtime.Running(t.recorded); again == nil && !running {
			return runtime.Gone, listing{}, nil
		}
		t.revive(err)
		return 0, listing{}, runtime.Unreachable(err, "The tmux server (process %d) lives but could not be asked at %s", process.PID, t.server.socket)
	}
	return t.judge(l)
}

// judge reads the recorded session out of a listing made while the recorded
// server lived.
func (t *target) judge(l listing) (runtime.State, listing, error) {
	if l.serverPID != t.recorded.PID {
		return 0, l, runtime.Unreachable(nil, "Another tmux server (process %d) answers at %s, while the recorded one (process %d) lives on out of reach; end it or its session by hand.",
			l.serverPID, t.server.socket, t.recorded.PID)
	}
	found, ok := l.byID(t.id)
	if !ok {
		return runtime.Gone, l, nil
	}
	if found.tag != t.tag {
		return 0, l, runtime.Contradiction("tmux session %s (%q) is there, but its option %s says %q instead of %q: it may be somebody else's. Find out whose it is; if it is gone, confirm that.",
			t.id, found.name, t.option, found.tag, t.tag)
	}
	return runtime.Alive, l, nil
}

// revive asks the recorded server, once, to make its socket again after the
// file was removed. tmux does that on SIGUSR1. If anything at all is at the path
// it would be replaced, so then nothing is done.
func (t *target) revive(failure error) {
	var said *refusal
	if !t.mayRevive || !errors.As(failure, &said) || said.answer != noSocket {
		return
	}
	t.mayRevive = false
	if _, err := os.Lstat(t.server.socket); !os.IsNotExist(err) {
		return
	}
	if !proctable.Catches(t.recorded.PID, unix.SIGUSR1) {
		return
	}
	handle, err := proctable.Open(t.recorded)
	if err != nil {
		return
	}
	defer handle.Close()
	if handle.Signal(unix.SIGUSR1) == nil {
		t.notes = append(t.notes, "The tmux server's socket was missing; the server was asked to make it again.")
	}
}
