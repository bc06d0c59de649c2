package worktree

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"unwind/teardown"
)

// The two kinds of kept refs.
const (
	KindRescued = "rescued"
	KindSaved   = "saved"
)

// KeptRef is a ref of ours in a repository: commits that only a removed worktree
// reached, or uncommitted work that was saved. They never expire.
type KeptRef struct {
	Repository string // the main checkout, or the common directory if there is none
	Kind       string
	Ref        string
	Commit     string    // the object, which is a commit as a rule
	At         time.Time // when the commit was made; zero if it is none
	Subject    string
	// Worktree is the id of the worktree that it comes from; "" for what was
	// saved by hand.
	Worktree string
	// Path and Branch are those of the saved worktree.
	Path, Branch string
}

// Rescued lists the commits that were kept when their worktree was removed, by
// ref. repository is any directory of it. Codes: repository_missing, timeout,
// git_failed.
func (e *Engine) Rescued(ctx context.Context, repository string) ([]KeptRef, error) {
	kept, _, err := e.kept(ctx, repository, rescueRefs)
	for i := range kept {
		kept[i].Kind = KindRescued
		kept[i].Worktree, _, _ = strings.Cut(strings.TrimPrefix(kept[i].Ref, rescueRefs+"/"), "/")
	}
	return kept, err
}

// SavedWork lists the uncommitted work that was saved, by ref. Codes: as of
// Rescued.
func (e *Engine) SavedWork(ctx context.Context, repository string) ([]KeptRef, error) {
	kept, git, err := e.kept(ctx, repository, savedRefs)
	for i := range kept {
		kept[i].Kind = KindSaved
		parts := strings.Split(strings.TrimPrefix(kept[i].Ref, savedRefs+"/"), "/")
		if len(parts) == 3 {
			kept[i].Worktree = parts[2]
		}
		state, err := readSaved(ctx, git, kept[i].Commit)
		if err == nil {
			kept[i].Path, kept[i].Branch = state.about.path, state.about.branch
		}
	}
	return kept, err
}

func (e *Engine) kept(ctx context.Context, directory string, namespaces ...string) ([]KeptRef, *repositoryGit, error) {
	repo, err := findRepository(directory)
	if err != nil {
		return nil, nil, &teardown.Error{Code: teardown.CodeRepositoryMissing, Cause: err, Message: fmt.Sprintf(
			"%s is not in a git repository", printable(directory))}
	}
	git := e.gitFor(repo.common, Hooks{})
	args := append([]string{"for-each-ref", "--format=%(objectname) %(refname) %(creatordate:unix) %(subject)"}, namespaces...)
	out, err := git.run(ctx, nil, args...)
	if err != nil {
		return nil, git, keptError(ctx, err, "the refs could not be listed")
	}
	kept, err := parseKept(out)
	for i := range kept {
		kept[i].Repository = repo.name()
	}
	return kept, git, err
}

// parseKept reads for-each-ref with the format objectname, refname, creatordate
// in seconds and subject. The last two are empty for what is not a commit.
func parseKept(out string) ([]KeptRef, error) {
	var kept []KeptRef
	for line := range strings.Lines(out) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(fields) != 4 || !isOID(fields[0]) || fields[1] == "" {
			return nil, fmt.Errorf("git for-each-ref answered %q", line)
		}
		ref := KeptRef{Commit: fields[0], Ref: fields[1], Subject: fields[3]}
		if seconds, err := strconv.ParseInt(fields[2], 10, 64); err == nil {
			ref.At = time.Unix(seconds, 0).UTC()
		}
		kept = append(kept, ref)
	}
	return kept, nil
}

// DropKept deletes kept refs, each only if it still names the commit that was
// listed. What nothing else reaches is collected by git one day. Codes: conflict
// if a ref has changed or is not one of ours (then none is deleted), busy,
// timeout, git_failed.
func (e *Engine) DropKept(ctx context.Context, repository string, refs []KeptRef) error {
	repo, err := findRepository(repository)
	if err != nil {
		return &teardown.Error{Code: teardown.CodeRepositoryMissing, Cause: err, Message: fmt.Sprintf(
			"%s is not in a git repository", printable(repository))}
	}
	var commands strings.Builder
	for _, ref := range refs {
		ours := strings.HasPrefix(ref.Ref, rescueRefs+"/") || strings.HasPrefix(ref.Ref, savedRefs+"/")
		if !ours || strings.ContainsAny(ref.Ref, " \n\x00") || !isOID(ref.Commit) {
			return &teardown.Error{Code: teardown.CodeConflict, Message: fmt.Sprintf("%s is no ref that unwind keeps", printable(ref.Ref))}
		}
		fmt.Fprintf(&commands, "delete %s %s\n", ref.Ref, ref.Commit)
	}
	return e.locked(ctx, repo, Hooks{}, func(hooks Hooks) error {
		now, _, err := e.kept(ctx, repo.common, rescueRefs, savedRefs)
		if err != nil {
			return err
		}
		for _, ref := range refs {
			if !slices.ContainsFunc(now, func(other KeptRef) bool { return other.Ref == ref.Ref && other.Commit == ref.Commit }) {
				return &teardown.Error{Code: teardown.CodeConflict, Message: fmt.Sprintf(
					"%s is not as it was listed; list the refs again", printable(ref.Ref))}
			}
		}
		_, err = e.gitFor(repo.common, hooks).run(ctx, strings.NewReader(commands.String()), "update-ref", "--stdin")
		return keptError(ctx, err, "the refs could not be deleted")
	})
}

func keptError(ctx context.Context, err error, what string) error {
	if err == nil {
		return nil
	}
	code := teardown.CodeGitFailed
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		code = teardown.CodeTimeout
	}
	return &teardown.Error{Code: code, Retryable: true, Cause: err, Message: what}
}
