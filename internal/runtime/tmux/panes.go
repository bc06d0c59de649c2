package tmux

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"unwind/internal/runtime/proctable"
)

// pane is one pane of the recorded session.
type pane struct {
	id   string
	pid  int
	dead bool // kept by remain-on-exit after its process ended
	// shown counts how often the recorded session shows the pane's window, links
	// how often all sessions together do; 0 if tmux does not tell. linked: a
	// session outside of the recorded one's group may show it.
	shown, links int
	linked       bool
	// group counts the sessions in the recorded one's group, itself included.
	group int
}

// panes lists the panes of a session of the server with process number
// serverPID. The error is a *refusal.
func (s server) panes(ctx context.Context, serverPID int, id string) ([]pane, error) {
	r, _ := s.run(ctx, listLimit, paneCommand(id)...)
	if r.answer != answered {
		return nil, &refusal{r.answer, r.text}
	}
	return parsePanes(string(r.stdout), serverPID, id), nil
}

func paneCommand(id string) []string {
	return []string{"list-panes", "-s", "-t", id + ":", "-F",
		"#{pane_id}|#{session_id}|#{pid}|#{pane_pid}|#{pane_dead}|#{window_linked}|#{window_linked_sessions}|#{session_group_size}"}
}

// parsePanes picks the panes of one session of one server out of what was
// printed, which may hold listings as well. A window that the session shows twice
// is listed twice. A format that this tmux does not know is empty.
func parsePanes(out string, serverPID int, id string) (panes []pane) {
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if !isPane(line) || len(fields) != 8 || fields[1] != id || fields[2] != strconv.Itoa(serverPID) {
			continue
		}
		pid, err := strconv.Atoi(fields[3])
		if err != nil {
			continue
		}
		if again := slices.IndexFunc(panes, func(p pane) bool { return p.id == fields[0] }); again >= 0 {
			panes[again].shown++
			continue
		}
		links, _ := strconv.Atoi(fields[6])
		group, _ := strconv.Atoi(fields[7])
		panes = append(panes, pane{id: fields[0], pid: pid, dead: fields[4] == "1",
			shown: 1, links: links, linked: fields[5] != "0", group: max(1, group)})
	}
	return panes
}

// isPane tells a line of paneCommand from one of listCommands: the id of a pane
// begins like no session's.
func isPane(line string) bool { return strings.HasPrefix(line, "%") }

// leader returns the process that a pane runs, if it is certain: the number of
// a dead pane may be anybody's by now.
func (p pane) leader(server proctable.Ref) (proctable.Root, bool) {
	if p.dead {
		return proctable.Root{}, false
	}
	process, err := proctable.Read(p.pid)
	if err != nil || process.Dead || process.Parent != server.PID || process.Start < server.Start {
		return proctable.Root{}, false
	}
	return proctable.Root{Ref: process.Ref, LeadsSession: true}, true
}
