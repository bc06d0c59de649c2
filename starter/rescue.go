package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"unwind/internal/worktree"
)

type rescueOptions struct {
	*program
	Repository string
	Kind       string
	Refs       []string
	All        bool
	Yes        bool
}

func newRescueCommand(p *program) *cobra.Command {
	command := &cobra.Command{
		Use:   "rescue",
		Short: "List and drop what was kept of removed worktrees",
		Long: `When a worktree is removed, commits that nothing else reaches (of a detached HEAD, a
reflog, a bisection) are kept by refs under refs/unwind/rescue/, and uncommitted
work, if that was asked for, by refs under refs/unwind/saved/. They never expire by
themselves. "git branch NAME REF" makes a branch of a rescued commit,
"unwind recover" a worktree of saved work.`,
	}
	command.AddCommand(newRescueListCommand(p), newRescueDropCommand(p))
	group(command)
	return command
}

const rescueRepositories = `Without --repository, the repositories of all worktrees that were ever registered on
this host are looked through.`

func newRescueListCommand(p *program) *cobra.Command {
	o := &rescueOptions{program: p}
	command := &cobra.Command{
		Use:   "list [--repository R] [--kind K]",
		Short: "List the commits and the work that were kept when their worktree was removed",
		Long: `List the commits and the uncommitted work that were kept when their worktree was
removed.

` + rescueRepositories + `

When piped, the columns are separated by tabs: ref, commit, date, worktree,
repository, subject, kind.`,
		Example: `  unwind rescue list
  unwind rescue list --kind saved
  unwind rescue list --repository . --json`,
		Args: noArgs,
		RunE: runs(o.list),
	}
	o.flags(command)
	return command
}

func newRescueDropCommand(p *program) *cobra.Command {
	o := &rescueOptions{program: p}
	command := &cobra.Command{
		Use:   "drop REF… | --all",
		Short: "Delete such refs, so that git collects their commits one day",
		Long: `Delete rescue refs and refs of saved work. What nothing else reaches is collected by
git some time later. Each ref is deleted only if it still is as it was listed. A
terminal is asked first; elsewhere it takes --yes. --all means the rescued commits,
unless --kind saved is given.

` + rescueRepositories,
		Example: `  unwind rescue drop refs/unwind/rescue/hand-3fa92c/1
  unwind rescue drop refs/unwind/saved/s1/1/1
  unwind rescue drop --all --repository /src/app --yes`,
		Args: func(_ *cobra.Command, args []string) error {
			o.Refs = args
			switch {
			case o.All && len(args) > 0:
				return usageError("name refs or give --all, not both")
			case !o.All && len(args) == 0:
				return usageError("name the refs to drop, or give --all; see `%s rescue list`", name)
			}
			return nil
		},
		RunE: runs(o.drop),
	}
	o.flags(command)
	command.Flags().BoolVar(&o.All, "all", false, "all of the kind")
	command.Flags().BoolVar(&o.Yes, "yes", false, "do not ask")
	return command
}

func (o *rescueOptions) flags(command *cobra.Command) {
	command.Flags().StringVar(&o.Repository, "repository", "", "any directory of the one repository to look through")
	command.Flags().StringVar(&o.Kind, "kind", "", "only what is "+strings.Join(keptKinds, " or "))
	completeWords(command, "kind", keptKinds)
}

var keptKinds = []string{worktree.KindRescued, worktree.KindSaved}

func (o *rescueOptions) kept(ctx context.Context) (*worktree.Engine, []worktree.KeptRef, error) {
	if err := oneOf("kind", o.Kind, keptKinds); err != nil {
		return nil, nil, err
	}
	c, err := o.config()
	if err != nil {
		return nil, nil, err
	}
	e := engine(c)
	kept, err := o.keptRefs(ctx, o.Repository, func(ctx context.Context, repository string) ([]worktree.KeptRef, error) {
		rescued, err := e.Rescued(ctx, repository)
		if err != nil {
			return nil, err
		}
		saved, err := e.SavedWork(ctx, repository)
		return append(rescued, saved...), err
	})
	return e, of(kept, func(ref worktree.KeptRef) bool { return o.Kind == "" || ref.Kind == o.Kind }), err
}

