// Package tmux ends tmux sessions: exactly the one that was recorded, on
// exactly the server that was recorded, with the processes that it left behind.
package tmux

import (
	"context"

	"unwind/internal/runtime"
	"unwind/teardown"
)

// Kind is the runtime kind tmux.
type Kind struct {
	// Binary is the tmux program; empty means tmux in the PATH.
	Binary string
}

var _ runtime.Kind = Kind{}

func (k Kind) Probe(ctx context.Context, rt teardown.Runtime) (runtime.State, error) {
	panic("not yet")
}
func (k Kind) Snapshot(ctx context.Context, rt teardown.Runtime, dir string) (string, error) {
	panic("not yet")
}
func (k Kind) Destroy(ctx context.Context, rt teardown.Runtime, options runtime.Options) (runtime.Outcome, error) {
	panic("not yet")
}
func (k Kind) Pin(ctx context.Context, rt teardown.Runtime) (teardown.Runtime, error) {
	panic("not yet")
}
