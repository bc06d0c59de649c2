// Package workflows holds unwind's deterministic code. What a workflow knows of
// the world it has from activities; what it decides is a fact in the database
// before it acts on it.
package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"unwind/activities"
	"unwind/teardown"
)

// Typed references for activity calls; never dereferenced.
var (
	facts *activities.Facts
	host  *activities.Host
)

// FinalizeSession releases what one terminated session held: its runtimes, then
// its worktrees child-first, then its agent's resources. It returns when all of
// that is done, when there is nothing for it to do, or, asked to, when it waits
// for a person. Everything it needs to know is in the database, so a run that
// was lost may be started again at any time.
func FinalizeSession(ctx workflow.Context, in teardown.FinalizeSessionInput) (teardown.Result, error) {
	f, err := newFinalization(ctx, in, "")
	if err != nil {
		return teardown.Result{}, err
	}
	result, err := f.run(ctx)
	f.awaitRestores()
	return result, err
}

// finalization is the state of one run.
type finalization struct {
	in teardown.FinalizeSessionInput
	// taskID names the holder if it is a task; in.SessionID is empty then.
	taskID string
	root   workflow.Context
	// steps is disconnected from the run's own context: cancelling the workflow
	// never stops a step halfway.
	steps    workflow.Context
	logger   log.Logger
	requests *requests
	restores restores
	begun    teardown.BeginResult
	refused  error // why there is nothing to begin
	status   teardown.Status
	shown    shownAttributes
	pause    time.Duration
}

func newFinalization(ctx workflow.Context, in teardown.FinalizeSessionInput, taskID string) (*finalization, error) {
	if err := teardown.ValidateID(in.SessionID + taskID); err != nil {
		return nil, temporal.NewNonRetryableApplicationError(err.Error(), string(teardown.CodeInvalidID), nil)
	}
	switch in.OnParked {
	case "", teardown.OnParkedWait, teardown.OnParkedReturn:
	default:
		return nil, temporal.NewNonRetryableApplicationError(
			`on_parked must be "wait" or "return"`, string(teardown.CodeInvalidManifest), nil)
	}
	steps, _ := workflow.NewDisconnectedContext(ctx)
	f := &finalization{
		in:       in,
		taskID:   taskID,
		root:     ctx,
		steps:    steps,
		logger:   log.With(workflow.GetLogger(ctx), "session", in.SessionID, "task", taskID),
		requests: &requests{},
		status:   teardown.Status{SessionID: in.SessionID, TaskID: taskID, Phase: teardown.PhaseStarting},
	}
	if carried := in.Carried; carried != nil {
		f.begun.Step = teardown.Step{SessionID: in.SessionID, TaskID: taskID, Generation: carried.Generation, Round: carried.Round}
		f.requests.pending = carried.Pending
		f.requests.handled = carried.Handled
	}
	// Every handler is there before the first yield: a signal or query that
	// started this run finds its handler.
	if err := workflow.SetQueryHandlerWithOptions(ctx, teardown.StatusQuery, f.answerStatus, workflow.QueryHandlerOptions{
		Description: "What is held, released and kept, and what is under way",
	}); err != nil {
		return nil, err
	}
	if taskID == "" {
		if err := f.listenForRestores(ctx); err != nil {
			return nil, err
		}
	}
	f.requests.listen(ctx)
	return f, nil
}

// verdict is how a round ended.
type verdict int

const (
	// released: nothing is left.
	released verdict = iota
	// parked: a person, or the host, has to do something first.
	parked
	// again: a newer round or generation has begun, or history grows too long.
	again
)

