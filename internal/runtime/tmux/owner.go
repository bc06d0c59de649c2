package tmux

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"unwind/internal/runtime"
	"unwind/internal/runtime/proctable"
)

// owner is what can be told of whose a pane is.
type owner int

const (
	untold owner = iota
	ours
	theirs
)

// ownerOf tells whether a pane that the session id shows is that session's.
//
// Sessions of a group have all windows in common. The group of a session that
// others have joined is its own, with whatever they open; a session that has
// joined another's group has in it what was opened in itself. Beyond the group,
// too, a window is of the session in which it was opened, wherever it is linked.
func (l listing) ownerOf(p pane, leader proctable.Ref, id string) owner {
	family := l.family(id, p.group)
	if p.only() || p.inGroup() && len(family) == p.group {
		return ours
	}
	opened := openedIn(p, leader, l.serverPID)
	if slices.Contains(family, opened) {
		return ours
	}
	if _, there := l.byID(opened); there {
		return theirs
	}
	return untold
}

// only: no other session shows the pane's window.
func (p pane) only() bool { return p.inGroup() && (p.group == 1 || p.links != 0 && p.links <= p.shown) }

// inGroup: no session outside of the recorded one's group shows the window.
func (p pane) inGroup() bool {
	if p.links == 0 {
		return !p.linked
	}
	return p.links <= p.shown*p.group
}

// family are the ids of a session and, if it is the oldest one of its group, of
// those that have joined it. size is the group's: if there are more sessions of
// that name, it cannot be told which they are.
func (l listing) family(id string, size int) []string {
	self, _ := l.byID(id)
	family := []string{id}
	for _, s := range l.sessions {
		if self.group != "" && s.group == self.group && s.id != id {
			family = append(family, s.id)
		}
	}
	if len(family) != size || slices.ContainsFunc(family, func(other string) bool { return older(other, id) }) {
		return []string{id}
	}
	return family
}

// older compares ids of sessions, which a server counts up.
func older(a, b string) bool {
	x, _ := strconv.Atoi(strings.TrimPrefix(a, "$"))
	y, _ := strconv.Atoi(strings.TrimPrefix(b, "$"))
	return x < y
}

// openedIn is the id of the session in which a pane was opened, or "".
func openedIn(p pane, leader proctable.Ref, serverPID int) string {
	environment, err := proctable.SettledEnviron(leader.PID, tellsPane(p.id))
	if err != nil || !environment.Has("TMUX_PANE="+p.id) {
		return ""
	}
	if at, told := placeIn(environment); told && at.serverPID == serverPID {
		return at.session
	}
	return ""
}

// place is where in tmux a program was started.
type place struct {
	socket    string
	serverPID int
	session   string // its id
}

// placeIn reads what tmux tells every program: TMUX=SOCKET,PID,NUMBER.
func placeIn(environment proctable.Environment) (place, bool) {
	value, _ := environment.Lookup("TMUX")
	fields := strings.Split(value, ",")
	last := len(fields) - 1
	if last < 2 {
		return place{}, false
	}
	pid, err := strconv.Atoi(fields[last-1])
	return place{strings.Join(fields[:last-1], ","), pid, "$" + fields[last]}, err == nil
}

// tellsPane is true of the environment of a pane's program. Until the pane's
// process has begun it, it shows the server's; tmux tells every program its pane.
func tellsPane(pane string) func(proctable.Environment) bool {
	return func(e proctable.Environment) bool { return e.Has("TMUX_PANE=" + pane) }
}

// weigh finds out what the claim is worth. A pane that may be the session's or
// another one's is for a person to decide before anything is ended: once the
// session is gone, nothing tells that it ever showed it.
func (t *target) weigh(ctx context.Context, confirmed bool) error {
	if err := t.weighTag(ctx, confirmed); err != nil || len(t.untold) == 0 {
		return err
	}
	table, err := proctable.Scan()
	if err != nil {
		return runtime.TableError(err)
	}
	found, err := t.claim.Find(table)
	if err != nil {
		return runtime.TableError(err)
	}
	for _, p := range found.Owned {
		t.untold = slices.DeleteFunc(t.untold, func(ref proctable.Ref) bool { return ref == p.Ref })
	}
	var lines []string
	for _, p := range t.untoldIn(table) {
		lines = append(lines, p.String())
	}
	if len(lines) == 0 {
		return nil
	}
	refusal := runtime.Contradiction("tmux session %s shows windows that other sessions show, too, and it cannot be told whose their processes are; unlink those windows from one of the sessions (tmux unlink-window), or end the processes, then try again.", t.id)
	refusal.Details = runtime.Listed(lines)
	return refusal
}

// untoldIn are the processes of untold that live.
func (t *target) untoldIn(table proctable.Table) (living []proctable.Process) {
	for _, ref := range t.untold {
		if p := table[ref.PID]; p.Ref == ref && !p.Dead {
			living = append(living, p)
		}
	}
	return living
}
