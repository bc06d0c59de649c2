package worktree

import (
	"context"
	"unwind/teardown"
)

// Inspect is read-only.
func (e *Engine) Inspect(ctx context.Context, target Target) (Report, error) { return Report{}, nil }
func (e *Engine) Remove(ctx context.Context, target Target, journal Journal, hooks Hooks) (Report, error) {
	return Report{}, nil
}
func (e *Engine) PutBack(ctx context.Context, target Target, quarantine string) error { return nil }
func (e *Engine) Register(ctx context.Context, target Target) (Registered, error) {
	return Registered{}, nil
}
func (e *Engine) List(ctx context.Context, repository string) ([]Entry, error) { return nil, nil }
func (e *Engine) AdminJournal(target Target) (Journal, error)                  { return nil, nil }
func CanonicalPath(path string) (string, error)                                { return "", nil }

// AllHooks connects InspectAll and RemoveAll to their caller.
type AllHooks struct {
	Progress func(path string, progress teardown.Progress)
}

func (e *Engine) InspectAll(ctx context.Context, targets []Target, hooks AllHooks) []Report {
	return nil
}
func (e *Engine) RemoveAll(ctx context.Context, targets []Target, hooks AllHooks) []Report {
	return nil
}
