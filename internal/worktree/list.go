package worktree

import (
	"context"
	"errors"
	"fmt"

	"unwind/teardown"
)

// List answers the worktrees that git knows of, the main one first. repository
// is any directory of the repository. Codes: repository_missing, timeout,
// git_failed.
func (e *Engine) List(ctx context.Context, repository string) ([]Entry, error) {
	repo, err := findRepository(repository)
	if err != nil {
		return nil, &teardown.Error{Code: teardown.CodeRepositoryMissing, Cause: err, Message: fmt.Sprintf(
			"%s is not in a git repository", printable(repository))}
	}
	out, err := e.gitFor(repo.common, Hooks{}).run(ctx, nil, "worktree", "list", "--porcelain", "-z")
	if err == nil {
		var entries []Entry
		if entries, err = parseWorktreeList(out); err == nil {
			return entries, nil
		}
	}
	code := teardown.CodeGitFailed
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		code = teardown.CodeTimeout
	}
	return nil, &teardown.Error{Code: code, Retryable: true, Cause: err, Message: "the worktrees could not be listed"}
}
