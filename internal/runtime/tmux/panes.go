package tmux

import (
	"context"
	"strconv"
	"strings"

	"unwind/internal/runtime/proctable"
)

// pane is one pane of the recorded session.
type pane struct {
	id   string
	pid  int
	dead bool // kept by remain-on-exit after its process ended
	// links counts the sessions that show the pane's window.
	links int
}

// panes lists the panes of a session of the server with process number
// serverPID. The error is a *refusal.
func (s server) panes(ctx context.Context, serverPID int, id string) ([]pane, error) {
	r, _ := s.run(ctx, listLimit, "list-panes", "-s", "-t", id+":", "-F",
		"#{session_id}|#{pid}|#{pane_id}|#{pane_pid}|#{pane_dead}|#{window_linked_sessions}")
	if r.answer != answered {
		return nil, &refusal{r.answer, r.text}
	}
	var panes []pane
	for line := range strings.Lines(string(r.stdout)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if len(fields) != 6 || fields[0] != id || fields[1] != strconv.Itoa(serverPID) {
			continue
		}
		pid, err := strconv.Atoi(fields[3])
		if err != nil {
			continue
		}
		links, _ := strconv.Atoi(fields[5])
		panes = append(panes, pane{id: fields[2], pid: pid, dead: fields[4] == "1", links: links})
	}
	return panes, nil
}

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
