package worktree

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"unwind/teardown"
)

// SaveOptions say where to save.
type SaveOptions struct {
	// Ref is the name to save under, as SavedRef answers it; "" for one below
	// refs/unwind/saved/by-hand/. If it holds another state already, the state
	// goes to Ref with "-2", "-3" and so on.
	Ref string
	// Partial saves what a commit can hold although ignored files or repositories
	// inside are there, too, which it cannot: for a caller that removes nothing.
	Partial bool
	Hooks   Hooks
}

// Saved is where uncommitted work is saved.
type Saved struct {
	Ref    string // "" if there was nothing to save
	Commit string
	// Reused: exactly this state was there already.
	Reused bool
}

// Save commits all that is uncommitted to a ref: staged and unstaged states
// apart, untracked files, links, modes, deletions and files that git was told
// not to look at. It touches neither the worktree nor its index nor a branch,
// and runs nothing that the repository names. What was saved has been compared
// with the disk and the index when it returns. The caller holds the path lock.
//
// Errors are *teardown.Error: the code of what a commit cannot hold (such as
// ignored_precious, nested_repository, operation_in_progress), those of the
// identity check, worktree_missing, in_use if files changed meanwhile, and the
// retryable ones. Nothing is saved then.
func (e *Engine) Save(ctx context.Context, target Target, options SaveOptions) (Saved, error) {
	if err := e.answers(ctx, target); err != nil {
		return Saved{}, err
	}
	path, stop := e.checkTarget(target.Path)
	if stop != nil {
		return Saved{}, stop.err()
	}
	place, stop := identify(target, path, path)
	if stop != nil {
		return Saved{}, stop.err()
	}
	if place.missing() {
		return Saved{}, &teardown.Error{Code: teardown.CodeWorktreeMissing, Message: fmt.Sprintf("there is no worktree at %s", printable(path))}
	}
	hooks := options.Hooks
	if hooks.SaveRef = options.Ref; hooks.SaveRef == "" {
		hooks.SaveRef = savedByHand(path)
	}
	look := look{engine: e, hooks: hooks, place: place, dir: path}
	seen, err := look.run(ctx)
	if err != nil {
		return Saved{}, err
	}
	dirty := false
	for _, f := range seen.findings {
		switch f.Code {
		case teardown.CodeInUse, teardown.CodeLocked, teardown.CodeChildPreserved:
			// They keep it from being removed, not from being saved.
			continue
		case teardown.CodeIgnoredPrecious, teardown.CodeNestedRepository:
			if options.Partial {
				continue
			}
		}
		if !savable(f.Code) {
			return Saved{}, &teardown.Error{Code: f.Code, Message: f.Note, Details: f.Paths, Retryable: f.Retryable}
		}
		dirty = true
	}
	if !dirty {
		return Saved{}, nil
	}
	saved, err := e.save(ctx, place, seen.contents, hooks)
	return saved, saveError(ctx, err)
}

func saveError(ctx context.Context, err error) error {
	var coded *teardown.Error
	var git *GitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return stopped(ctx.Err())
	case errors.As(err, &coded):
		return coded
	case errors.Is(err, errUnsavable):
		return &teardown.Error{Code: teardown.CodeModified, Message: err.Error()}
	case errors.Is(err, errChanged):
		return &teardown.Error{Code: teardown.CodeInUse, Retryable: true, Cause: err, Message: "files changed while they were saved; try again"}
	case errors.As(err, &git):
		return &teardown.Error{Code: teardown.CodeGitFailed, Retryable: true, Cause: err, Message: "the uncommitted work could not be saved"}
	}
	return &teardown.Error{Code: errnoCode(err), Retryable: true, Cause: err, Message: "the uncommitted work could not be saved"}
}

// save saves what a look found, and compares.
func (e *Engine) save(ctx context.Context, p place, c *contents, hooks Hooks) (Saved, error) {
	taken, err := e.capture(ctx, p, c, hooks)
	if err != nil {
		return Saved{}, err
	}
	git := e.saver(p.admin, hooks)
	saved, err := findSaved(ctx, git, hooks.SaveRef, taken)
	if err != nil || saved.Ref != "" {
		return saved, err
	}
	absent, err := missing(ctx, git, taken.files)
	if err != nil {
		return Saved{}, err
	}
	return saved, e.packerFor(ctx, git, c.dir, hooks, func(p2 *packer) error {
		if err := p2.store(ctx, absent); err != nil {
			return err
		}
		e.reach("stored")
		commit, err := e.commitCapture(ctx, git, taken)
		if err != nil {
			return err
		}
		if saved, err = e.refer(ctx, p, commit, hooks); err != nil {
			return err
		}
		e.reach("referred")
		// Only what is reached by the ref stays, so it is looked at after the ref
		// is there.
		lost, err := missing(ctx, git, taken.files)
		if err == nil && len(lost) > 0 {
			err = fmt.Errorf("the content of %s is not in the repository", printable(lost[0].path))
		}
		if err == nil {
			err = p2.compare(ctx, absent)
		}
		if err == nil {
			err = e.confirm(ctx, p, c, git, commit, hooks)
		}
		return err
	})
}