func (f *finalization) run(ctx workflow.Context) (teardown.Result, error) {
	for {
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			f.awaitRestores()
			return teardown.Result{}, f.continueAsNew(ctx)
		}
		before, asked := f.begun.Step, f.requests.any()
		if err := f.begin(); err != nil {
			return teardown.Result{}, err
		}
		if err := f.pauseIfNothingChanged(before, asked); err != nil {
			return teardown.Result{}, err
		}
		if f.begun.Outcome != "" {
			if f.awaitRestores(); f.somethingNew() {
				continue
			}
			reason := ""
			if f.begun.Outcome != teardown.OutcomeFinalized {
				reason = string(f.begun.Outcome)
			}
			f.show(ctx, teardown.PhaseFinished, reason)
			return f.result(f.begun.Outcome), nil
		}
		if f.begun.ParkedReason == "" {
			ended, err := f.round(ctx)
			if err != nil {
				return teardown.Result{}, err
			}
			switch {
			case ended == again:
				continue
			case ended == released:
				if f.awaitRestores(); f.somethingNew() {
					continue
				}
				f.show(ctx, teardown.PhaseFinished, "")
				return f.result(teardown.OutcomeFinalized), nil
			}
		} else {
			f.status.ParkedReason = f.begun.ParkedReason
			f.show(ctx, teardown.PhaseParked, f.status.ParkedReason)
		}
		if f.somethingNew() {
			continue
		}
		if f.in.OnParked == teardown.OnParkedReturn && ctx.Err() == nil {
			return f.result(teardown.ParkedOutcome(f.status.ParkedReason)), nil
		}
		if err := f.wait(ctx); err != nil {
			return teardown.Result{}, err
		}
	}
}

// begin asks the database what there is to do, and hands it the requests that
// came in. They count as handled once it has answered.
func (f *finalization) begin() error {
	taken, ended := f.requests.peek(), f.restores.ended
	in := teardown.BeginInput{
		SessionID:  f.in.SessionID,
		TaskID:     f.taskID,
		WorkflowID: workflow.GetInfo(f.steps).WorkflowExecution.ID,
		Generation: f.begun.Step.Generation,
		Round:      f.begun.Step.Round,
		Requests:   taken,
	}
	var begun teardown.BeginResult
	if err := f.askFacts(f.steps, "Read what is left to release", facts.BeginFinalization, in, &begun); err != nil {
		var refused *temporal.ApplicationError
		if errors.As(err, &refused) {
			// Callers in any language find the code on the outermost error.
			err = temporal.NewNonRetryableApplicationError(refused.Message(), refused.Type(), nil)
		}
		f.refused = err
		return err
	}
	f.requests.taken(len(taken))
	f.restores.seen = ended
	f.begun = begun
	f.status.Host = begun.Host
	f.status.Generation = begun.Step.Generation
	f.status.Round = begun.Step.Round
	f.status.ParkedReason = ""
	f.status.Result = begun.Result
	return nil
}

// pauseIfNothingChanged keeps a run that begins again, although nobody asked for
// a new round, from spinning.
func (f *finalization) pauseIfNothingChanged(before teardown.Step, asked bool) error {
	if asked || f.begun.Step != before || f.begun.Outcome != "" {
		f.pause = 0
		return nil
	}
	f.pause = min(max(2*f.pause, firstPause), maxPause)
	return workflow.NewTimerWithOptions(f.steps, f.pause, workflow.TimerOptions{
		Summary: "The facts have not changed; look again"}).Get(f.steps, nil)
}

// round does everything that is left, once, and parks or finishes.
func (f *finalization) round(ctx workflow.Context) (verdict, error) {
	if f.cancelled() {
		return f.park(ctx, cancelled())
	}
	if obstacle, err := f.endAgents(ctx); err != nil {
		return again, err
	} else if obstacle != nil {
		return f.stopFor(ctx, obstacle)
	}
	if f.cancelled() {
		return f.park(ctx, cancelled())
	}
	// From here to the end of the removals there is no stop: a released worktree
	// is marked as being deleted, and only its removal, or attempts used up, take
	// it out of that state.
	if obstacle, err := f.removeWorktrees(ctx); err != nil {
		return again, err
	} else if obstacle != nil {
		return f.stopFor(ctx, obstacle)
	}
	if f.cancelled() {
		return f.park(ctx, cancelled())
	}
	if obstacle := f.clearResources(ctx); obstacle != nil {
		return f.stopFor(ctx, obstacle)
	}
	var finished teardown.FinishResult
	if err := f.askFacts(f.steps, "Complete the facts", facts.FinishFinalization, f.begun.Step, &finished); err != nil {
		return again, err
	}
	if finished.Superseded || finished.Again {
		return again, nil
	}
	f.status.Result = finished.Result
	return released, nil
}

