package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"unwind/internal/store"
	"unwind/teardown"
)

type holdOptions struct {
	*program
	ID      string
	For     time.Duration
	Release bool
	limited bool // --for was given
}

func newHoldCommand(p *program) *cobra.Command {
	o := &holdOptions{program: p}
	command := &cobra.Command{
		Use:   "hold ID",
		Short: "Keep the finalizer away from a session for a while",
		Long: `Keep the finalizer away from a session: while it is held, no new step of its
finalization begins. Without --for it is held until further notice.`,
		Example: `  unwind hold s1 --for 2h
  unwind hold s1 --release`,
		Args:              takesID(&o.ID),
		ValidArgsFunction: p.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.limited = cmd.Flags().Changed("for")
			return runs(o.run)(cmd, args)
		},
	}
	command.Flags().DurationVar(&o.For, "for", 0, "how long, such as 30m or 2h")
	command.Flags().BoolVar(&o.Release, "release", false, "hold it no longer; a terminated session is then finalized")
	return command
}

// held is what hold prints with --json.
type held struct {
	SessionID string     `json:"session_id"`
	Held      bool       `json:"held"`
	HeldUntil *time.Time `json:"held_until"`
	HeldBy    string     `json:"held_by"`
}

func (o *holdOptions) run(ctx context.Context) error {
	switch {
	case o.limited && o.Release:
		return usageError("--for holds and --release lifts the hold; give one of them")
	case o.limited && o.For <= 0:
		return usageError("--for takes a duration above zero, such as 30m or 2h; --release lifts a hold")
	}
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	seen, err := f.look(ctx, o.ID)
	if err != nil {
		return err
	}
	if over, err := o.nothingTo(seen); over {
		return err
	}
	var until *time.Time
	by := o.whoAmI()
	switch {
	case o.Release:
		by = ""
	case o.limited:
		at := now().Add(o.For)
		until = &at
	}
	session, err := f.Hold(ctx, o.ID, until, by)
	if err != nil {
		return err
	}
	if o.json {
		o.printJSON(held{SessionID: o.ID, Held: session.Held(now()), HeldUntil: session.HeldUntil, HeldBy: session.HeldBy})
	}
	if !o.Release {
		o.say("%s", heldText(session))
		return nil
	}
	return o.goOn(ctx, f)
}

// nothingTo says so if the session is finished, or not held when the hold is to
// be lifted.
func (o *holdOptions) nothingTo(seen sight) (over bool, err error) {
	was := seen.Session
	switch {
	case seen.state == store.StateFinished && !o.Release:
		return true, &teardown.Error{Code: teardown.CodeConflict, Message: "session " + o.ID +
			" is finished, so there is nothing to hold; see `" + name + " status " + o.ID + "`"}
	// A hold that has ended by itself is lifted all the same: its finalization may
	// wait to be started.
	case o.Release && was.HeldBy == "" && was.HeldUntil == nil:
		if o.json {
			o.printJSON(held{SessionID: o.ID})
		}
		o.say("Session %s was not held; nothing to lift.", o.ID)
		return true, nil
	}
	return false, nil
}

// goOn starts what the hold has kept from starting.
func (o *holdOptions) goOn(ctx context.Context, f *facts) error {
	seen, err := f.look(ctx, o.ID)
	if err != nil {
		return err
	}
	if seen.state != store.StateTerminated {
		o.say("Session %s is no longer held.", o.ID)
		return nil
	}
	server := o.dial(ctx)
	defer server.Close()
	if err := server.start(ctx, f.config.TaskQueue, seen.Session); err != nil {
		o.say("Session %s is no longer held. Finalization will start when Temporal is back: %s.", o.ID, brief(err))
		return nil
	}
	o.say("Session %s is no longer held; finalization is under way.", o.ID)
	return nil
}
