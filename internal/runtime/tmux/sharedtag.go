package tmux

import (
	"context"
	"errors"
	"slices"
	"strconv"
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
	switch {
	case err != nil && !t.recorded.Valid():
		shared = true
	case err != nil:
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
	if !t.recorded.Valid() {
		return t.someServerShares(ctx, tag)
	}
	if t.handed == nil {
		return t.server.shares(ctx, t.recorded, tag)
	}
	environment, err := proctable.Environ(t.recorded.PID)
	return *t.handed || err == nil && environment.Has(tag), nil
}

// someServerShares is sharesTag for a record that names no server: the servers
// are asked that those that carry tag say they run under. One that says nothing
// may have it from anywhere.
func (t *target) someServerShares(ctx context.Context, tag string) (bool, error) {
	table, err := proctable.Scan()
	if err != nil {
		return false, runtime.TableError(err)
	}
	tagged, err := proctable.Tagged(table, tag)
	if err != nil {
		return false, runtime.TableError(err)
	}
	asked := map[int]bool{}
	for _, p := range tagged {
		environment, err := p.Environ()
		if errors.Is(err, proctable.ErrGone) {
			continue
		}
		place, told := placeIn(environment)
		if err != nil || !told || checkSocket(place.socket) != nil {
			return true, nil
		}
		process, there := table[place.serverPID]
		if !there || process.Dead || process.Start > p.Start || asked[place.serverPID] {
			continue // that server is dead, or was asked
		}
		asked[place.serverPID] = true
		shared, err := server{t.server.binary, place.socket}.shares(ctx, process.Ref, tag)
		if err != nil || shared {
			return shared, err
		}
	}
	return false, nil
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
// server that is dead hands out nothing any more; one that is not known may.
func (s server) shares(ctx context.Context, process proctable.Ref, tag string) (bool, error) {
	if !process.Valid() {
		return true, nil
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
	r, _ := s.run(ctx, listLimit, "display-message", "-p", "#{pid}", ";", "show-environment", "-g", name)
	who, value, _ := strings.Cut(string(r.stdout), "\n")
	switch {
	case who != strconv.Itoa(process.PID): // another server answers there, or none
	case r.answer == answered:
		return strings.TrimSuffix(value, "\n") == tag, nil
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
	known := t.recorded.Valid()
	for _, p := range tagged {
		leader := table[p.Session]
		if known && (p.PID == t.recorded.PID || table.Descends(p.PID, t.recorded.PID) || leader.Parent == t.recorded.PID) {
			continue
		}
		contested = append(contested, p)
	}
	return contested, nil
}
