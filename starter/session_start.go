package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	sdk "go.temporal.io/sdk/temporal"

	"unwind/teardown"
)

type sessionStartOptions struct {
	*program
	File string
	Task string

	id       string
	worktree teardown.NewWorktree
	kind     string
	command  []string
}

func newSessionStartCommand(p *program) *cobra.Command {
	o := &sessionStartOptions{program: p}
	command := &cobra.Command{
		Use:   "start (-f FILE | ID [flags] -- COMMAND [ARG…])",
		Short: "Make a session's worktrees and files and start its agent, all or nothing",
		Long: `Make what a session is to have, and start it: its files, its git worktrees, and a
tmux session or a process for each of its runtimes. Everything is recorded before
it is made, tagged and pinned, so that it can be given back at any moment.

If anything fails, all that was made is taken back; what was there before, such as
a branch, a directory or a tmux session of that name, is never touched. A branch
that was made stays, as no branch is ever deleted. The same again, once it is
started, changes nothing.

A file says what a session has that takes more than flags: nested repositories,
several runtimes, files and secrets. docs/runtimes.md describes it. What it says is kept
in Temporal's history: a secret is named by the file that holds it, on the host.

This needs Temporal and a worker on this host. Exit codes: 0 it runs, 4 failed, 64
what was asked is ill-formed, 65 refused, 69 Temporal or the database does not
answer, 75 try again.`,
		Example: `  unwind session start s1 --repository /src/app --path /wt/s1 --branch agent/s1 -- claude
  unwind session start -f s1.json --json`,
		Args: o.arguments,
		RunE: runs(o.run),
	}
	flags := command.Flags()
	flags.StringVarP(&o.File, "file", "f", "", "what to start, - for standard input")
	flags.StringVar(&o.Task, "task", "", "task to which the session belongs")
	flags.StringVar(&o.worktree.Repository, "repository", "", "repository of the worktree; any directory in it")
	flags.StringVar(&o.worktree.Path, "path", "", "where to make the worktree")
	flags.StringVar(&o.worktree.Branch, "branch", "", "branch to check out; made if it is not there")
	flags.StringVar(&o.worktree.Base, "base", "", "where a new branch begins (default: the repository's HEAD)")
	flags.StringVar(&o.kind, "kind", teardown.KindTmux, "what the command runs in: tmux or process")
	return command
}

func (o *sessionStartOptions) arguments(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	if dash < 0 {
		dash = len(args)
	}
	before, after := args[:dash], args[dash:]
	if o.File != "" {
		for _, flag := range []string{"task", "repository", "path", "branch", "base", "kind"} {
			if cmd.Flags().Changed(flag) {
				return usageError("--%s goes without -f; the file says it", flag)
			}
		}
		if len(args) > 0 {
			return usageError("%q goes without -f; the file says what to start", args[0])
		}
		return nil
	}
	switch {
	case len(before) == 0:
		return usageError("%s needs the id of a new session, or -f FILE; see %s --help", cmd.CommandPath(), cmd.CommandPath())
	case len(before) > 1:
		return usageError("%q is one too many; put the command after --", before[1])
	case len(after) == 0:
		return usageError("give the command of the agent after --, as in: %s %s -- claude", cmd.CommandPath(), before[0])
	case (o.worktree.Path == "") != (o.worktree.Repository == ""):
		return usageError("--repository and --path go together")
	case o.worktree.Path == "" && (o.worktree.Branch != "" || o.worktree.Base != ""):
		return usageError("--branch and --base go with --repository and --path")
	}
	o.id, o.command = before[0], after
	return teardown.ValidateID(o.id)
}

func (o *sessionStartOptions) run(ctx context.Context) error {
	c, err := o.config()
	if err != nil {
		return err
	}
	in, err := o.input(c.Host)
	if err != nil {
		return err
	}
	if in.Host != c.Host {
		return &teardown.Error{Code: teardown.CodeForeignHost, Message: fmt.Sprintf(
			"session %s belongs to host %s and this is %s; run `%s session start` there", in.ID, in.Host, c.Host, name)}
	}
	server := o.dial(ctx)
	defer server.Close()
	if server.away != nil {
		return server.away
	}
	run, err := teardown.StartSession(ctx, server.Client, c.TaskQueue, in)
	if err != nil {
		return server.Explain(err)
	}
	if o.errTerminal && !o.json {
		o.note("Starting session %s; %s", in.ID, server.WebURL(c.UIURL, run.GetID()))
	}
	var result teardown.StartSessionResult
	if err := run.Get(ctx, &result); err != nil {
		if ctx.Err() != nil {
			o.note("No longer waiting; the start of %s goes on. See `%s status %s`.", in.ID, name, in.ID)
			return verdict(exitRetryable)
		}
		return o.failed(err, in.ID, server)
	}
	o.print(result)
	return nil
}

func (o *sessionStartOptions) input(host string) (teardown.StartSessionInput, error) {
	in := teardown.StartSessionInput{ID: o.id, TaskID: o.Task,
		Runtimes: []teardown.NewRuntime{{Kind: o.kind, Command: o.command}}}
	if o.worktree.Path != "" {
		o.worktree.Path, o.worktree.Repository = o.absolute(o.worktree.Path), o.absolute(o.worktree.Repository)
		in.Worktrees = []teardown.NewWorktree{o.worktree}
	}
	if o.File != "" {
		content, err := o.read(o.File)
		if err != nil {
			return in, err
		}
		in = teardown.StartSessionInput{}
		if err := decodeStrict("the file", content, &in); err != nil {
			return in, err
		}
	}
	in.Host = cmp.Or(in.Host, host)
	return in, checkStart(&in)
}

