package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"unwind/internal/runtime"
	"unwind/internal/runtime/kinds"
	"unwind/teardown"
)

// probed and destroyed are the numbers of tmux sessions, atOnce of those that are
// ended at a time.
const (
	probed    = 500
	destroyed = 100
	atOnce    = 8
)

// runtimes measures one look at many sessions, and their end, each against the
// plain tmux command for each session.
func runtimes(ctx context.Context, _ options) ([]row, error) {
	s, err := newScene(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer s.clear()
	say("Starting %d tmux sessions.", probed)
	handles, err := s.handles(ctx, "a", probed)
	if err != nil {
		return nil, err
	}
	looked, err := s.probe(ctx, handles)
	if err != nil {
		return nil, err
	}
	ends, err := s.destroy(ctx, handles)
	return append([]row{looked}, ends...), err
}

// handles starts sessions and pins them.
func (s *scene) handles(ctx context.Context, prefix string, n int) ([]teardown.Runtime, error) {
	handles := make([]teardown.Runtime, n)
	for i := range handles {
		name := prefix + strconv.Itoa(i)
		if err := s.tmux(ctx, "new-session", "-d", "-s", name, "-e", runtime.RunVariable+"="+name, "-c", "/", "exec sleep 3600"); err != nil {
			return nil, err
		}
		pinned, err := kinds.All()[teardown.KindTmux].Pin(ctx, teardown.Runtime{Kind: teardown.KindTmux, Role: teardown.RoleAgent, Socket: s.socket, Session: name})
		if err != nil {
			return nil, err
		}
		handles[i] = pinned
	}
	return handles, nil
}

func (s *scene) probe(ctx context.Context, handles []teardown.Runtime) (row, error) {
	began := time.Now()
	survey := kinds.All().Survey()
	for i, handle := range handles {
		if state, err := survey(ctx, handle); err != nil || state != runtime.Alive {
			return row{}, fmt.Errorf("session %d is %v: %w", i, state, err)
		}
	}
	ours := time.Since(began)
	began = time.Now()
	for _, handle := range handles {
		if err := s.tmux(ctx, "has-session", "-t", "="+handle.Session); err != nil {
			return row{}, err
		}
	}
	plain := time.Since(began)
	return row{fmt.Sprintf("look whether %d tmux sessions live; tmux has-session for each", len(handles)),
		milliseconds(ours), milliseconds(plain), times(ours.Seconds(), plain.Seconds())}, nil
}

// destroy ends sessions one after the other and several at once, as a worker
// does, and then as many by a loop.
func (s *scene) destroy(ctx context.Context, handles []teardown.Runtime) ([]row, error) {
	single, err := ended(ctx, handles[:destroyed], 1)
	if err != nil {
		return nil, err
	}
	several, err := ended(ctx, handles[destroyed:2*destroyed], atOnce)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	for _, handle := range handles[2*destroyed : 3*destroyed] {
		if err := s.tmux(ctx, "kill-session", "-t", "="+handle.Session); err != nil {
			return nil, err
		}
	}
	plain := perSecond(destroyed, time.Since(began))
	of := func(how string, ours float64) row {
		return row{fmt.Sprintf("end %d tmux sessions %s (sessions/s; tmux kill-session, which verifies nothing)", destroyed, how),
			fmt.Sprintf("%.1f", ours), fmt.Sprintf("%.1f", plain), times(ours, plain)}
	}
	return []row{of("one after the other", single), of(fmt.Sprintf("%d at a time", atOnce), several)}, nil
}

// ended ends sessions and answers how many a second.
func ended(ctx context.Context, handles []teardown.Runtime, atOnce int) (float64, error) {
	kind := kinds.All()[teardown.KindTmux]
	var all errgroup.Group
	all.SetLimit(atOnce)
	began := time.Now()
	for _, handle := range handles {
		all.Go(func() error {
			outcome, err := kind.Destroy(ctx, handle, runtime.Options{})
			if err != nil || !outcome.Runtime.Outcome.Released() {
				return fmt.Errorf("session %s is %s: %w", handle.Session, outcome.Runtime.Outcome, err)
			}
			return nil
		})
	}
	err := all.Wait()
	return perSecond(len(handles), time.Since(began)), err
}
