package tmux

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"unwind/internal/runtime"
	"unwind/teardown"
)

// environmentMark is printed before the server's environment: no line of a
// listing and no pane begins so.
const environmentMark = "=environment"

// survey is list for a session that is to be ended. In the same call it asks for
// the session's panes and whether the server hands the recorded env_tag to every
// session: each call costs a process.
func (t *target) survey(ctx context.Context) (listing, error) {
	t.listed, t.panes, t.handed = listing{}, nil, nil
	name, _, tagged := strings.Cut(t.claim.Tag, "=")
	commands := slices.Concat(listCommands(t.option), []string{";"}, paneCommand(t.id))
	if tagged {
		commands = append(commands, ";", "display-message", "-p", environmentMark, ";", "show-environment", "-g", name)
	}
	r, truncated := t.server.run(ctx, listLimit, commands...)
	switch r.answer {
	case answered, noSession, noSessions, unsetVariable:
	default:
		return listing{}, &refusal{r.answer, r.text}
	}
	sessions, environment, asked := strings.Cut(string(r.stdout), environmentMark+"\n")
	l, err := parseListing(sessions)
	if err != nil || truncated {
		return listing{}, &refusal{unknown, fmt.Sprintf("tmux printed a listing that cannot be read: %v", err)}
	}
	t.listed, t.panes = l, parsePanes(sessions, t.recorded.PID, t.id)
	if asked {
		handed := r.answer == answered && strings.TrimSuffix(environment, "\n") == t.claim.Tag
		t.handed = &handed
	}
	return l, nil
}

// lookToEnd is look for a session that is to be ended: the processes of panes
// that were opened after the record was made are its own, too.
func (t *target) lookToEnd(ctx context.Context) (runtime.State, error) {
	t.list = t.survey
	state, err := t.look(ctx)
	if err == nil && state == runtime.Alive {
		t.claimPanes(t.listed, t.panes)
	}
	return state, err
}

// claimPanes adds the processes of the session's own panes to the claim, and
// remembers those of which it cannot be told. l was had with the panes.
func (t *target) claimPanes(l listing, panes []pane) {
	for _, p := range panes {
		root, ok := p.leader(t.recorded)
		if !ok || slices.Contains(t.claim.Roots, root) {
			continue
		}
		switch l.ownerOf(p, root.Ref, t.id) {
		case ours:
			t.claim.Roots = append(t.claim.Roots, root)
		case untold:
			t.untold = append(t.untold, root.Ref)
		}
	}
}

// learned is the record with the panes that were opened after it was made: when
// the session is gone, nothing else proves whose their processes are.
func (t *target) learned(rt teardown.Runtime) (known teardown.Runtime, more bool) {
	if t.identity == nil {
		return rt, false
	}
	identity := *t.identity
	identity.Panes = nil
	for _, root := range t.claim.Roots {
		identity.Panes = append(identity.Panes, teardown.Pane{PID: root.PID, StartTime: root.Start})
	}
	rt.Identity = &identity
	return rt, len(identity.Panes) > len(t.identity.Panes)
}

// panesToShow are those of the survey, if there was one.
func (t *target) panesToShow(ctx context.Context) ([]pane, error) {
	if t.panes != nil {
		return t.panes, nil
	}
	panes, err := t.server.panes(ctx, t.recorded.PID, t.id)
	if err != nil {
		return nil, runtime.Unreachable(err, "The panes of tmux session %s could not be listed", t.id)
	}
	return panes, nil
}
