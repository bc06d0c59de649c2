// Package process ends plain processes: exactly the one that was recorded, and
// the processes that it left behind.
//
// A process is known by its number together with its start time and the boot
// that this is counted from.
package process

import (
	"context"

	"unwind/internal/runtime"
	"unwind/internal/runtime/proctable"
	"unwind/teardown"
)

// Kind is the runtime kind process.
type Kind struct{}

var _ runtime.Kind = Kind{}

// Probe implements runtime.Kind.
func (Kind) Probe(_ context.Context, rt teardown.Runtime) (runtime.State, error) {
	return runtime.Probe(rt, func() error { return check(rt) }, func() (runtime.State, error) { return look(rt) })
}

// Snapshot implements runtime.Kind: a process shows nothing.
func (k Kind) Snapshot(ctx context.Context, rt teardown.Runtime, _ string) (string, error) {
	_, err := k.Probe(ctx, rt)
	return "", err
}

// Destroy implements runtime.Kind.
func (Kind) Destroy(ctx context.Context, rt teardown.Runtime, options runtime.Options) (runtime.Outcome, error) {
	roots := []proctable.Root{root(rt)}
	if anothers(rt) {
		roots = nil
	}
	plan := runtime.Plan{
		Runtime: rt,
		Claim:   runtime.Evidence(rt.Identity, roots),
		Check:   func() error { return check(rt) },
		Look:    func(context.Context) (runtime.State, error) { return look(rt) },
	}
	return plan.Destroy(ctx, options)
}
