//go:build !linux

package worktree

// mountsBelow: elsewhere a mount shows by its device only.
func mountsBelow(string) ([]string, error) { return nil, nil }
