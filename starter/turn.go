package main

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"unwind/teardown"
)

func newTurnCommand(p *program) *cobra.Command {
	command := &cobra.Command{
		Use:   "turn",
		Short: "Let one session at a time work in worktrees that several share",
		Long: `Sessions may share a worktree (see "unwind session fork"); of those that do, at most
one may run a turn at a time.`,
	}
	command.AddCommand(newTurnBeginCommand(p), newTurnEndCommand(p))
	group(command)
	return command
}

type turnOptions struct {
	*program
	ID   string
	Turn string
}

func newTurnBeginCommand(p *program) *cobra.Command {
	o := &turnOptions{program: p}
	command := &cobra.Command{
		Use:   "begin SESSION",
		Short: "Begin a turn, unless another one runs",
		Long: `Begin a turn of a live session. If the session, or one that shares a worktree with
it, runs another turn, it is not begun: code busy, which names that session, exit
code 75. The termination of a session ends its turn.

A turn has no time limit: one that was forgotten, because its agent died, is ended
with "unwind turn end SESSION" by whoever knows that nobody runs it any more.`,
		Example: `  unwind turn begin s1
  unwind turn begin s1 --turn 7 && run-agent; unwind turn end s1 --turn 7`,
		Args:              takesID(&o.ID),
		ValidArgsFunction: p.completeIDs,
		RunE:              runs(o.begin),
	}
	command.Flags().StringVar(&o.Turn, "turn", "", "id of the turn, made if left out; beginning the same again is a no-op")
	return command
}

func newTurnEndCommand(p *program) *cobra.Command {
	o := &turnOptions{program: p}
	command := &cobra.Command{
		Use:   "end SESSION",
		Short: "End a session's turn",
		Long: `End the turn that a session runs. Ending what does not run is a no-op. With --turn,
only that turn is ended; if another one runs by now, it is refused (65).`,
		Example:           `  unwind turn end s1`,
		Args:              takesID(&o.ID),
		ValidArgsFunction: p.completeIDs,
		RunE:              runs(o.end),
	}
	command.Flags().StringVar(&o.Turn, "turn", "", "end this turn only")
	return command
}

// turned is what turn begin and turn end print with --json.
type turned struct {
	SessionID  string     `json:"session_id"`
	Generation int64      `json:"generation"`
	Turn       string     `json:"turn"`
	Running    bool       `json:"running"`
	BegunAt    *time.Time `json:"begun_at"`
	BegunBy    string     `json:"begun_by"`
	// Changed is false if nothing ran that could be ended.
	Changed bool `json:"changed"`
}

func (o *turnOptions) check() error {
	if o.Turn == "" {
		return nil
	}
	if err := teardown.ValidateID(o.Turn); err != nil {
		return usageError("--turn: %s", err)
	}
	return nil
}

func (o *turnOptions) begin(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	if o.Turn == "" {
		o.Turn = uuid.NewString()
	}
	turn, err := f.BeginTurn(ctx, o.ID, o.Turn, o.whoAmI())
	if err != nil {
		return err
	}
	if o.json {
		o.printJSON(turned{SessionID: o.ID, Generation: turn.Generation, Turn: turn.ID, Running: true,
			BegunAt: &turn.BegunAt, BegunBy: turn.BegunBy, Changed: true})
	}
	o.say("Session %s runs turn %s.", o.ID, turn.ID)
	return nil
}

func (o *turnOptions) end(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	turn, ended, err := f.EndTurn(ctx, o.ID, o.Turn)
	if err != nil {
		return err
	}
	if o.json {
		done := turned{SessionID: o.ID, Generation: turn.Generation, Turn: turn.ID, BegunBy: turn.BegunBy, Changed: ended}
		if ended {
			done.BegunAt = &turn.BegunAt
		}
		o.printJSON(done)
	}
	if !ended {
		o.say("Session %s runs no turn; nothing to end.", o.ID)
		return nil
	}
	o.say("Turn %s of session %s has ended.", turn.ID, o.ID)
	return nil
}