// endAgents: while an agent may be alive, no worktree is touched.
func (f *finalization) endAgents(ctx workflow.Context) (*obstacle, error) {
	if f.taskID != "" {
		return f.finalizeSessions(ctx)
	}
	f.show(ctx, teardown.PhaseRuntimes, "")
	return f.releaseRuntimes(), nil
}

// obstacle is what keeps a round from going on. An empty reason means that a
// newer round or generation has begun.
type obstacle struct {
	reason  string
	failure teardown.Failure
}

func superseded() *obstacle { return &obstacle{} }

func cancelled() *obstacle {
	return &obstacle{reason: teardown.ReasonCancelled, failure: teardown.Failure{
		Code: teardown.ReasonCancelled, Message: "The workflow was cancelled; a retry goes on."}}
}

func (f *finalization) stopFor(ctx workflow.Context, o *obstacle) (verdict, error) {
	if o.reason == "" {
		return again, nil
	}
	return f.park(ctx, o)
}

// park records the fact first; what is shown follows it.
func (f *finalization) park(ctx workflow.Context, o *obstacle) (verdict, error) {
	var answer teardown.ParkResult
	in := teardown.ParkInput{Step: f.begun.Step, Reason: o.reason, Failure: o.failure}
	err := f.askFacts(f.steps, "Record why it waits", facts.ParkFinalization, in, &answer)
	switch {
	case err == nil || o.reason == teardown.ReasonAttemptsExhausted:
	case o.reason == teardown.ReasonCancelled:
		// An earlier round left a worktree half-way: only used-up attempts, which
		// that is, may be recorded beside it.
		in.Reason = teardown.ReasonAttemptsExhausted
		err = f.askFacts(f.steps, "Record why it waits", facts.ParkFinalization, in, &answer)
	default:
		// Somebody's late removal has made an ancestor ours to remove.
		f.logger.Info("There is more to remove before it can wait", "error", err)
		return again, nil
	}
	if err != nil {
		return again, err
	}
	if answer.Superseded {
		if ctx.Err() != nil {
			// A retry was recorded while we were being cancelled: it is a fact that
			// reconcile acts on, not this run.
			return again, ctx.Err()
		}
		return again, nil
	}
	f.status.Result = answer.Result
	f.status.ParkedReason = in.Reason
	f.show(ctx, teardown.PhaseParked, in.Reason)
	return parked, nil
}

// wait returns when a retry was asked for. Parked is a fact by now, so a run
// that is cancelled just ends; requests that it has not handled are recorded
// first.
func (f *finalization) wait(ctx workflow.Context) error {
	err := workflow.Await(ctx, f.somethingNew)
	if err != nil && f.requests.any() {
		if beginErr := f.begin(); beginErr != nil {
			f.logger.Error("A retry request could not be recorded", "error", beginErr)
		}
	}
	return err
}

// somethingNew: a retry was asked for, or the session may have been restored.
func (f *finalization) somethingNew() bool { return f.requests.any() || f.restores.unseen() }

func (f *finalization) result(outcome teardown.Outcome) teardown.Result {
	result := f.status.Result
	result.Outcome = outcome
	return result
}

func (f *finalization) continueAsNew(ctx workflow.Context) error {
	f.requests.drain()
	in := f.in
	in.Carried = &teardown.Carried{
		Generation: f.begun.Step.Generation,
		Round:      f.begun.Step.Round,
		Pending:    f.requests.pending,
		Handled:    f.requests.handled,
	}
	if f.taskID != "" {
		return workflow.NewContinueAsNewError(ctx, teardown.FinalizeTaskWorkflow,
			teardown.FinalizeTaskInput{TaskID: f.taskID, OnParked: in.OnParked, Generation: in.Generation, Carried: in.Carried})
	}
	return workflow.NewContinueAsNewError(ctx, teardown.FinalizeSessionWorkflow, in)
}

func (f *finalization) cancelled() bool { return f.root.Err() != nil }

func (f *finalization) policy() teardown.Policy { return f.begun.Policy }

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
