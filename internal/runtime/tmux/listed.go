package tmux

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"unwind/internal/runtime"
)

// Listed is one session of a tmux server.
type Listed struct {
	ServerPID int
	ID        string
	Created   int64 // seconds since the epoch
	Name      string
	Tag       string // of unwind's option; "" if it has none
}

// List answers the sessions of the server at a socket; none if no server listens
// there. It starts no server and changes nothing.
func (k Kind) List(ctx context.Context, socket string) ([]Listed, error) {
	if err := checkSocket(socket); err != nil {
		return nil, err
	}
	found, err := server{k.Binary, socket}.list(ctx, TagOption)
	if err != nil {
		var said *refusal
		if errors.As(err, &said) && (said.answer == noSocket || said.answer == noServer || said.answer == noSessions) {
			return nil, nil
		}
		return nil, runtime.Unreachable(err, "The tmux server at %s could not be asked", socket)
	}
	var all []Listed
	for _, s := range found.sessions {
		all = append(all, Listed{ServerPID: found.serverPID, ID: s.id, Created: s.created, Name: s.name, Tag: s.tag})
	}
	return all, nil
}

// Content is what a session shows.
type Content struct {
	Attached int // clients that look at it
	Panes    []Shown
}

// Shown is the foreground process of a pane, as the server names it.
type Shown struct {
	PID     int // of the process that the pane was made for
	Command string
	Path    string // its working directory, if it is known
}

// Content answers what is in a session of the server at a socket: the one with
// this id, if the server's process still has the number. A pane whose process has
// ended is left out. An error has CodeRuntimeUnreachable.
func (k Kind) Content(ctx context.Context, socket string, serverPID int, id string) (Content, error) {
	var content Content
	r, _ := server{k.Binary, socket}.run(ctx, listLimit, "list-panes", "-s", "-t", id+":", "-F",
		"#{session_id}|#{pid}|#{session_attached}|#{pane_dead}|#{pane_pid}|#{s/[|\n]/!/:pane_current_command}|#{pane_current_path}")
	if r.answer != answered {
		return content, runtime.Unreachable(errors.New(r.text), "The panes of tmux session %s at %s could not be listed", id, socket)
	}
	for line := range strings.Lines(string(r.stdout)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "|", 7)
		if len(fields) != 7 || fields[0] != id || fields[1] != strconv.Itoa(serverPID) {
			continue
		}
		content.Attached, _ = strconv.Atoi(fields[2])
		if pid, err := strconv.Atoi(fields[4]); err == nil && fields[3] != "1" {
			content.Panes = append(content.Panes, Shown{PID: pid, Command: fields[5], Path: fields[6]})
		}
	}
	return content, nil
}
