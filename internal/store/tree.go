package store

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
)

// Which worktree sits in which is decided by their paths, for that is what a
// rename moves; the recorded parent counts as well.

// ancestors lists the ids of the worktrees that contain the path, the nearest
// first, and of the recorded parents of parentID and above.
func ancestors(ctx context.Context, q queries, host, path, parentID string) ([]string, error) {
	var above []string
	for dir := filepath.Dir(path); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		above = append(above, dir)
	}
	var ids []string
	err := q.among(ctx, &ids,
		"SELECT id FROM worktrees WHERE host = ? AND path IN (?) AND state <> 'removed' ORDER BY LENGTH(path) DESC", host, above)
	if err != nil {
		return nil, err
	}
	for parentID != "" && !slices.Contains(ids, parentID) {
		ids = append(ids, parentID)
		var next string
		if _, err := q.one(ctx, &next, "SELECT COALESCE(parent_id, '') FROM worktrees WHERE id = ?", parentID); err != nil {
			return nil, err
		}
		parentID = next
	}
	return ids, nil
}

// descendants lists the worktrees inside w that are not removed, whoever holds
// them, by path.
func descendants(ctx context.Context, q queries, w Worktree) ([]Worktree, error) {
	var inside []Worktree
	// '0' is the character after '/': the range holds what begins with the path
	// and a slash, whatever characters LIKE would take for its own.
	err := q.all(ctx, &inside, "SELECT "+worktreeColumns+` FROM worktrees
		WHERE state <> 'removed' AND id <> ? AND (parent_id = ? OR (host = ? AND path > ? AND path < ?)) ORDER BY path`,
		w.ID, w.ID, w.Host, w.Path+"/", w.Path+"0")
	return inside, err
}

// within reports whether path is below dir.
func within(path, dir string) bool { return strings.HasPrefix(path, dir+"/") }

func depth(path string) int { return strings.Count(path, "/") }

func ids(worktrees []Worktree) []string {
	out := make([]string, len(worktrees))
	for i, w := range worktrees {
		out[i] = w.ID
	}
	return out
}

func paths(worktrees []Worktree) []string {
	out := make([]string, len(worktrees))
	for i, w := range worktrees {
		out[i] = w.Path
	}
	return out
}
