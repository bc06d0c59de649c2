package main

import (
	"context"
	"time"

	"unwind/internal/worktree"
	"unwind/teardown"
)

// repositories answers the one that was named by hand, or all in which this
// host's sessions have had worktrees.
func (p *program) repositories(ctx context.Context, named string) ([]string, error) {
	if named != "" {
		return []string{p.absolute(named)}, nil
	}
	f, err := p.openFacts(ctx)
	if err != nil {
		return nil, err
	}
	defer f.close()
	return f.Repositories(ctx, f.config.Host)
}

// keptRefs lists what one of the engine's listings answers for each repository.
// One that is not there any more keeps no other from being listed, unless it was
// named.
func (p *program) keptRefs(ctx context.Context, named string, list func(context.Context, string) ([]worktree.KeptRef, error)) ([]worktree.KeptRef, error) {
	repositories, err := p.repositories(ctx, named)
	if err != nil {
		return nil, err
	}
	var all []worktree.KeptRef
	seen := map[string]bool{}
	for _, repository := range repositories {
		kept, err := list(ctx, repository)
		if err != nil && named == "" && teardown.CodeOf(err) == teardown.CodeRepositoryMissing {
			p.note("%s: %s", name, sentence(err.Error()))
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, ref := range kept {
			// A repository may be registered by several names.
			if key := ref.Repository + "\x00" + ref.Ref; !seen[key] {
				seen[key] = true
				all = append(all, ref)
			}
		}
	}
	return all, nil
}

// keptLine is a ref of ours with --json.
type keptLine struct {
	Repository string     `json:"repository"`
	Kind       string     `json:"kind"`
	Ref        string     `json:"ref"`
	Commit     string     `json:"commit"`
	At         *time.Time `json:"at"`
	Subject    string     `json:"subject"`
	WorktreeID string     `json:"worktree_id"`
	Path       string     `json:"path,omitempty"`
	Branch     string     `json:"branch,omitempty"`
}

func keptLineOf(kept worktree.KeptRef) keptLine {
	line := keptLine{Repository: kept.Repository, Kind: kept.Kind, Ref: kept.Ref, Commit: kept.Commit, Subject: kept.Subject,
		WorktreeID: kept.Worktree, Path: kept.Path, Branch: kept.Branch}
	if !kept.At.IsZero() {
		line.At = &kept.At
	}
	return line
}

// when is a moment in a table: for a person on a terminal, exact when piped.
func (p *program) when(at time.Time) string {
	switch {
	case at.IsZero():
		return ""
	case p.outTerminal:
		return ago(at, now())
	}
	return at.UTC().Format(time.RFC3339)
}

const shortCommit = 12

func short(commit string) string { return commit[:min(shortCommit, len(commit))] }
