package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
)

type recoverOptions struct {
	*program
	Argument   string // the id of a session, or a ref
	Worktree   string
	To         string
	Branch     string
	Repository string
	List       bool
}

const savedPrefix = "refs/unwind/saved/"

func newRecoverCommand(p *program) *cobra.Command {
	o := &recoverOptions{program: p}
	command := &cobra.Command{
		Use:   "recover ID | REF | --list",
		Short: "Bring saved uncommitted work back in a new worktree",
		Long: `Bring uncommitted work that was saved with --save-changes back: in a new worktree, with
the index, the files, modes and flags as they were. The saved ref stays as it is, so
it can be recovered again.

With the id of a session, all of its worktrees whose work was saved last are
recovered to where they were; --worktree chooses one by its old path, --to another
directory. With a ref, the repository is that of --repository, or of the current
directory.

The work is on its branch again if that is still where it was. If the branch has
moved on, is gone or is checked out elsewhere, a new branch below unwind/recovered/ is
made, and the output says so; --branch names another one. A directory that is not
empty is refused.

--list lists what is saved, of one session if its id is given. Without --repository,
the repositories of all worktrees that were ever registered on this host are looked
through. When piped, the columns are separated by tabs: ref, date, branch, repository,
path.`,
		Example: `  unwind recover s1
  unwind recover s1 --worktree /wt/s1 --to /wt/s1-again --branch rescue-s1
  unwind recover refs/unwind/saved/by-hand/s1 --repository /src/app
  unwind recover --list`,
		Args:              o.args,
		ValidArgsFunction: p.completeIDs,
		RunE:              runs(o.run),
	}
	flags := command.Flags()
	flags.StringVar(&o.Worktree, "worktree", "", "of a session's worktrees, the one that was at this path")
	flags.StringVar(&o.To, "to", "", "directory of the new worktree (default: where it was)")
	flags.StringVar(&o.Branch, "branch", "", "branch to check out or to make (default: the one it was on)")
	flags.StringVar(&o.Repository, "repository", "", "with a ref or --list: any directory of the repository")
	flags.BoolVar(&o.List, "list", false, "list what is saved")
	return command
}

func (o *recoverOptions) args(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) > 1:
		return usageError("%s takes the id of one session or one ref, %q is one too many; see %s --help", cmd.CommandPath(), args[1], cmd.CommandPath())
	case len(args) == 1:
		o.Argument = args[0]
	case !o.List:
		return usageError("name a session or a ref to recover; see `%s recover --list`", name)
	}
	switch {
	case o.List && (o.Worktree != "" || o.To != "" || o.Branch != ""):
		return usageError("--list goes with --repository only")
	case o.byRef() && o.Worktree != "":
		return usageError("--worktree goes with the id of a session")
	case o.byRef():
		return nil
	case o.Repository != "" && !o.List:
		return usageError("--repository goes with a ref or --list; a session's repository is known")
	case o.Argument != "":
		return teardown.ValidateID(o.Argument)
	}
	return nil
}

func (o *recoverOptions) byRef() bool { return strings.HasPrefix(o.Argument, "refs/") }

func (o *recoverOptions) run(ctx context.Context) error {
	if o.List {
		return o.list(ctx)
	}
	c, err := o.config()
	if err != nil {
		return err
	}
	e := engine(c)
	if o.byRef() {
		repository := o.absolute(o.Repository)
		if repository == "" {
			repository = o.directory
		}
		return o.recover(ctx, e, worktree.RecoverOptions{Repository: repository, Ref: o.Argument, Path: o.absolute(o.To), Branch: o.Branch})
	}
	wanted, err := o.ofSession(ctx)
	if err != nil {
		return err
	}
	codes := []exitCode{exitDone}
	for _, one := range wanted {
		err := o.recover(ctx, e, one)
		if err != nil && len(wanted) == 1 {
			return err
		}
		if err != nil {
			codes = append(codes, exitOf(err))
			o.note("%s: %s: %s", name, shown(one.Ref), sentence(err.Error()))
			if o.json {
				o.printJSON(printedError{errorObjectOf(err)})
			}
		}
	}
	return asVerdict(worst(codes...))
}