func (o *rescueOptions) list(ctx context.Context) error {
	_, kept, err := o.kept(ctx)
	if err != nil {
		return err
	}
	o.print(kept)
	if len(kept) == 0 && o.outTerminal {
		o.note("Nothing was kept.")
	}
	return nil
}

func (o *rescueOptions) print(kept []worktree.KeptRef) {
	t := newTable(o.streams, "REF", "COMMIT", "DATE", "WORKTREE", "REPOSITORY", "SUBJECT", "KIND")
	for _, ref := range kept {
		if o.json {
			o.printJSON(keptLineOf(ref))
			continue
		}
		t.add(cell{ref.Ref, bold}, cell{text: short(ref.Commit)}, cell{text: o.when(ref.At)}, cell{text: ref.Worktree},
			cell{text: ref.Repository}, cell{text: ref.Subject}, cell{text: ref.Kind})
	}
	if !o.json && len(kept) > 0 {
		t.print()
	}
}

func (o *rescueOptions) drop(ctx context.Context) error {
	if o.All && o.Kind == "" {
		o.Kind = worktree.KindRescued
	}
	e, kept, err := o.kept(ctx)
	if err != nil {
		return err
	}
	if !o.All {
		if kept, err = chosen(kept, o.Refs); err != nil {
			return err
		}
	}
	if len(kept) == 0 {
		o.say("There are no such refs; nothing to drop.")
		return nil
	}
	if !o.Yes {
		sure, err := o.sure(kept)
		if err != nil || !sure {
			return err
		}
	}
	byRepository := map[string][]worktree.KeptRef{}
	var repositories []string
	for _, ref := range kept {
		if byRepository[ref.Repository] == nil {
			repositories = append(repositories, ref.Repository)
		}
		byRepository[ref.Repository] = append(byRepository[ref.Repository], ref)
	}
	codes := []exitCode{exitDone}
	for _, repository := range repositories {
		if err := e.DropKept(ctx, repository, byRepository[repository]); err != nil {
			codes = append(codes, exitOf(err))
			o.note("%s: %s: %s", name, shown(repository), sentence(err.Error()))
			if o.json {
				o.printJSON(printedError{errorObjectOf(err)})
			}
			continue
		}
		for _, ref := range byRepository[repository] {
			if o.json {
				o.printJSON(keptLineOf(ref))
			}
			o.say("Dropped %s, which was %s.", shown(ref.Ref), ref.Commit)
		}
	}
	return asVerdict(worst(codes...))
}

// chosen answers the refs that were named, each of one repository.
func chosen(kept []worktree.KeptRef, refs []string) ([]worktree.KeptRef, error) {
	var some []worktree.KeptRef
	for _, wanted := range refs {
		found := of(kept, func(ref worktree.KeptRef) bool { return ref.Ref == wanted })
		switch {
		case len(found) == 0:
			return nil, usageError("there is no kept ref %s; see `%s rescue list`", shown(wanted), name)
		case len(found) > 1:
			return nil, usageError("%s is in several repositories; name one with --repository", shown(wanted))
		case !slices.Contains(some, found[0]):
			some = append(some, found[0])
		}
	}
	return some, nil
}

// sure asks on a terminal.
func (o *rescueOptions) sure(kept []worktree.KeptRef) (bool, error) {
	if !o.inTerminal || o.json {
		return false, usageError("dropping a ref cannot be undone for long; give --yes if you are sure")
	}
	for _, ref := range kept {
		o.note("%s  %s  %s", shown(ref.Ref), short(ref.Commit), shown(ref.Subject))
	}
	return o.agreed("Drop "+counted(len(kept), "ref", "refs")+"? Their commits may be reached by nothing else.", "Nothing was dropped."), nil
}
