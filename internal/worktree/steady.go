package worktree

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stamp changes whenever a file's content, permissions or names do, or what a
// directory lists.
type stamp struct {
	ino                uint64
	size, mtime, ctime int64 // times in nanoseconds since 1970
}

// coarse is the coarsest clock by which a file system stamps changes. A change
// that follows another within it may leave the same stamp.
const coarse = 3 * time.Second

func (e *Engine) coarse() time.Duration {
	if e.coarseAt <= 0 {
		return coarse
	}
	return e.coarseAt
}

// steady is a look that found nothing that keeps the worktree, at files that a
// later change cannot leave with the same stamps. As long as these and the index
// are the same, the content needs no second look.
type steady struct {
	tree  *tree
	index string // raw
	// indexStamp is that of the index file, zero if the file may change without a
	// new one.
	indexStamp stamp
	head       string
}

// steady answers nil if the next look has to be a whole one. began is when the
// look began.
func (s *seen) steady(began time.Time, coarse time.Duration) *steady {
	c := s.contents
	// What the main checkout has, it may not have any more the next time.
	before := began.Add(-coarse).UnixNano()
	if len(s.findings) > 0 || c == nil || c.leaned || !c.resting || !stampsChanges(c.dir) || !c.tree.isOlder(before) {
		return nil
	}
	rests := &steady{tree: c.tree, index: c.index.raw, head: s.head}
	if s.index.ctime < before {
		rests.indexStamp = s.index
	}
	return rests
}

// indexStamp answers the stamp of the file that alone is the index of an admin
// directory. It is the zero stamp if there is no such file, or if its changes
// leave no stamps that could be relied on.
func indexStamp(admin string) stamp {
	names, err := namesIn(admin)
	isPart := func(name string) bool { return strings.HasPrefix(name, "sharedindex.") }
	if err != nil || slices.ContainsFunc(names, isPart) || !stampsChanges(admin) {
		return stamp{}
	}
	s, err := statAt(atCurrent, filepath.Join(admin, "index"))
	if err != nil || s.kind != unix.S_IFREG {
		return stamp{}
	}
	return s.stamp()
}

// isOlder reports whether everything was last changed before a time.
func (t *tree) isOlder(than int64) bool {
	for i := range t.nodes {
		node := &t.nodes[i]
		if node.stamp.ctime >= than || slices.ContainsFunc(node.stamps, func(s stamp) bool { return s.ctime >= than }) {
			return false
		}
	}
	return true
}

// isSteady reports whether everything is as it was at the first look. Whoever
// could still write is looked for before the files are, and the index is read
// before, so nothing is done unseen after both.
func (l *look) isSteady(ctx context.Context, q *questions, s *seen) bool {
	if l.steady == nil || q.headErr != nil || q.head != l.steady.head {
		return false
	}
	by, err := inUse(ground{dir: l.dir, tree: l.steady.tree, callers: l.callers})
	if err != nil || len(by.findings) > 0 {
		return false
	}
	if raw, err := q.index(l.alive); err != nil || raw != l.steady.index {
		return false
	}
	found, err := l.walk(ctx)
	if err != nil || !found.same(l.steady.tree) {
		return false
	}
	s.notes = append(s.notes, by.notes...)
	s.files, s.bytes, s.entries = found.files, found.bytes, found.entries
	return true
}

// same reports whether two walks of one directory, which was renamed between
// them, found the same files, all unchanged.
func (t *tree) same(as *tree) bool {
	if len(t.nodes) != len(as.nodes) {
		return false
	}
	for i := range t.nodes {
		a, b := &t.nodes[i], &as.nodes[i]
		was := b.stamp
		if i == 0 {
			// The rename changed it.
			was.ctime = a.stamp.ctime
		}
		if a.parent != b.parent || a.name != b.name || a.id != b.id || a.stamp != was ||
			!bytes.Equal(a.entries, b.entries) || !slices.Equal(a.stamps, b.stamps) {
			return false
		}
	}
	return slices.Equal(t.mounts, as.mounts) && slices.Equal(t.unremovable, as.unremovable) && slices.Equal(t.unreadable, as.unreadable)
}
