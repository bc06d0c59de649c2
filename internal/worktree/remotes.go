package worktree

import (
	"context"
	"strings"

	"unwind/teardown"
)

// Remotes answers the URLs of a repository's remotes, as they are configured
// there. They may hold passwords.
func (e *Engine) Remotes(ctx context.Context, repository string) ([]string, error) {
	repo, err := findRepository(repository)
	if err != nil {
		return nil, &teardown.Error{Code: teardown.CodeRepositoryMissing, Cause: err, Message: printable(repository) + " is not in a git repository"}
	}
	out, err := e.gitFor(repo.common, Hooks{}).run(ctx, nil, "config", "--null", "--get-regexp", `^remote\..*\.(push)?url$`)
	if exitedWith(err, 1) { // there is none
		return nil, nil
	}
	if err != nil {
		return nil, &teardown.Error{Code: teardown.CodeGitFailed, Retryable: true, Cause: err, Message: "the remotes could not be listed"}
	}
	var urls []string
	for entry := range strings.SplitSeq(out, "\x00") {
		if _, url, ok := strings.Cut(entry, "\n"); ok {
			urls = append(urls, url)
		}
	}
	return urls, nil
}
