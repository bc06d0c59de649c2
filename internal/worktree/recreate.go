package worktree

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"unwind/teardown"
)

// Recreate makes a worktree of a branch again where it was, as `git worktree add`
// does but without hooks, and gives it the target's nonce as Create does. One of
// this branch that is there already, from an attempt that was cut off or made by
// hand, is taken as it is, with the nonce that it has or a new one. The caller
// holds the path lock. No branch is made or moved.
//
// Errors are *teardown.Error: path_occupied if something else is at the path,
// branch_missing, repository_missing, the refusals of a path, and the retryable
// ones.
func (e *Engine) Recreate(ctx context.Context, target Target, branch string, hooks Hooks) (Registered, error) {
	target.Nonce = cmp.Or(target.Nonce, NewNonce())
	if _, err := e.Adopt(ctx, target); err != nil {
		return Registered{}, err
	}
	there, err := e.Register(ctx, target)
	switch {
	case err == nil && there.Branch == branch:
		return there, nil
	case err == nil:
		return Registered{}, &teardown.Error{Code: teardown.CodePathOccupied, Message: fmt.Sprintf(
			"a worktree of another branch, %q, is at %s; move it away", there.Branch, printable(target.Path))}
	case teardown.CodeOf(err) != teardown.CodeWorktreeMissing:
		return Registered{}, err
	}
	repo, err := findRepository(target.Repository)
	if err != nil {
		return Registered{}, &teardown.Error{Code: teardown.CodeRepositoryMissing, Cause: err, Message: fmt.Sprintf(
			"%s is not in a git repository", printable(target.Repository))}
	}
	err = e.locked(ctx, repo, hooks, func(hooks Hooks) error {
		git := e.gitFor(repo.common, hooks)
		if _, err := git.run(ctx, nil, "rev-parse", "--verify", "-q", "refs/heads/"+branch); exitedWith(err, 1) {
			return &teardown.Error{Code: teardown.CodeBranchMissing, Message: fmt.Sprintf(
				"there is no branch %s in %s any more; make it, then try again", printable(branch), printable(repo.name()))}
		} else if err != nil {
			return err
		}
		// The name, not the ref: git would detach HEAD.
		_, err := git.run(ctx, nil, "worktree", "add", "-q", "--lock", "--reason", makingReason(target.Nonce), "--", target.Path, branch)
		return err
	})
	var git *GitError
	if errors.As(err, &git) {
		err = &teardown.Error{Code: teardown.CodeGitFailed, Retryable: true, Cause: err, Message: "the worktree could not be made"}
	}
	if err != nil {
		return Registered{}, err
	}
	return e.markMade(ctx, target)
}
