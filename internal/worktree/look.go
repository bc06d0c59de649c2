package worktree

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"unwind/teardown"
)

// look is one complete look at a worktree whose identity is known: steps 3 to 8
// of the policy. It is done twice, the second time in quarantine.
type look struct {
	engine *Engine
	hooks  Hooks
	place  place
	// dir is where the directory is now.
	dir string
	// family are the worktrees inside it.
	family family
	// callers: see inUse.
	callers bool
	// before is what the first look came to, if this is the second.
	before *contents
}

// family is what is known of the worktrees inside one.
type family struct {
	// gone are canonical paths that count as removed already.
	gone []string
	// kept are the ones that stay, with their reports.
	kept []Report
}

// seen is what one look found.
type seen struct {
	findings     []Finding
	notes        []string
	head, branch string
	files, bytes int64
	entries      int64
	lost         unanchored
	// contents is nil if they are not known.
	contents *contents
}

func (s *seen) add(findings ...Finding) { s.findings = append(s.findings, findings...) }

// addError records why something is not known; only the end of ctx is passed
// on. What could not be inspected is not clean.
func (s *seen) addError(ctx context.Context, err error, what string) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return stopped(ctx.Err())
	}
	code := teardown.CodeCannotInspect
	if errors.Is(err, context.DeadlineExceeded) {
		code = teardown.CodeTimeout
	}
	s.add(finding(code, what+" could not be inspected", err.Error()))
	return nil
}

// run looks at everything, whatever is found on the way. The error is that of
// ctx.
func (l *look) run(ctx context.Context) (seen, error) {
	s := seen{branch: branchOf(l.place.admin)}
	s.add(l.containment()...)
	state, err := adminState(l.place.admin)
	s.add(state...)
	if err := s.addError(ctx, err, "the worktree's administration"); err != nil {
		return seen{}, err
	}
	found, walkErr := l.engine.walk(ctx, l.dir, idOf(l.place.info), l.skip(), l.hooks)
	using, notes, err := inUse(ground{dir: l.dir, tree: found, callers: l.callers})
	s.add(using...)
	s.notes = append(s.notes, notes...)
	if err := s.addError(ctx, err, "the process table"); err != nil {
		return seen{}, err
	}
	if walkErr != nil {
		return s, s.addError(ctx, walkErr, "the directory")
	}
	return s, l.tree(ctx, &s, found)
}

// tree judges the files that the walk found, and the commits.
func (l *look) tree(ctx context.Context, s *seen, found *tree) error {
	git := l.engine.gitFor(l.place.admin, l.hooks)
	git.workTree = l.dir
	s.files, s.bytes, s.entries = found.files, found.bytes, found.entries
	reached := l.lookAtCommits(ctx)
	// No git of ours outlives the look.
	defer reached()
	head, headErr := headCommit(ctx, git, l.place.admin, l.place.repo.common)
	s.head = head
	c := &contents{git: git, head: head, dir: l.dir, main: l.place.repo.main, policy: l.engine.ignored(), tree: found, skip: l.skip(), common: l.place.repo.common,
		reached: l.engine.reach, progress: l.hooks.report, before: l.before, patience: l.engine.patience()}
	var content []Finding
	contentErr := headErr
	if len(found.blocking) > 0 {
		contentErr = fmt.Errorf("git would wait for ever to read %s", printable(found.blocking[0]))
	}
	if contentErr == nil {
		contentErr = l.engine.mountsAnswer(ctx, l.dir, found.mounts)
	}
	if contentErr == nil {
		content, contentErr = c.look(ctx)
	}
	s.add(l.structure(found, c.index.gitlinks)...)
	s.add(content...)
	if contentErr == nil {
		s.contents = c
	}
	if err := s.addError(ctx, contentErr, "the content"); err != nil {
		return err
	}
	if headErr != nil {
		return nil
	}
	lost := reached()
	s.lost = lost.unanchored
	return s.addError(ctx, lost.err, "what its commits are reached by")
}

// lost is what looking at the commits came to.
type lost struct {
	unanchored
	err error
}

// lookAtCommits runs beside the look at the content: the two ask git different
// questions, and git is what a look takes its time for.
func (l *look) lookAtCommits(ctx context.Context) (wait func() lost) {
	git := l.engine.gitFor(l.place.admin, Hooks{Name: l.hooks.Name, Inherit: l.hooks.Inherit})
	git.workTree = l.dir
	ended := make(chan lost, 1)
	go func() {
		found, err := commits{git: git, admin: l.place.admin, repo: l.place.repo}.look(ctx)
		ended <- lost{found, err}
	}()
	return sync.OnceValue(func() lost { return <-ended })
}

// containment is step 3: what is inside and stays keeps this one.
func (l *look) containment() []Finding {
	var all []Finding
	for _, child := range l.family.kept {
		f := finding(teardown.CodeChildPreserved, "a worktree inside it stays", child.Path)
		f.Retryable = child.Retryable
		all = append(all, f)
	}
	var inside []string
	for _, entry := range l.place.registered {
		if entry.path == "" || !below(entry.path, l.place.path) || slices.Contains(l.family.gone, entry.path) || l.isKept(entry.path) {
			continue
		}
		inside = append(inside, entry.path)
	}
	if len(inside) > 0 {
		all = append(all, finding(teardown.CodeChildPreserved, "other worktrees are registered inside it; remove them first", inside...))
	}
	return all
}

func (l *look) isKept(path string) bool {
	return slices.ContainsFunc(l.family.kept, func(r Report) bool { return r.Path == path })
}

// skip are the worktrees that count as removed, relative to this one.
func (l *look) skip() map[string]bool {
	skip := map[string]bool{}
	for _, path := range l.family.gone {
		if below(path, l.place.path) {
			skip[strings.TrimPrefix(path, l.place.path+"/")] = true
		}
	}
	return skip
}

// structure turns what the walk found into findings.
func (l *look) structure(t *tree, gitlinks map[string]bool) []Finding {
	var nested, submodules []string
	for _, path := range t.nested {
		absolute := filepath.Join(l.place.path, path)
		switch {
		case l.isRegistered(absolute) || l.isKept(absolute):
		case gitlinks[path]:
			submodules = append(submodules, path)
		default:
			nested = append(nested, path)
		}
	}
	var all []Finding
	add := func(code teardown.Code, note string, paths []string) {
		if len(paths) > 0 {
			all = append(all, finding(code, note, paths...))
		}
	}
	add(teardown.CodeMountPoint, "something is mounted here; unmount it", t.mounts)
	add(teardown.CodeNestedRepository, "it contains other repositories, whose commits would go with it; move them out", nested)
	add(teardown.CodeSubmodule, "it contains submodules, whose commits would go with it; push them, then `git submodule deinit --all`", submodules)
	add(teardown.CodePermissionDenied, "this cannot be deleted with our permissions", t.unremovable)
	add(teardown.CodeCannotInspect, "this could not be read", t.unreadable)
	return all
}

func (l *look) isRegistered(path string) bool {
	return len(at(l.place.registered, path)) > 0
}
