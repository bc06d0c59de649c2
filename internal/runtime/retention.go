package runtime

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// Retention bounds what is kept of snapshots.
type Retention struct {
	// Keep is how long a snapshot is kept that nobody needs any more.
	Keep time.Duration
	// Space is how many bytes all snapshots may take.
	Space int64
}

// snapshotPattern is what the names of snapshots look like, and of what a
// writer that was killed has left of one.
var snapshotPattern = regexp.MustCompile(`^(tmux-[A-Za-z0-9._-]{1,128}\.txt|\.tmux-[A-Za-z0-9._-]{1,128}\.txt\.[0-9]+)$`)

// Prune removes snapshots from dir: those older than r.Keep that needed, which
// is asked by path, does not name; and then the oldest until the rest takes no
// more than r.Space, needed ones last. What is no snapshot of ours, a link
// included, is neither removed nor counted. Each is tried; the first error is
// answered beside the paths that were removed.
func (r Retention) Prune(dir string, now time.Time, needed func(path string) bool) (removed []string, err error) {
	kept, err := snapshots(dir)
	if err != nil {
		return nil, err
	}
	var first error
	var total int64
	for _, s := range kept {
		total += s.size
	}
	slices.SortFunc(kept, func(a, b snapshotFile) int { return a.at.Compare(b.at) })
	for i := range kept {
		kept[i].needed = needed(kept[i].path)
	}
	slices.SortStableFunc(kept, func(a, b snapshotFile) int { return cmp.Compare(rank(a.needed), rank(b.needed)) })
	for _, s := range kept {
		if old := !s.needed && now.Sub(s.at) > r.Keep; !old && total <= r.Space {
			continue
		}
		if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			first = cmp.Or(first, err)
			continue
		}
		total -= s.size
		removed = append(removed, s.path)
	}
	return removed, first
}

type snapshotFile struct {
	path   string
	at     time.Time
	size   int64
	needed bool
}

func rank(needed bool) int {
	if needed {
		return 1
	}
	return 0
}

// snapshots lists the snapshots in dir by their canonical paths, as
// WriteSnapshot answers them; none if there is no such directory.
func snapshots(dir string) ([]snapshotFile, error) {
	canonical, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(canonical)
	if err != nil {
		return nil, err
	}
	var found []snapshotFile
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !snapshotPattern.MatchString(entry.Name()) {
			continue
		}
		info, err := entry.Info()
		if err != nil {
			continue // gone meanwhile
		}
		found = append(found, snapshotFile{path: filepath.Join(canonical, entry.Name()), at: info.ModTime(), size: info.Size()})
	}
	return found, nil
}
