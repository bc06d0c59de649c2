package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"unwind/internal/store"
	"unwind/teardown"
)

type hookExitOptions struct {
	*program
	Session     string
	TmuxSocket  string
	TmuxSession string
	TmuxTag     string
	Strict      bool
}

func newHookExitCommand(p *program) *cobra.Command {
	o := &hookExitOptions{program: p}
	command := &cobra.Command{
		Use:   "exit",
		Short: "Record that a session's agent has ended",
		Long: `Record that a session is over, for a hook of tmux or of a coding agent. It only
records the fact; the finalization is started by a worker, at once or when it is back.

Without flags it is an agent's hook at the end of a session: it reads the agent's JSON
on standard input. The session is the one whose runtime was registered with the
environment's UNWIND_RUN_ID, or else the one that holds the worktree around the JSON's
"cwd" (without JSON: around the working directory). An event that is not the end of a
session (Stop, a "reason" of clear or resume) records nothing.

With --tmux-socket and --tmux-session, or --tmux-tag, it is a tmux hook: the session is
the one whose agent runs there. It is recorded as over once that is confirmed: the tmux
session is gone, or the programs that its panes were started with have ended.

A hook must not get in the way of what calls it: whatever goes wrong is said on standard
error, with exit code 0. With --strict the exit code tells. docs/hooks.md has the lines
for tmux and for the agents.`,
		Example: `  unwind hook exit < event.json
  unwind hook exit --tmux-socket /tmp/tmux-1000/default --tmux-session '$3'
  unwind hook exit --session s1 --strict`,
		Args: noArgs,
		RunE: runs(o.run),
	}
	flags := command.Flags()
	flags.StringVar(&o.Session, "session", "", "id of the session, if it is known")
	flags.StringVar(&o.TmuxSocket, "tmux-socket", "", "socket of the tmux server: #{socket_path}")
	flags.StringVar(&o.TmuxSession, "tmux-session", "", "id of the tmux session: #{hook_session} or #{session_id}")
	flags.StringVar(&o.TmuxTag, "tmux-tag", "", "tag of the tmux session: #{@unwind_run}")
	flags.BoolVar(&o.Strict, "strict", false, "end with an error when nothing could be recorded")
	completeNothing(command, "tmux-session", "tmux-tag")
	if err := command.RegisterFlagCompletionFunc("session", p.completeIDs); err != nil {
		panic(err) // no such flag
	}
	return command
}

func completeNothing(command *cobra.Command, flags ...string) {
	for _, flag := range flags {
		completeWords(command, flag, nil)
	}
}

// hookLimit bounds the whole command: whoever calls it waits.
const hookLimit = 10 * time.Second

// observed is what hook exit prints with --json.
type observed struct {
	SessionID  string `json:"session_id"`
	Generation int64  `json:"generation"`
	// Changed is false if it was recorded before, or if the session was restored
	// since.
	Changed bool   `json:"changed"`
	Source  string `json:"termination_source"`
}

func (o *hookExitOptions) run(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, hookLimit)
	defer cancel()
	err := o.observe(ctx)
	if err == nil || o.Strict {
		return err
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("it took more than %s", durationText(hookLimit))
	}
	o.note("%s: nothing is recorded: %s", name, brief(err))
	if o.json {
		o.printJSON(printedError{errorObjectOf(err)})
	}
	return nil
}

func (o *hookExitOptions) check() error {
	switch {
	case o.Session != "" && o.ofTmux():
		return usageError("--session names the session; leave the --tmux flags out")
	case o.TmuxSession != "" && o.TmuxSocket == "", o.TmuxSocket != "" && o.TmuxSession == "" && o.TmuxTag == "":
		return usageError("--tmux-socket and --tmux-session go together; see %s hook exit --help", name)
	case o.Session != "":
		return teardown.ValidateID(o.Session)
	}
	return nil
}

func (o *hookExitOptions) ofTmux() bool {
	return o.TmuxSocket != "" || o.TmuxSession != "" || o.TmuxTag != ""
}

func (o *hookExitOptions) observe(ctx context.Context) error {
	var event agentEvent
	if !o.ofTmux() {
		var err error
		if event, err = o.readEvent(); err != nil {
			return err
		}
	}
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	search := exitSearch{program: o.program, facts: f}
	over, err := o.find(ctx, search, event)
	if err != nil {
		return err
	}
	session, changed, err := f.TerminateAt(ctx, over.session, over.generation, over.source)
	if err != nil {
		return err
	}
	if o.json {
		o.printJSON(observed{SessionID: session.ID, Generation: session.Generation, Changed: changed, Source: session.TerminationSource})
	}
	// Standard output belongs to the agent: some read it as JSON.
	if o.errTerminal && changed {
		o.note("Session %s is recorded as over.", session.ID)
	}
	return nil
}

// ended is a session that is over, at the generation at which it was seen.
type ended struct {
	session    string
	generation int64
	source     string
}

func (o *hookExitOptions) find(ctx context.Context, search exitSearch, event agentEvent) (ended, error) {
	switch {
	case o.ofTmux():
		return search.tmux(ctx, tmuxPlace{socket: o.TmuxSocket, session: o.TmuxSession, tag: o.TmuxTag}, o.Strict)
	case o.Session != "":
		session, err := search.facts.Session(ctx, o.Session)
		return ended{session.ID, session.Generation, teardown.SourceAgentExit}, err
	}
	if run := o.environment.get(runVariable); run != "" {
		return search.run(ctx, run, o.Strict)
	}
	return search.directory(ctx, event.directories(o.directory))
}

func notObserved(format string, args ...any) error {
	return &teardown.Error{Code: teardown.CodeSessionNotFound, Message: fmt.Sprintf(format, args...)}
}

func endedAt(rt store.Runtime, source string) ended {
	return ended{rt.SessionID, rt.Generation, source}
}
