// Package process ends plain processes: exactly the one that was recorded, and
// the processes that it left behind.
package process

import (
	"context"

	"unwind/internal/runtime"
	"unwind/teardown"
)

// Kind is the runtime kind process.
type Kind struct{}

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
