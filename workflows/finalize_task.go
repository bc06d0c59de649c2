package workflows

import (
	"cmp"

	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
)

// FinalizeTask releases what an archived or deleted task held: its sessions are
// terminated and finalized first, then its worktrees are removed unless
// something could be lost or somebody else holds them. It is FinalizeSession
// with another holder, and waits, is retried and starts again in the same way.
func FinalizeTask(ctx workflow.Context, in teardown.FinalizeTaskInput) (teardown.Result, error) {
	f, err := newFinalization(ctx, teardown.FinalizeSessionInput{
		OnParked: in.OnParked, Generation: in.Generation, Carried: in.Carried}, in.TaskID)
	if err != nil {
		return teardown.Result{}, err
	}
	return f.run(ctx)
}

// finalizeSessions has every session of the task finalized. None keeps the
// others from it; the obstacle that decides why the round stops is answered.
func (f *finalization) finalizeSessions(ctx workflow.Context) (*obstacle, error) {
	f.show(ctx, teardown.PhaseSessions, "")
	var first *obstacle
	for after := ""; ; {
		var page teardown.TaskSessionsResult
		in := teardown.TaskSessionsInput{Step: f.begun.Step, After: after}
		if err := f.askFacts(f.steps, "Terminate the task's sessions", facts.TerminateTaskSessions, in, &page); err != nil {
			return nil, err
		}
		if page.Superseded {
			return superseded(), nil
		}
		for _, o := range f.finalizeAll(ctx, page.Sessions) {
			first = graver(first, o)
		}
		switch {
		case f.cancelled():
			return cancelled(), nil
		case !page.More:
			return first, nil
		case workflow.GetInfo(ctx).GetContinueAsNewSuggested():
			return superseded(), nil
		}
		after = page.Sessions[len(page.Sessions)-1].SessionID
	}
}

// finalizeAll runs one page of sessions as children, in parallel up to the
// bound, and answers what each of them leaves to be settled.
func (f *finalization) finalizeAll(ctx workflow.Context, sessions []teardown.TaskSessionRef) []*obstacle {
	obstacles := make([]*obstacle, len(sessions))
	bound := workflow.NewSemaphore(ctx, int64(max(1, f.policy().Parallel)))
	group := workflow.NewWaitGroup(f.steps)
	for i, session := range sessions {
		group.Add(1)
		workflow.GoNamed(ctx, "finalize-"+session.SessionID, func(coroutine workflow.Context) {
			defer group.Done()
			if err := bound.Acquire(coroutine, 1); err != nil {
				obstacles[i] = cancelled()
				return
			}
			defer bound.Release(1)
			obstacles[i] = f.finalizeSession(coroutine, session)
		})
	}
	group.Wait(f.steps)
	return obstacles
}

// finalizeSession waits until the session is finalized or waits for a person
// itself. Being cancelled ends the waiting; the session's finalization goes on.
func (f *finalization) finalizeSession(ctx workflow.Context, session teardown.TaskSessionRef) *obstacle {
	summary := "Finalize session " + session.SessionID
	f.started(summary)
	defer f.ended(summary)
	if session.RetriedRound > 0 {
		f.tell(ctx, session)
	}
	result, err := teardown.FinalizeAsChild(ctx, workflow.GetInfo(ctx).TaskQueueName, teardown.FinalizeSessionInput{
		SessionID: session.SessionID, Generation: session.Generation, OnParked: teardown.OnParkedReturn})
	if f.cancelled() {
		return cancelled()
	}
	if err != nil {
		if codeOf(err) == teardown.CodeSessionNotFound { // its row was deleted meanwhile
			return nil
		}
		failure := failureOf(err)
		failure.Message = "Session " + session.SessionID + " was not finalized: " + failure.Message
		return &obstacle{reason: teardown.ReasonSessionFailed, failure: failure}
	}
	f.noteSession(result)
	return f.unfinished(result)
}

// tell hands a retry that the task's retry has recorded to the session's run,
// should one wait for it. If there is none, the child reads it from the facts.
func (f *finalization) tell(ctx workflow.Context, session teardown.TaskSessionRef) {
	apart, _ := workflow.NewDisconnectedContext(ctx)
	request := teardown.RetryRequest{Round: session.RetriedRound, RequestedBy: "task " + f.taskID}
	err := workflow.SignalExternalWorkflow(apart, teardown.FinalizeSessionID(session.SessionID), "", teardown.RetrySignal, request).Get(apart, nil)
	if err != nil {
		f.logger.Debug("No run of the session waits for its retry", "session", session.SessionID, "error", err)
	}
}

// unfinished is the obstacle that a session is, or nil if it is finalized.
func (f *finalization) unfinished(result teardown.Result) *obstacle {
	var reason string
	switch result.Outcome {
	case teardown.OutcomeFinalized:
		return nil
	case teardown.OutcomePreserved:
		reason = teardown.ReasonSessionPreserved
	case teardown.OutcomeFailed:
		reason = teardown.ReasonSessionFailed
	case teardown.OutcomeDeferred:
		reason = teardown.ReasonSessionHeld
	default: // restored before the barrier was set: it is listed, and terminated, again
		return superseded()
	}
	message := "Session " + result.SessionID + " is not finalized (" + string(result.Outcome) + "); see `unwind status " + result.SessionID + "`."
	if result.Failure.Message != "" {
		message += " " + result.Failure.Message
	}
	return &obstacle{reason: reason, failure: teardown.Failure{Code: cmp.Or(result.Failure.Code, teardown.Code(reason)), Message: message}}
}

// graver is the one of two obstacles that decides why the round stops.
func graver(first, second *obstacle) *obstacle {
	rank := func(o *obstacle) int {
		switch {
		case o == nil:
			return 4
		case o.reason == "":
			return 0
		case o.reason == teardown.ReasonSessionFailed:
			return 1
		case o.reason == teardown.ReasonSessionPreserved:
			return 2
		}
		return 3
	}
	if rank(second) < rank(first) {
		return second
	}
	return first
}

func (f *finalization) noteSession(result teardown.Result) {
	noted := teardown.SessionResult{SessionID: result.SessionID, Generation: result.Generation, Outcome: result.Outcome, Failure: result.Failure}
	for i, known := range f.status.Result.Sessions {
		if known.SessionID == noted.SessionID {
			f.status.Result.Sessions[i] = noted
		}
	}
}