// checkStart refuses what can be told without looking at the machine, and
// brings paths into their one form.
func checkStart(in *teardown.StartSessionInput) error {
	m := teardown.Manifest{ID: in.ID, Host: in.Host, TaskID: in.TaskID, Links: in.Links}
	for _, w := range in.Worktrees {
		m.Worktrees = append(m.Worktrees, teardown.WorktreeSpec{Repository: w.Repository, Path: w.Path, Branch: w.Branch})
	}
	for _, r := range in.Resources {
		m.Resources = append(m.Resources, teardown.ResourceSpec{Kind: r.Kind, Path: r.Path})
	}
	if err := checkManifest(&m); err != nil {
		return err
	}
	for i := range in.Worktrees {
		in.Worktrees[i].Repository, in.Worktrees[i].Path = m.Worktrees[i].Repository, m.Worktrees[i].Path
	}
	for i := range in.Resources {
		r, at := &in.Resources[i], fmt.Sprintf("resources[%d]", i)
		r.Path = m.Resources[i].Path
		if r.From == "" {
			continue
		}
		if r.Kind != teardown.ResourceFile && r.Kind != teardown.ResourceSecret {
			return invalid(`%s: "from" goes with a file or a secret, not with a %s`, at, r.Kind)
		}
		if err := cleanPath(&r.From, at+".from"); err != nil {
			return err
		}
	}
	for i := range in.Runtimes {
		if err := checkLaunch(&in.Runtimes[i], fmt.Sprintf("runtimes[%d]", i)); err != nil {
			return err
		}
	}
	if len(in.Worktrees)+len(in.Runtimes) == 0 {
		return invalid("nothing is to be started; give at least one worktree or runtime")
	}
	return nil
}

func checkLaunch(rt *teardown.NewRuntime, at string) error {
	rt.Kind, rt.Role = cmp.Or(rt.Kind, teardown.KindTmux), cmp.Or(rt.Role, teardown.RoleAgent)
	switch {
	case rt.Kind != teardown.KindTmux && rt.Kind != teardown.KindProcess:
		return invalid(`%s: kind %q is not known; use "tmux" or "process"`, at, rt.Kind)
	case rt.Role != teardown.RoleAgent && rt.Role != teardown.RoleAuxiliary:
		return invalid(`%s: role %q is not known; use "agent" or "auxiliary"`, at, rt.Role)
	case len(rt.Command) == 0 || rt.Command[0] == "":
		return invalid(`%s has no "command"; give the program and its arguments, as in ["claude"]`, at)
	case rt.Kind == teardown.KindProcess && (rt.Socket != "" || rt.Session != ""):
		return invalid(`%s: "socket" and "session" belong to a runtime of kind "tmux", this one is "process"`, at)
	case rt.Kind == teardown.KindTmux && rt.Output != "":
		return invalid(`%s: "output" belongs to a runtime of kind "process"; a terminal keeps its own`, at)
	}
	for _, path := range []struct {
		value *string
		field string
	}{{&rt.Directory, ".directory"}, {&rt.Socket, ".socket"}, {&rt.Output, ".output"}} {
		if *path.value == "" {
			continue
		}
		if err := cleanPath(path.value, at+path.field); err != nil {
			return err
		}
	}
	return nil
}

// failed says why a start failed and what became of what had been made.
func (o *sessionStartOptions) failed(err error, id string, server temporal) error {
	var application *sdk.ApplicationError
	if !errors.As(err, &application) {
		return server.Explain(err)
	}
	why := &teardown.Error{Code: teardown.Code(application.Type()), Message: application.Message()}
	switch why.Code {
	case teardown.ReasonHostUnreachable, teardown.CodeBusy, teardown.CodeRuntimeUnreachable:
		why.Retryable = true
	}
	var detail teardown.StartFailure
	if !application.HasDetails() || application.Details(&detail) != nil || detail.Released == nil {
		return why
	}
	switch released := detail.Released; released.Outcome {
	case teardown.OutcomeFinalized:
		why.Message = sentence(why.Message) + ". What had been made is taken back"
	default:
		why.Message = fmt.Sprintf("%s. Of what had been made something is left (%s); see `%s status %s`",
			sentence(why.Message), released.Outcome, name, id)
	}
	return why
}

func (o *sessionStartOptions) print(r teardown.StartSessionResult) {
	if o.json {
		o.printJSON(r)
		return
	}
	o.say("Started session %s.", r.SessionID)
	for _, wt := range r.Worktrees {
		on := ""
		if wt.Branch != "" {
			on = " on branch " + shown(wt.Branch)
		}
		o.say("  worktree %s%s", shown(wt.Path), on)
	}
	for _, rt := range r.Runtimes {
		if rt.Kind == teardown.KindTmux {
			o.say("  %s in tmux: tmux -S %s attach -t %s", rt.Role, shown(rt.Socket), rt.Session)
			continue
		}
		o.say("  %s is process %d", rt.Role, rt.PID)
	}
}
