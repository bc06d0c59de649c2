// Package tmux ends tmux sessions: exactly the one that was recorded, on
// exactly the server that was recorded, with the processes that it left behind.
//
// A session is known by its server's process (number and start time), its id on
// that server and its tag; never by its name, which is for people.
package tmux

import (
	"context"
	"time"

	"unwind/internal/runtime"
	"unwind/teardown"
)

// Kind is the runtime kind tmux.
type Kind struct {
	// Binary is the tmux program; empty means tmux in the PATH.
	Binary string
}

var (
	_ runtime.Kind     = Kind{}
	_ runtime.Surveyor = Kind{}
)

// hangupPatience is what processes get after tmux's own SIGHUP, before they are
// killed: an interactive shell ignores SIGTERM and saves its history on SIGHUP.
const hangupPatience = 500 * time.Millisecond

// Snapshot implements runtime.Kind: the scrollback of every pane.
func (k Kind) Snapshot(ctx context.Context, rt teardown.Runtime, dir string) (string, error) {
	t := k.target(rt)
	state, err := k.probe(rt, func(*target) (runtime.State, error) { return t.look(ctx) })
	if err != nil || state == runtime.Gone {
		return "", err
	}
	return t.snapshot(ctx, dir)
}

// Destroy implements runtime.Kind.
func (k Kind) Destroy(ctx context.Context, rt teardown.Runtime, options runtime.Options) (runtime.Outcome, error) {
	t := k.target(rt)
	t.mayRevive = true
	plan := runtime.Plan{
		Runtime:   rt,
		Claim:     t.claim,
		Check:     func() error { return check(rt) },
		Look:      t.lookToEnd,
		Weigh:     t.weigh,
		Snapshot:  t.snapshot,
		Learned:   func() (teardown.Runtime, bool) { return t.learned(rt) },
		End:       t.end,
		Contested: t.contested,
		Patience:  hangupPatience,
	}
	outcome, err := plan.Destroy(ctx, options)
	outcome.Notes = append(outcome.Notes, t.notes...)
	return outcome, err
}
