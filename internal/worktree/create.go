package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"unwind/teardown"
)

// NewTree is a worktree that is to be made.
type NewTree struct {
	// Repository and Path are as in Target.
	Repository, Path string
	// Branch is the short name of the branch to check out; "" for none. One that
	// is not there is made.
	Branch string
	// Base is where a new branch begins, or what is checked out without one; ""
	// means the repository's HEAD. With a base, a branch that is there already
	// must be exactly at it.
	Base string
	// Commit is what Plan found Base, or the branch, to be.
	Commit string
	// Nonce tells the worktree from all others; see NewNonce.
	Nonce string
}

// Plan looks whether a worktree can be made and answers it with canonical
// names and its commit; nothing is changed. among are the paths of others that
// will be there by then. Codes: path_occupied, conflict (the branch is at
// another commit, or checked out elsewhere), invalid_manifest (no such base, no
// such name for a branch), worktree_missing (there is no directory to make it
// in), repository_missing, and those of Register.
func (e *Engine) Plan(ctx context.Context, n NewTree, among []string) (NewTree, error) {
	if !utf8.ValidString(n.Path) {
		return n, &teardown.Error{Code: teardown.CodePathNotUTF8, Message: fmt.Sprintf(
			"the path %s is not UTF-8; a worktree with such a path cannot be registered", printable(n.Path))}
	}
	path, stop := e.checkTarget(n.Path)
	if stop != nil {
		return n, stop.err()
	}
	n.Path = path
	if err := Free(path); err != nil {
		return n, err
	}
	inside := slices.ContainsFunc(among, func(other string) bool { return below(path, other) })
	if !inside && !isDirectory(filepath.Dir(path)) {
		return n, &teardown.Error{Code: teardown.CodeWorktreeMissing, Message: fmt.Sprintf(
			"there is no directory %s to make the worktree in; make it first", printable(filepath.Dir(path)))}
	}
	repo, err := e.repositoryOf(n.Repository)
	if err != nil {
		return n, err
	}
	n.Repository = repo.common
	return n, e.planBranch(ctx, repo, &n)
}

// PlanCommit answers the commit of a worktree whose making has begun.
func (e *Engine) PlanCommit(ctx context.Context, n NewTree) (string, error) {
	repo, err := e.repositoryOf(n.Repository)
	if err != nil {
		return "", err
	}
	commit, _, err := e.commitOf(ctx, repo, n)
	return commit, err
}

func (e *Engine) repositoryOf(dir string) (repository, error) {
	repo, err := findRepository(dir)
	if err != nil {
		return repo, &teardown.Error{Code: teardown.CodeRepositoryMissing, Cause: err, Message: fmt.Sprintf(
			"%s is not in a git repository", printable(dir))}
	}
	info, err := os.Lstat(repo.common)
	if err != nil {
		return repo, &teardown.Error{Code: teardown.CodeRepositoryMissing, Cause: err, Message: printable(repo.common) + " cannot be looked at"}
	}
	if owner, ours := ownedByUs(info); !ours {
		return repo, &teardown.Error{Code: teardown.CodeCannotInspect, Message: fmt.Sprintf(
			"the repository %s belongs to user %s; run unwind as that user", printable(repo.common), owner)}
	}
	return repo, nil
}

func (e *Engine) planBranch(ctx context.Context, repo repository, n *NewTree) error {
	if n.Branch != "" {
		_, err := e.gitFor(repo.common, Hooks{}).run(ctx, nil, "check-ref-format", "refs/heads/"+n.Branch)
		if exitedWith(err, 1) || strings.HasPrefix(n.Branch, "-") {
			return unfit("%q cannot be the name of a branch", n.Branch)
		}
		if err != nil {
			return gitFailed(err, "the name of the branch could not be checked")
		}
		entries, err := e.List(ctx, repo.common)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if entry.Branch == n.Branch {
				return &teardown.Error{Code: teardown.CodeConflict, Message: fmt.Sprintf(
					"the branch %s is checked out at %s; choose another one", n.Branch, printable(entry.Path))}
			}
		}
	}
	commit, there, err := e.commitOf(ctx, repo, *n)
	if err != nil {
		return err
	}
	n.Commit = commit
	if !there || n.Base == "" {
		return nil
	}
	tip, _, err := e.commitAt(ctx, repo, "refs/heads/"+n.Branch)
	if err == nil && tip != commit {
		return branchElsewhere(*n)
	}
	return err
}

