package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"unwind/internal/runtime"
	"unwind/internal/runtime/proctable"
	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
)

// runVariable marks the processes of a session.
const runVariable = runtime.RunVariable

// exitSearch finds the session that a hook is about.
type exitSearch struct {
	*program
	facts *facts
}

// directory finds the session that holds the worktree around a directory, the
// nearest one. If only sessions that are over held that one, it is one of them:
// their agent has nothing to do with whoever holds a worktree further up.
func (s exitSearch) directory(ctx context.Context, directories []string) (ended, error) {
	for _, dir := range directories {
		if !filepath.IsAbs(dir) {
			continue
		}
		at, err := s.facts.SessionsAt(ctx, s.facts.config.Host, above(dir))
		if err != nil {
			return ended{}, err
		}
		if len(at) == 0 {
			continue
		}
		nearest := of(at, func(one store.SessionAt) bool { return one.Path == at[0].Path })
		if live := of(nearest, func(one store.SessionAt) bool { return one.Live }); len(live) > 0 {
			nearest = live
		}
		if nearest[0].Live && len(nearest) > 1 {
			return ended{}, &teardown.Error{Code: teardown.CodeConflict, Message: "the worktree " + shown(at[0].Path) +
				" is held by several live sessions; name the one with --session, or start its agent with " + runVariable}
		}
		return ended{nearest[0].SessionID, nearest[0].Generation, teardown.SourceAgentExit}, nil
	}
	return ended{}, notObserved("no live session of this host holds a worktree around %s", shown(strings.Join(directories, ", ")))
}

// above lists a directory and those that contain it, by the names under which
// worktrees are registered. The directory may be gone.
func above(dir string) []string {
	dir = filepath.Clean(dir)
	if canonical, err := worktree.CanonicalPath(dir); err == nil {
		dir = canonical
	}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	var paths []string
	for ; dir != "/"; dir = filepath.Dir(dir) {
		paths = append(paths, dir)
	}
	return paths
}

// run finds the session that has a runtime with this UNWIND_RUN_ID. There is no
// other way then: what carries an id of its own is not its neighbour.
func (s exitSearch) run(ctx context.Context, id string, all bool) (ended, error) {
	found, err := s.runtimes(ctx, all, func(rt teardown.Runtime) bool {
		return rt.Identity != nil && rt.Identity.EnvTag == runVariable+"="+id
	})
	if err != nil {
		return ended{}, err
	}
	if len(found) == 0 {
		return ended{}, notObserved("no live session of this host has a runtime with %s=%s", runVariable, shown(id))
	}
	return endedAt(found[0], teardown.SourceAgentExit), nil
}

// tmuxPlace says which tmux session a hook of tmux is about.
type tmuxPlace struct{ socket, session, tag string }

func (p tmuxPlace) holds(rt teardown.Runtime) bool {
	if rt.Kind != teardown.KindTmux || rt.Role != teardown.RoleAgent || rt.Identity == nil {
		return false
	}
	if p.tag != "" && rt.Identity.Tag != p.tag {
		return false
	}
	return p.socket == "" || sameSocket(rt.Socket, p.socket) && (p.session == "" || rt.Identity.SessionID == p.session)
}

func sameSocket(registered, said string) bool {
	if registered == said {
		return true
	}
	a, errA := worktree.CanonicalPath(registered)
	b, errB := worktree.CanonicalPath(said)
	return errA == nil && errB == nil && a == b
}

// tmux finds the session whose agent ran there and sees that it runs no more. A
// tmux hook fires for each pane, and an id is used again by the next server.
func (s exitSearch) tmux(ctx context.Context, place tmuxPlace, all bool) (ended, error) {
	found, err := s.runtimes(ctx, all, place.holds)
	if err != nil {
		return ended{}, err
	}
	if len(found) == 0 {
		return ended{}, notObserved("no live session of this host has its agent in tmux session %s", shown(strings.TrimSpace(place.session+" "+place.tag)))
	}
	for _, rt := range found {
		over, err := s.isOver(ctx, rt.Handle.V)
		if err != nil {
			return ended{}, err
		}
		if over {
			return endedAt(rt, teardown.SourceRuntimeExit), nil
		}
	}
	return ended{}, &teardown.Error{Code: teardown.CodeSessionLive, Message: "the agent of session " + found[0].SessionID + " still runs"}
}

// isOver: the tmux session is gone, or what its panes were started with has
// ended (remain-on-exit keeps the panes).
func (s exitSearch) isOver(ctx context.Context, rt teardown.Runtime) (bool, error) {
	kind, err := s.kinds().For(rt)
	if err != nil {
		return false, err
	}
	state, err := kind.Probe(ctx, rt)
	if err == nil && state == runtime.Gone {
		return true, nil
	}
	for _, pane := range rt.Identity.Panes {
		alive, unread := proctable.Alive(proctable.Ref{PID: pane.PID, Start: pane.StartTime})
		if unread != nil || alive {
			return false, unread
		}
	}
	return len(rt.Identity.Panes) > 0, err
}

// runtimes lists those of this host that fit, of live sessions or of all.
func (s exitSearch) runtimes(ctx context.Context, all bool, fits func(teardown.Runtime) bool) ([]store.Runtime, error) {
	var found []store.Runtime
	filter := store.RuntimeFilter{Host: s.facts.config.Host, Live: !all}
	err := s.facts.eachRuntime(ctx, filter, func(rt store.Runtime) {
		if fits(rt.Handle.V) {
			found = append(found, rt)
		}
	})
	slices.SortFunc(found, func(a, b store.Runtime) int { return strings.Compare(a.SessionID, b.SessionID) })
	return found, err
}

// eachRuntime pages through the runtimes of a host.
func (f *facts) eachRuntime(ctx context.Context, filter store.RuntimeFilter, do func(store.Runtime)) error {
	const size = 1000
	filter.Limit = size
	for {
		page, err := f.Runtimes(ctx, filter)
		if err != nil {
			return err
		}
		for _, rt := range page {
			do(rt)
			filter.After = rt.ID
		}
		if len(page) < size {
			return nil
		}
	}
}
