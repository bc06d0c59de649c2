package main

import (
	"bufio"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"unwind/internal/worktree"
)

type rescueOptions struct {
	*program
	Repository string
	Refs       []string
	All        bool
	Yes        bool
}

func newRescueCommand(p *program) *cobra.Command {
	command := &cobra.Command{
		Use:   "rescue",
		Short: "List and drop commits that only a removed worktree reached",
		Long: `When a worktree is removed, commits that nothing else reaches (of a detached HEAD, a
reflog, a bisection) are kept by refs under refs/unwind/rescue/. They never expire
by themselves. "git branch NAME REF" makes a branch of one.`,
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
		Use:   "list [--repository R]",
		Short: "List the commits that were kept when their worktree was removed",
		Long: `List the commits that were kept when their worktree was removed.

` + rescueRepositories + `

When piped, the columns are separated by tabs: ref, commit, date, worktree,
repository, subject.`,
		Example: `  unwind rescue list
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
		Short: "Delete rescue refs, so that git collects their commits one day",
		Long: `Delete rescue refs. Commits that nothing else reaches are collected by git some time
later. Each ref is deleted only if it still is as it was listed. A terminal is
asked first; elsewhere it takes --yes.

` + rescueRepositories,
		Example: `  unwind rescue drop refs/unwind/rescue/hand-3fa92c/1
  unwind rescue drop --all --repository /src/app --yes`,
		Args: func(_ *cobra.Command, args []string) error {
			o.Refs = args
			switch {
			case o.All && len(args) > 0:
				return usageError("name rescue refs or give --all, not both")
			case !o.All && len(args) == 0:
				return usageError("name the rescue refs to drop, or give --all; see `%s rescue list`", name)
			}
			return nil
		},
		RunE: runs(o.drop),
	}
	o.flags(command)
	command.Flags().BoolVar(&o.All, "all", false, "all that are listed")
	command.Flags().BoolVar(&o.Yes, "yes", false, "do not ask")
	return command
}

func (o *rescueOptions) flags(command *cobra.Command) {
	command.Flags().StringVar(&o.Repository, "repository", "", "any directory of the one repository to look through")
}

func (o *rescueOptions) rescued(ctx context.Context) (*worktree.Engine, []worktree.KeptRef, error) {
	c, err := o.config()
	if err != nil {
		return nil, nil, err
	}
	e := engine(c)
	kept, err := o.keptRefs(ctx, o.Repository, e.Rescued)
	return e, kept, err
}

func (o *rescueOptions) list(ctx context.Context) error {
	_, kept, err := o.rescued(ctx)
	if err != nil {
		return err
	}
	o.print(kept)
	if len(kept) == 0 && o.outTerminal {
		o.note("No commits were kept.")
	}
	return nil
}

func (o *rescueOptions) print(kept []worktree.KeptRef) {
	t := newTable(o.streams, "REF", "COMMIT", "DATE", "WORKTREE", "REPOSITORY", "SUBJECT")
	for _, ref := range kept {
		if o.json {
			o.printJSON(keptLineOf(ref))
			continue
		}
		t.add(cell{ref.Ref, bold}, cell{text: short(ref.Commit)}, cell{text: o.when(ref.At)}, cell{text: ref.Worktree},
			cell{text: ref.Repository}, cell{text: ref.Subject})
	}
	if !o.json && len(kept) > 0 {
		t.print()
	}
}

func (o *rescueOptions) drop(ctx context.Context) error {
	e, kept, err := o.rescued(ctx)
	if err != nil {
		return err
	}
	if !o.All {
		if kept, err = chosen(kept, o.Refs); err != nil {
			return err
		}
	}
	if len(kept) == 0 {
		o.say("There are no rescue refs; nothing to drop.")
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
		if err := e.DropRescued(ctx, repository, byRepository[repository]); err != nil {
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
			return nil, usageError("there is no rescue ref %s; see `%s rescue list`", shown(wanted), name)
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
		return false, usageError("dropping a rescue ref cannot be undone for long; give --yes if you are sure")
	}
	for _, ref := range kept {
		o.note("%s  %s  %s", shown(ref.Ref), short(ref.Commit), shown(ref.Subject))
	}
	answer := ""
	o.ask("Drop " + counted(len(kept), "rescue ref", "rescue refs") + "? Their commits may be reached by nothing else. [y/N] ")
	if line := bufio.NewScanner(o.in); line.Scan() {
		answer = strings.ToLower(strings.TrimSpace(line.Text()))
	}
	if answer == "y" || answer == "yes" {
		return true, nil
	}
	o.note("Nothing was dropped.")
	return false, nil
}