func branchElsewhere(n NewTree) error {
	return &teardown.Error{Code: teardown.CodeConflict, Message: fmt.Sprintf(
		"the branch %s is there already, at another commit than the base; choose another branch, or leave the base out to go on with it", n.Branch)}
}

// commitOf answers what is to be checked out, and whether the branch is there.
func (e *Engine) commitOf(ctx context.Context, repo repository, n NewTree) (commit string, there bool, err error) {
	if n.Branch != "" {
		tip, there, err := e.commitAt(ctx, repo, "refs/heads/"+n.Branch)
		if err != nil || there && n.Base == "" {
			return tip, there, err
		}
		commit, err = e.baseOf(ctx, repo, n.Base)
		return commit, there, err
	}
	commit, err = e.baseOf(ctx, repo, n.Base)
	return commit, false, err
}

func (e *Engine) baseOf(ctx context.Context, repo repository, base string) (string, error) {
	if base == "" {
		base = "HEAD"
	}
	commit, there, err := e.commitAt(ctx, repo, base)
	if err == nil && !there {
		err = unfit("there is no commit %q in %s; correct the base", base, printable(repo.name()))
	}
	return commit, err
}

func (e *Engine) commitAt(ctx context.Context, repo repository, name string) (commit string, there bool, err error) {
	out, err := e.gitFor(repo.common, Hooks{}).run(ctx, nil, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	var failed *GitError
	if errors.As(err, &failed) && failed.ExitCode > 0 {
		return "", false, nil
	}
	if err != nil {
		return "", false, gitFailed(err, "the repository could not be asked for "+printable(name))
	}
	return strings.TrimSpace(out), true, nil
}

// Create makes a planned worktree and gives it its nonce; one that an earlier
// call has made, or is about to have made, is finished and answered. The caller
// holds the path lock. Codes are those of Plan, and git_failed, retryable
// unless what an earlier call made is not whole.
//
// Until it has its nonce the worktree is locked in git's own terms, with the
// nonce in the reason: git writes that before anything else, so that a crash at
// any point leaves something that is known to be ours.
func (e *Engine) Create(ctx context.Context, n NewTree, hooks Hooks) (Registered, error) {
	target := Target{Repository: n.Repository, Path: n.Path, Nonce: n.Nonce}
	if resumed, err := e.Adopt(ctx, target); err != nil {
		return Registered{}, err
	} else if resumed {
		if err := e.whole(ctx, target, hooks); err != nil {
			return Registered{}, err
		}
		return e.Register(ctx, target)
	}
	if err := Free(n.Path); err != nil {
		return Registered{}, err
	}
	repo, err := e.repositoryOf(n.Repository)
	if err != nil {
		return Registered{}, err
	}
	err = e.locked(ctx, repo, hooks, func(hooks Hooks) error { return e.add(ctx, repo, n, hooks) })
	if err != nil {
		return Registered{}, err
	}
	return e.markMade(ctx, target)
}

// markMade gives what git has just made for the target its nonce.
func (e *Engine) markMade(ctx context.Context, target Target) (Registered, error) {
	e.reach("made")
	made, err := e.Adopt(ctx, target)
	if err == nil && !made {
		err = &teardown.Error{Code: teardown.CodeIdentityMismatch, Message: fmt.Sprintf(
			"git made a worktree at %s, but another one is there now", printable(target.Path))}
	}
	if err != nil {
		return Registered{}, err
	}
	return e.Register(ctx, target)
}

func (e *Engine) add(ctx context.Context, repo repository, n NewTree, hooks Hooks) error {
	args := []string{"worktree", "add", "--quiet", "--lock", "--reason", makingReason(n.Nonce)}
	var tip string
	var there bool
	var err error
	if n.Branch != "" {
		if tip, there, err = e.commitAt(ctx, repo, "refs/heads/"+n.Branch); err != nil {
			return err
		}
	}
	switch {
	case n.Branch == "":
		args = append(args, "--detach", n.Path, n.Commit)
	case there && n.Base != "" && tip != n.Commit:
		return branchElsewhere(n)
	case there:
		args = append(args, n.Path, n.Branch)
	default:
		args = append(args, "--no-track", "-b", n.Branch, n.Path, n.Commit)
	}
	_, err = e.gitFor(repo.common, hooks).run(ctx, nil, args...)
	var failed *GitError
	if !errors.As(err, &failed) {
		return err
	}
	switch {
	case strings.Contains(failed.Stderr, "already checked out"), strings.Contains(failed.Stderr, "already used by worktree"):
		return &teardown.Error{Code: teardown.CodeConflict, Cause: err, Message: fmt.Sprintf("the branch %s is checked out elsewhere; choose another one", n.Branch)}
	case strings.Contains(failed.Stderr, "already exists"):
		return occupied(n.Path)
	}
	return gitFailed(err, "the worktree "+printable(n.Path)+" could not be made")
}

// whole refuses a worktree that a crash has left half checked out.
func (e *Engine) whole(ctx context.Context, target Target, hooks Hooks) error {
	place, stop := identify(target, target.Path, target.Path)
	if stop != nil {
		return stop.err()
	}
	git := e.gitFor(place.admin, hooks)
	git.workTree = target.Path
	_, err := git.run(ctx, nil, "diff-index", "--quiet", "HEAD")
	if exitedWith(err, 1) {
		return &teardown.Error{Code: teardown.CodeGitFailed, Message: fmt.Sprintf(
			"the worktree %s was made only in part before the machine or git was stopped; start the session under another id", printable(target.Path))}
	}
	if err != nil {
		return gitFailed(err, "the worktree "+printable(target.Path)+" could not be looked at")
	}
	return nil
}

// Adopt gives the worktree that git made for target.Nonce that nonce, unless it
// has it, and unlocks it. It answers false if the worktree at the path was not
// made for it, or if there is none; then nothing is touched. The caller holds
// the path lock.
func (e *Engine) Adopt(ctx context.Context, target Target) (bool, error) {
	if err := e.answers(ctx, target); err != nil {
		return false, err
	}
	place, ours, forUs := e.made(target)
	if !ours {
		return false, nil
	}
	if _, err := giveNonce(place, target.Nonce); err != nil {
		return false, unmarked(place, err)
	}
	e.reach("marked")
	if !forUs {
		return true, nil
	}
	if err := os.Remove(filepath.Join(place.admin, "locked")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, unmarked(place, err)
	}
	return true, nil
}

// Unmarked reports whether the worktree at the path was made for target.Nonce
// and has not got it yet: what Adopt is to finish. It changes nothing.
func (e *Engine) Unmarked(target Target) bool {
	place, ours, _ := e.made(target)
	return ours && place.nonce == ""
}

// made answers the worktree at the path, whether it has target.Nonce or was made
// for it, and whether it is still locked as that.
func (e *Engine) made(target Target) (p place, ours, forUs bool) {
	path, stop := e.checkTarget(target.Path)
	if stop != nil || target.Nonce == "" {
		return p, false, false
	}
	p, stop = identify(Target{Repository: target.Repository, Path: target.Path}, path, path)
	if stop != nil || p.admin == "" {
		return p, false, false
	}
	reason, err := readSmall(filepath.Join(p.admin, "locked"))
	forUs = err == nil && reason == makingReason(target.Nonce)
	return p, p.nonce == target.Nonce || p.nonce == "" && forUs, forUs
}

func unmarked(p place, err error) error {
	return &teardown.Error{Code: errnoCode(err), Retryable: true, Cause: err,
		Message: fmt.Sprintf("the worktree could not be marked in %s", printable(p.admin))}
}

func makingReason(nonce string) string { return "unwind is making this worktree " + nonce }

// Free is path_occupied unless nothing is at the path.
func Free(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return occupied(path)
	}
	return nil
}

func occupied(path string) error {
	return &teardown.Error{Code: teardown.CodePathOccupied, Message: fmt.Sprintf(
		"something is at %s already; choose another path", printable(path))}
}

func unfit(format string, args ...any) error {
	return &teardown.Error{Code: teardown.CodeInvalidManifest, Message: fmt.Sprintf(format, args...)}
}

func gitFailed(err error, message string) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &teardown.Error{Code: teardown.CodeTimeout, Retryable: true, Cause: err, Message: message}
	}
	return &teardown.Error{Code: teardown.CodeGitFailed, Retryable: true, Cause: err, Message: message}
}
