package worktree

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
	// last: no look follows that would find what this one missed.
	last bool
	// first: another look follows, which need not read again what rests.
	first bool
	// steady is what the first look found, if this is the second and nothing has
	// to be read again that is the same.
	steady *steady
	// listed is what git told the first look of the commit, if this is the second.
	listed *listing
}

// listing is what git tells of one commit, which never changes.
type listing struct {
	commit string
	// files waits for the list of the commit's files.
	files func(alive func()) (string, error)
	// absent waits for its objects that the repository does not have.
	absent func(alive func()) (map[string]bool, error)
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
	listed   *listing
	// index is the index file's stamp from before git read it.
	index stamp
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
	part, err := answered(ctx, l.engine.patience(), nil, func() (string, error) { return l.place.repo.partBelow(l.place.path) })
	if part != "" {
		s.add(finding(teardown.CodeNestedRepository, "a part of its own repository lies in it; move that out", part))
	}
	if err := s.addError(ctx, err, "what its repository links to or borrows from"); err != nil {
		return seen{}, err
	}
	q := l.ask(ctx)
	defer q.wait()
	s.head, s.listed, s.index = q.head, q.listing, q.stamp
	if len(s.findings) == 0 && l.isSteady(ctx, q, &s) {
		return s, l.tellCommits(ctx, &s, q)
	}
	found, walkErr := l.walk(ctx)
	// It comes before the look at the content, for which git goes into the directory.
	by, err := inUse(ground{dir: l.dir, tree: found, callers: l.callers})
	s.add(by.findings...)
	s.notes = append(s.notes, by.notes...)
	if err := s.addError(ctx, err, "the process table"); err != nil {
		return seen{}, err
	}
	if walkErr != nil {
		return s, s.addError(ctx, walkErr, "the directory")
	}
	if err := l.tree(ctx, &s, q, found); err != nil {
		return seen{}, err
	}
	if q.headErr != nil {
		return s, nil
	}
	return s, l.tellCommits(ctx, &s, q)
}

// questions are those that git answers while the directory is walked.
type questions struct {
	head    string
	headErr error
	index   func(alive func()) (string, error)
	// stamp is the index file's from before it is listed; zero if it tells nothing.
	stamp   stamp
	listing *listing
	lost    func(alive func()) (unanchored, error)
}

func (l *look) ask(ctx context.Context) *questions {
	git := l.engine.gitFor(l.place.admin, Hooks{Name: l.hooks.Name, Inherit: l.hooks.Inherit})
	git.workTree = l.dir
	q := &questions{lost: beside(func() (unanchored, error) {
		return commits{git: git, admin: l.place.admin, repo: l.place.repo, branch: branchOf(l.place.admin)}.look(ctx)
	})}
	q.stamp = indexStamp(l.place.admin)
	if l.steady != nil && l.steady.indexStamp != (stamp{}) && l.steady.indexStamp == q.stamp {
		q.index = known(l.steady.index)
	} else {
		q.index = beside(func() (string, error) { return listIndex(ctx, git) })
	}
	q.head, q.headErr = headCommit(ctx, git, l.place.admin, l.place.repo.common)
	switch {
	case q.head == "":
		q.listing = &listing{files: func(func()) (string, error) { return "", errNoCommit }, absent: known(map[string]bool(nil))}
	case l.listed != nil && l.listed.commit == q.head:
		q.listing = l.listed
	default:
		q.listing = &listing{
			commit: q.head,
			files:  beside(func() (string, error) { return listCommit(ctx, git, q.head) }),
			absent: beside(func() (map[string]bool, error) { return listAbsent(ctx, git, q.head) }),
		}
	}
	return q
}

var errNoCommit = errors.New("there is no commit to compare with")

// wait lets no git of ours outlive the look.
func (q *questions) wait() {
	_, _ = q.index(func() {})
	_, _ = q.listing.files(func() {})
	_, _ = q.listing.absent(func() {})
	_, _ = q.lost(func() {})
}

// alive says that something that has no progress of its own goes on.
func (l *look) alive() { l.hooks.report(teardown.Progress{Step: "git"}) }

// beside lets work go on beside its caller's. While its result is waited for,
// alive is called about every second.
func beside[T any](work func() (T, error)) (wait func(alive func()) (T, error)) {
	var result T
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		result, err = work()
	}()
	return func(alive func()) (T, error) {
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return result, err
			case <-ticker.C:
				alive()
			}
		}
	}
}

// known is beside for what needs no work.
func known[T any](result T) func(alive func()) (T, error) {
	return func(func()) (T, error) { return result, nil }
}

// tree judges the files that the walk found. The error is that of ctx.
func (l *look) tree(ctx context.Context, s *seen, q *questions, found *tree) error {
	git := l.engine.gitFor(l.place.admin, l.hooks)
	git.workTree = l.dir
	s.files, s.bytes, s.entries = found.files, found.bytes, found.entries
	c := &contents{git: git, head: q.head, dir: l.dir, main: l.place.repo.main, policy: l.engine.ignored(), tree: found, skip: l.skip(), common: l.place.repo.common,
		reached: l.engine.reach, progress: l.hooks.report, committed: q.listing.files, absent: q.listing.absent, patience: l.engine.patience(), rest: l.first}
	if l.last {
		c.again = func() (*tree, error) { return l.walk(ctx) }
	}
	var content []Finding
	err := q.headErr
	if len(found.blocking) > 0 {
		err = fmt.Errorf("git would wait for ever to read %s", printable(found.blocking[0]))
	}
	if err == nil {
		err = l.engine.mountsAnswer(ctx, l.dir, found.mounts)
	}
	if err == nil {
		var raw string
		if raw, err = q.index(l.alive); err == nil {
			c.index, err = parseIndex(raw)
		}
	}
	found.judgeGitLike(c.index)
	if err == nil {
		content, err = c.look(ctx)
	}
	s.add(l.structure(found, c.index.gitlinks)...)
	s.add(content...)
	if err == nil {
		s.contents = c
	}
	return s.addError(ctx, err, "the content")
}

// tellCommits adds what only this worktree reaches.
func (l *look) tellCommits(ctx context.Context, s *seen, q *questions) error {
	lost, err := q.lost(l.alive)
	s.lost = lost
	return s.addError(ctx, err, "what its commits are reached by")
}

func (l *look) walk(ctx context.Context) (*tree, error) {
	return l.engine.walk(ctx, l.dir, idOf(l.place.info), l.skip(), l.hooks)
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
