package tmux

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// session is one line of a server's listing.
type session struct {
	id      string
	created int64 // seconds since the epoch
	tag     string
	group   string // of sessions that have their windows in common; "" if it is in none
	name    string
}

// listing is what the server at a socket said about itself.
type listing struct {
	serverPID int
	sessions  []session
}

func (l listing) byID(id string) (session, bool) {
	for _, s := range l.sessions {
		if s.id == id {
			return s, true
		}
	}
	return session{}, false
}

// refusal is a listing that was not had.
type refusal struct {
	answer answer
	text   string
}

func (r *refusal) Error() string { return r.text }

// list asks the server for its process number and its sessions in one command;
// option is the user option that holds the tags. The error is a *refusal.
//
// The tag is whatever its owner wrote, line breaks included: what cannot be part
// of a tag of ours is replaced, so that it can neither equal one nor pass for a
// line. The name comes last, as it may contain the separator.
func (s server) list(ctx context.Context, option string) (listing, error) {
	r, truncated := s.run(ctx, listLimit, listCommands(option)...)
	if r.answer != answered {
		return listing{}, &refusal{r.answer, r.text}
	}
	l, err := parseListing(string(r.stdout))
	if err != nil || truncated {
		return listing{}, &refusal{unknown, fmt.Sprintf("tmux printed a listing that cannot be read: %v", err)}
	}
	return l, nil
}

func listCommands(option string) []string {
	return []string{"display-message", "-p", "#{pid}", ";",
		"list-sessions", "-F", "#{session_id}|#{session_created}|#{pid}|" + plain(option) + "|" + plain("session_group") + "|#{session_name}"}
}

// plain is the format of a value in which "!" stands for what is in no tag.
func plain(variable string) string { return "#{s/[^" + tagAlphabet + "]/!/:" + variable + "}" }

// lastListing cuts off what was printed before the last of several listings. Each
// begins with a line that has no separator; panes may be listed between.
func lastListing(out string) string {
	last := 0
	for at := 0; at < len(out); {
		end := strings.IndexByte(out[at:], '\n')
		if end < 0 {
			break
		}
		if !strings.Contains(out[at:at+end], "|") {
			last = at
		}
		at += end + 1
	}
	return out[last:]
}

func parseListing(out string) (l listing, err error) {
	lines := slices.DeleteFunc(strings.Split(strings.TrimSuffix(out, "\n"), "\n"), isPane)
	if len(lines) == 0 {
		return listing{}, errors.New("nothing was printed")
	}
	if l.serverPID, err = strconv.Atoi(lines[0]); err != nil {
		return listing{}, err
	}
	for _, line := range lines[1:] {
		fields := strings.SplitN(line, "|", 6)
		if len(fields) != 6 || !sessionIDPattern.MatchString(fields[0]) || fields[2] != lines[0] {
			return listing{}, fmt.Errorf("unexpected line %q", line)
		}
		created, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return listing{}, err
		}
		l.sessions = append(l.sessions, session{id: fields[0], created: created, tag: fields[3], group: fields[4], name: fields[5]})
	}
	return l, nil
}
