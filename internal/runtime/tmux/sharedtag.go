package tmux

import (
	"context"
	"errors"
	"slices"
	"strings"

	"unwind/internal/runtime"
	"unwind/internal/runtime/proctable"
)

// weighTag finds out whether the recorded env_tag is in the server's own
// environment, from which every session of the server inherits it: a tag that
// came with the first session's caller instead of `new-session -e`. Then it
// proves nothing here and is taken out of the claim.
func (t *target) weighTag(ctx context.Context, confirmed bool) error {
	tag := t.claim.Tag
	if tag == "" {
		return nil
	}
	shared, err := t.sharesTag(ctx, tag)
	if err != nil && !confirmed {
		return err
	}
	if err != nil {
		if shared, err = t.othersCarry(tag); err != nil {
			return runtime.TableError(err)
		}
	}
	if shared {
		t.claim.Tag, t.shared = "", tag
	}
	return nil
}

// sharesTag is server.shares for the recorded server, which the survey may have
// asked already.
func (t *target) sharesTag(ctx context.Context, tag string) (bool, error) {
	if t.handed == nil {
		return t.server.shares(ctx, t.recorded, tag)
	}
	environment, err := proctable.Environ(t.recorded.PID)
	return *t.handed || err == nil && environment.Has(tag), nil
}

// othersCarry reports whether a process under the server carries tag that is not
// under a recorded pane: the next best answer when the server gives none.
func (t *target) othersCarry(tag string) (bool, error) {
	table, err := proctable.Scan()
	if err != nil {
		return false, err
	}
	tagged, err := proctable.Tagged(table, tag)
	for _, p := range tagged {
		recorded := slices.ContainsFunc(t.claim.Roots, func(root proctable.Root) bool {
			return p.Ref == root.Ref || table.Descends(p.PID, root.PID)
		})
		if !recorded && table.Descends(p.PID, t.recorded.PID) {
			return true, nil
		}
	}
	return false, err
}

// shares reports whether a server hands tag, a NAME=VALUE, to every session. A
// server that is dead hands out nothing any more.
func (s server) shares(ctx context.Context, process proctable.Ref, tag string) (bool, error) {
	if !process.Valid() {
		return false, nil
	}
	now, running, err := runtime.Running(process)
	if err != nil || !running {
		return false, err
	}
	if environment, err := proctable.Environ(process.PID); err == nil && environment.Has(tag) {
		return true, nil
	}
	if now.Stopped {
		return false, runtime.Unreachable(nil, "The tmux server (process %d) is stopped.", process.PID)
	}
	name, _, _ := strings.Cut(tag, "=")
	r, _ := s.run(ctx, listLimit, "show-environment", "-g", name)
	switch {
	case r.answer == answered:
		return strings.TrimSuffix(string(r.stdout), "\n") == tag, nil
	case r.answer == unsetVariable:
		return false, nil
	}
	if _, running, err := runtime.Running(process); err == nil && !running {
		return false, nil
	}
	return false, runtime.Unreachable(errors.New(r.text), "The tmux server (process %d) could not be asked for its environment", process.PID)
}

// contested returns what carries a shared tag and is not under another pane of
// the server, and the panes' processes of which it could not be told: they may be
// this session's or another one's.
func (t *target) contested(table proctable.Table) ([]proctable.Process, error) {
	contested := t.untoldIn(table)
	if t.shared == "" {
		return contested, nil
	}
	tagged, err := proctable.Tagged(table, t.shared)
	if err != nil {
		return nil, err
	}
	for _, p := range tagged {
		leader := table[p.Session]
		if p.PID == t.recorded.PID || table.Descends(p.PID, t.recorded.PID) || leader.Parent == t.recorded.PID {
			continue
		}
		contested = append(contested, p)
	}
	return contested, nil
}
