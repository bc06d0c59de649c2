package tmux

import (
	"context"
	"errors"

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