// ofSession answers what to recover of a session, parents first.
func (o *recoverOptions) ofSession(ctx context.Context) ([]worktree.RecoverOptions, error) {
	f, err := o.openFacts(ctx)
	if err != nil {
		return nil, err
	}
	defer f.close()
	detail, err := f.SessionDetail(ctx, o.Argument)
	if err != nil {
		return nil, err
	}
	if detail.Session.Host != f.config.Host {
		return nil, &teardown.Error{Code: teardown.CodeForeignHost, Message: fmt.Sprintf(
			"session %s belongs to host %s and this is %s; run `%s recover %s` there", o.Argument, detail.Session.Host, f.config.Host, name, o.Argument)}
	}
	saved := lastSaved(detail.Worktrees)
	if o.Worktree != "" {
		path := o.absolute(o.Worktree)
		if canonical, err := worktree.CanonicalPath(path); err == nil {
			path = canonical
		}
		saved = of(saved, func(wt store.LeasedWorktree) bool { return wt.Worktree.Path == path })
	}
	switch {
	case len(saved) == 0 && o.Worktree != "":
		return nil, notSaved("nothing of session %s is saved from %s; see `%s recover --list %s`", o.Argument, shown(o.Worktree), name, o.Argument)
	case len(saved) == 0:
		return nil, notSaved("no uncommitted work of session %s is saved; see `%s status %s`", o.Argument, name, o.Argument)
	case len(saved) > 1 && (o.To != "" || o.Branch != ""):
		return nil, usageError("work of %d worktrees is saved; choose one with --worktree", len(saved))
	}
	var wanted []worktree.RecoverOptions
	for _, wt := range saved {
		wanted = append(wanted, worktree.RecoverOptions{Repository: wt.Worktree.Repository, Ref: wt.Lease.SavedRef,
			Path: o.absolute(o.To), Branch: o.Branch})
	}
	return wanted, nil
}

func notSaved(format string, args ...any) error {
	return &teardown.Error{Code: teardown.CodeWorktreeMissing, Message: fmt.Sprintf(format, args...)}
}

// lastSaved answers the worktrees of the last generation in which any were
// saved.
func lastSaved(all []store.LeasedWorktree) []store.LeasedWorktree {
	saved := of(all, func(wt store.LeasedWorktree) bool { return wt.Lease.SavedRef != "" })
	var last int64
	for _, wt := range saved {
		last = max(last, wt.Lease.Generation)
	}
	saved = of(saved, func(wt store.LeasedWorktree) bool { return wt.Lease.Generation == last })
	slices.SortFunc(saved, func(a, b store.LeasedWorktree) int { return strings.Compare(a.Worktree.Path, b.Worktree.Path) })
	return saved
}

// recoveredLine is a recovered worktree with --json.
type recoveredLine struct {
	Ref  string `json:"ref"`
	Path string `json:"path"`
	// PathB64 is set, and counts, when the path is not UTF-8.
	PathB64    string   `json:"path_b64,omitempty"`
	Repository string   `json:"repository"`
	Branch     string   `json:"branch"`
	Head       string   `json:"head"`
	Files      int64    `json:"files"`
	Notes      []string `json:"notes"`
}

func (o *recoverOptions) recover(ctx context.Context, e *worktree.Engine, wanted worktree.RecoverOptions) error {
	line := &progressLine{streams: o.streams}
	if o.errTerminal && !o.json {
		wanted.Progress = func(progress teardown.Progress) { line.print(shown(wanted.Ref) + ": " + progressText(progress)) }
	}
	done, err := e.Recover(ctx, wanted)
	line.clear()
	if err != nil {
		return err
	}
	if o.json {
		printed := recoveredLine{Ref: done.Ref, Path: done.Path, Repository: done.Repository, Branch: done.Branch, Head: done.Head,
			Files: done.Files, Notes: listed(done.Notes)}
		if !utf8.ValidString(done.Path) {
			printed.Path, printed.PathB64 = strings.ToValidUTF8(done.Path, "\ufffd"), base64.StdEncoding.EncodeToString([]byte(done.Path))
		}
		o.printJSON(printed)
		return nil
	}
	where := "on branch " + shown(done.Branch)
	if done.Branch == "" {
		where = "detached at " + short(done.Head)
	}
	o.say("%s: recovered, %s", o.styled(shown(done.Path), bold), where)
	for _, note := range done.Notes {
		o.say("  %s", sentence(note))
	}
	return nil
}

func (o *recoverOptions) list(ctx context.Context) error {
	c, err := o.config()
	if err != nil {
		return err
	}
	saved, err := o.keptRefs(ctx, o.Repository, engine(c).SavedWork)
	if err != nil {
		return err
	}
	if o.Argument != "" {
		prefix := o.Argument
		if !o.byRef() {
			prefix = filepath.Join(savedPrefix, o.Argument) + "/"
		}
		saved = of(saved, func(ref worktree.KeptRef) bool { return strings.HasPrefix(ref.Ref, prefix) })
	}
	t := newTable(o.streams, "REF", "SAVED", "BRANCH", "REPOSITORY", "PATH")
	for _, ref := range saved {
		if o.json {
			o.printJSON(keptLineOf(ref))
			continue
		}
		t.add(cell{ref.Ref, bold}, cell{text: o.when(ref.At)}, cell{text: ref.Branch}, cell{text: ref.Repository}, cell{text: ref.Path})
	}
	switch {
	case o.json:
	case len(saved) > 0:
		t.print()
	case o.outTerminal:
		o.note("No uncommitted work is saved.")
	}
	return nil
}
