package worktree

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"unwind/internal/lock"
	"unwind/teardown"
)

// AllHooks connects InspectAll and RemoveAll to their caller.
type AllHooks struct {
	// Progress is called often with the target's path as it was given.
	Progress func(path string, progress teardown.Progress)
	// SaveChanges saves uncommitted work below refs/unwind/saved/by-hand/, and
	// then removes.
	SaveChanges bool
	// RuntimeEnds: see Hooks.
	RuntimeEnds bool
}

func (h AllHooks) of(target Target) Hooks {
	hooks := Hooks{RuntimeEnds: h.RuntimeEnds}
	if h.Progress != nil {
		hooks.Progress = func(p teardown.Progress) { h.Progress(target.Path, p) }
	}
	if h.SaveChanges {
		hooks.SaveRef = savedByHand(target.Path)
	}
	return hooks
}

// InspectAll answers, for each target in the given order, what RemoveAll would
// come to: a worktree that would go does not keep the one around it. It takes
// no locks and changes nothing.
func (e *Engine) InspectAll(ctx context.Context, targets []Target, hooks AllHooks) []Report {
	return e.whereAnswered(ctx, targets, func(targets []Target) []Report { return e.inspectAll(ctx, targets, hooks) })
}

func (e *Engine) inspectAll(ctx context.Context, targets []Target, hooks AllHooks) []Report {
	return inOrder(targets, func(t *listed, family family) Report {
		report, err := e.inspect(ctx, t.target, family, hooks.of(t.target), true)
		return report.orFailed(err)
	})
}

// RemoveAll removes several worktrees by hand, the deepest first, each with the
// journal in its admin directory. It takes the path locks itself, and holds
// them all until it returns. A worktree that stays keeps those around it and
// nothing else. It answers one report for each target, in the given order.
//
// The working directories of the calling processes do not count as use.
func (e *Engine) RemoveAll(ctx context.Context, targets []Target, hooks AllHooks) []Report {
	return e.whereAnswered(ctx, targets, func(targets []Target) []Report { return e.removeAll(ctx, targets, hooks) })
}

func (e *Engine) removeAll(ctx context.Context, targets []Target, hooks AllHooks) []Report {
	locks, busy := e.lockPaths(ctx, targets, hooks)
	defer func() {
		for _, held := range locks {
			held.Release()
		}
	}()
	return inOrder(targets, func(t *listed, family family) Report {
		if err := busy[t.path]; err != nil {
			return Report{Path: t.target.Path}.orFailed(err)
		}
		h := hooks.of(t.target)
		if held := locks[t.path]; held != nil {
			h.Inherit = []*os.File{held.File()}
		}
		return e.removeByHand(ctx, t.target, h, family)
	})
}

func (e *Engine) removeByHand(ctx context.Context, target Target, hooks Hooks, family family) Report {
	journal, err := e.AdminJournal(target)
	if teardown.CodeOf(err) == teardown.CodeUnsafeTarget {
		journal, err = &AdminJournal{}, nil
	}
	if err != nil {
		return Report{Path: target.Path}.orFailed(err)
	}
	// What was removed is gone: whatever is at its path now is somebody's.
	family.gone = nil
	report, err := e.remove(ctx, target, journal, hooks, family, true)
	report = report.orFailed(err)
	if _, condemned := journal.Quarantine(); !condemned && report.Quarantine == "" {
		if err := journal.Clear(); err != nil {
			report.Notes = append(report.Notes, err.Error())
		}
	}
	return report
}

// orFailed turns an error into the report's verdict.
func (r Report) orFailed(err error) Report {
	if err == nil || r.Disposition != "" {
		return r
	}
	f := finding(errnoCode(err), err.Error(), r.Path)
	var coded *teardown.Error
	if errors.As(err, &coded) {
		f.Code, f.Retryable = coded.Code, coded.Retryable
	}
	r.Findings = []Finding{f}
	r.conclude(teardown.DispositionFailed)
	return r
}

// lockPaths takes the locks in the order of their paths, so that a parent's
// comes before its children's, whoever else does the same.
func (e *Engine) lockPaths(ctx context.Context, targets []Target, hooks AllHooks) (map[string]*lock.Held, map[string]error) {
	locks, busy := map[string]*lock.Held{}, map[string]error{}
	byPath := map[string]Target{}
	for _, target := range targets {
		// One that has no canonical path is refused without a lock.
		if path, err := CanonicalPath(target.Path); err == nil {
			byPath[path] = target
		}
	}
	paths := make([]string, 0, len(byPath))
	for path := range byPath {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		h := hooks.of(byPath[path])
		held, err := e.Locks.Path(ctx, path, lock.Wait{Limit: e.lockWait(), Each: func() {
			h.report(teardown.Progress{Step: "waiting for the worktree"})
		}})
		if err != nil {
			busy[path] = err
			continue
		}
		locks[path] = held
	}
	return locks, busy
}

// listed is one target of several.
type listed struct {
	target Target
	path   string // canonical, or as given if it has none
	parent string // canonical, "" if none was named
	report Report
	done   bool
}

// inside reports whether the target lies in other, by its path or by what the
// caller says.
func (t *listed) inside(other *listed) bool {
	return t != other && (below(t.path, other.path) || t.parent == other.path)
}

// inOrder works on the deepest targets first and passes each what became of
// those inside it.
func inOrder(targets []Target, work func(*listed, family) Report) []Report {
	all := make([]*listed, len(targets))
	for i, target := range targets {
		all[i] = &listed{target: target, path: canonicalOr(target.Path)}
		if target.Parent != "" {
			all[i].parent = canonicalOr(target.Parent)
		}
	}
	for _, t := range deepestFirst(all) {
		var family family
		for _, other := range all {
			if !other.done {
				continue
			}
			if other.path == t.path {
				t.report, t.done = other.report, true
				t.report.Path = t.target.Path
				break
			}
			if other.inside(t) {
				family.add(other)
			}
		}
		if !t.done {
			t.report, t.done = work(t, family), true
		}
	}
	reports := make([]Report, len(all))
	for i, t := range all {
		reports[i] = t.report
	}
	return reports
}

func (f *family) add(t *listed) {
	switch t.report.Disposition {
	case teardown.DispositionRemoved, teardown.DispositionAlreadyGone:
		f.gone = append(f.gone, t.path)
	default:
		kept := t.report
		kept.Path = t.path
		f.kept = append(f.kept, kept)
	}
}

func canonicalOr(path string) string {
	if resolved, err := CanonicalPath(path); err == nil {
		return resolved
	}
	return path
}

// deepestFirst orders by depth, and puts a target before the one that its
// caller named as its parent even if their paths do not tell.
func deepestFirst(all []*listed) []*listed {
	ordered := slices.Clone(all)
	slices.SortStableFunc(ordered, func(a, b *listed) int {
		return cmp.Or(cmp.Compare(depth(b.path), depth(a.path)), strings.Compare(a.path, b.path))
	})
	var placed []*listed
	var put func(*listed, int)
	seen := map[*listed]bool{}
	put = func(t *listed, level int) {
		if seen[t] || level > len(all) {
			return
		}
		seen[t] = true
		for _, other := range ordered {
			if other.inside(t) {
				put(other, level+1)
			}
		}
		placed = append(placed, t)
	}
	for _, t := range ordered {
		put(t, 0)
	}
	return placed
}

func depth(path string) int { return strings.Count(filepath.Clean(path), "/") }