// streamed keeps git from holding a large content in memory.
const streamed = "core.bigFileThreshold=4m"

// saver is git as it writes what must outlive a loss of power.
func (e *Engine) saver(gitDir string, hooks Hooks) *repositoryGit {
	git := e.gitFor(gitDir, hooks)
	git.settings = []string{"core.fsync=all", streamed}
	git.env = []string{"GIT_AUTHOR_NAME=unwind", "GIT_AUTHOR_EMAIL=unwind@localhost", "GIT_COMMITTER_NAME=unwind", "GIT_COMMITTER_EMAIL=unwind@localhost"}
	return git
}

// confirm compares the saved commit with what is on disk and in the index now.
func (e *Engine) confirm(ctx context.Context, p place, c *contents, git *repositoryGit, commit string, hooks Hooks) error {
	state, err := readSaved(ctx, git, commit)
	if err != nil {
		return err
	}
	again, err := e.capture(ctx, p, c, hooks)
	if err == nil && !state.same(again) {
		err = errChanged
	}
	return err
}

// findSaved answers the ref at which exactly this state is saved already.
func findSaved(ctx context.Context, git *repositoryGit, base string, taken *capture) (Saved, error) {
	tips, err := savedUnder(ctx, git, base)
	if err != nil {
		return Saved{}, err
	}
	for _, tip := range tips {
		state, err := readSaved(ctx, git, tip.oid)
		if err == nil && state.same(taken) {
			return Saved{Ref: tip.name, Commit: tip.oid, Reused: true}, nil
		}
		if ctx.Err() != nil {
			return Saved{}, err
		}
	}
	return Saved{}, nil
}

// commitCapture makes the commits of a saved state.
func (e *Engine) commitCapture(ctx context.Context, git *repositoryGit, taken *capture) (string, error) {
	blob, err := git.object(ctx, string(taken.about), "hash-object", "-w", "--stdin")
	if err != nil {
		return "", err
	}
	tree, err := git.object(ctx, plainMode+" blob "+blob+"\t"+aboutFile+"\n", "mktree")
	if err != nil {
		return "", err
	}
	what := taken.branch
	if what == "" {
		what = printable(taken.path)
	}
	commit := func(title, tree string, parents ...string) (string, error) {
		args := []string{"commit-tree", tree}
		for _, parent := range parents {
			if parent != "" {
				args = append(args, "-p", parent)
			}
		}
		return git.object(ctx, title+" of "+what+"\n\nSaved by unwind from "+printable(taken.path)+".\n", args...)
	}
	about, err := commit("About the uncommitted work", tree)
	if err != nil {
		return "", err
	}
	index, err := commit("Index", taken.index, taken.head, about)
	if err != nil {
		return "", err
	}
	return commit("Uncommitted work", taken.work, taken.head, index)
}

// object runs a command that answers one object id.
func (g *repositoryGit) object(ctx context.Context, stdin string, args ...string) (string, error) {
	out, err := g.run(ctx, strings.NewReader(stdin), args...)
	oid := strings.TrimSpace(out)
	if err == nil && !isOID(oid) {
		err = fmt.Errorf("git %s answered %q", args[0], out)
	}
	return oid, err
}

// refer makes a ref for the commit, under a name that is free.
func (e *Engine) refer(ctx context.Context, p place, commit string, hooks Hooks) (Saved, error) {
	saved := Saved{Commit: commit}
	err := e.locked(ctx, p.repo, hooks, func(hooks Hooks) error {
		git := e.saver(p.repo.common, hooks)
		tips, err := savedUnder(ctx, git, hooks.SaveRef)
		if err != nil {
			return err
		}
		number := 1
		if len(tips) > 0 {
			number = savedNumber(tips[0].name, hooks.SaveRef) + 1
		}
		saved.Ref = savedName(hooks.SaveRef, number)
		// It fails if the ref is there, whoever made it.
		_, err = git.run(ctx, strings.NewReader(fmt.Sprintf("create %s %s\n", saved.Ref, commit)), "update-ref", "--stdin")
		return err
	})
	return saved, err
}

// wouldSave: everything that was found is what a commit can hold.
func (s seen) wouldSave() bool {
	for _, f := range s.findings {
		if !savable(f.Code) {
			return false
		}
	}
	return s.contents != nil && s.contents.unsavable() == nil
}

// unsavableFirst orders findings so that the verdict names what keeps the
// worktree although its changes could be saved.
func unsavableFirst(findings []Finding) []Finding {
	var first, rest []Finding
	for _, f := range findings {
		if savable(f.Code) {
			rest = append(rest, f)
		} else {
			first = append(first, f)
		}
	}
	return append(first, rest...)
}
