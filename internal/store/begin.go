package store

import (
	"cmp"
	"context"

	"unwind/teardown"
)

// Begun is what a run of a finalization finds to do.
type Begun struct {
	Host   string
	Step   teardown.Step
	TaskID string // the task itself, or the one that the session is in
	// Outcome is set if there is nothing to do: finalized, deferred (the session
	// is held) or restored (it is live again, at a newer generation).
	Outcome teardown.Outcome
	// ParkedReason is set if the finalization waits and no request wakes it.
	ParkedReason  string
	Runtimes      []Runtime // not confirmed gone, auxiliary ones first
	Secrets       bool      // secrets are left to clear
	Resources     bool      // resources of any kind are
	SaveRequested bool
	// ConfirmedGoneBy is who has seen that the runtimes are gone, for this round.
	ConfirmedGoneBy string
	Result          teardown.Result // what is known so far
}

// Begin opens the finalization of a terminated session or a closed task, or goes
// on with it, and answers what is left to do. Unknown or live: session_not_found,
// session_live, task_not_found, task_active.
//
// A request that carries no round (it was sent by Temporal's own tools) makes
// it record the retry here, unless somebody has begun a newer round than the
// one the run knows; a run that knows none only wakes what is parked. Recorded
// is it, too, if its flag would otherwise be lost.
func (s *Store) Begin(ctx context.Context, in teardown.BeginInput) (begun Begun, err error) {
	err = s.write(ctx, func(tx queries) error {
		begun, err = begin(ctx, tx, in)
		return err
	})
	return begun, err
}

func begin(ctx context.Context, tx queries, in teardown.BeginInput) (Begun, error) {
	if in.TaskID != "" {
		return beginTask(ctx, tx, in)
	}
	session, found, err := lockSession(ctx, tx, in.SessionID)
	if err != nil {
		return Begun{}, err
	}
	if !found {
		return Begun{}, sessionNotFound(in.SessionID)
	}
	if session.TerminatedAt == nil {
		return beginLive(ctx, tx, session, in)
	}
	begun := Begun{Host: session.Host, TaskID: session.TaskID, Step: teardown.Step{SessionID: session.ID, Generation: session.Generation, Round: 1}}
	f, opened, err := finalizationOf(ctx, tx, HolderOf(begun.Step))
	if err != nil {
		return Begun{}, err
	}
	if opened {
		begun.Step.Round = f.Round
	}
	switch {
	case f.FinishedAt != nil:
		begun.Outcome = teardown.OutcomeFinalized
	case session.Held(now()):
		begun.Outcome = teardown.OutcomeDeferred
	default:
		// Whoever terminates a session in the database takes nothing from its task.
		if err := takeFromTask(ctx, tx, session, WorktreeCreating); err != nil {
			return Begun{}, err
		}
		return beginWork(ctx, tx, begun, f, opened, in)
	}
	begun.Result, err = resultOfHolder(ctx, tx, HolderOf(begun.Step))
	begun.Result.Outcome = begun.Outcome
	return begun, err
}

// beginLive answers a run whose session was restored, and refuses any other.
func beginLive(ctx context.Context, tx queries, session Session, in teardown.BeginInput) (Begun, error) {
	if in.Generation <= 0 || session.Generation <= in.Generation {
		return Begun{}, sessionLive(session.ID)
	}
	return beginRestored(ctx, tx, session.Host, teardown.Step{SessionID: session.ID, Generation: in.Generation, Round: in.Round})
}

func beginRestored(ctx context.Context, tx queries, host string, step teardown.Step) (Begun, error) {
	result, err := resultOfHolder(ctx, tx, HolderOf(step))
	result.Outcome = teardown.OutcomeRestored
	return Begun{Host: host, Step: step, Outcome: teardown.OutcomeRestored, Result: result}, err
}

// beginTask is begin for a task. One whose row is gone is begun at the newest
// generation that it left something of.
func beginTask(ctx context.Context, tx queries, in teardown.BeginInput) (Begun, error) {
	t, found, err := lockTask(ctx, tx, in.TaskID)
	if err != nil {
		return Begun{}, err
	}
	if !found {
		left, err := newestTrace(ctx, tx, in.TaskID)
		if err != nil {
			return Begun{}, err
		}
		if left == 0 {
			return Begun{}, taskNotFound(in.TaskID)
		}
		t.Generation = left
	} else if !t.Closed() {
		if in.Generation <= 0 || t.Generation <= in.Generation {
			return Begun{}, taskActive(t.ID)
		}
		return beginRestored(ctx, tx, "", teardown.Step{TaskID: t.ID, Generation: in.Generation, Round: in.Round})
	}
	begun := Begun{TaskID: in.TaskID, Step: teardown.Step{TaskID: in.TaskID, Generation: t.Generation, Round: 1}}
	f, opened, err := finalizationOf(ctx, tx, HolderOf(begun.Step))
	if err != nil {
		return Begun{}, err
	}
	if opened {
		begun.Step.Round = f.Round
	}
	if f.FinishedAt == nil {
		return beginWork(ctx, tx, begun, f, opened, in)
	}
	begun.Outcome = teardown.OutcomeFinalized
	begun.Result, err = resultOfHolder(ctx, tx, HolderOf(begun.Step))
	begun.Result.Outcome = begun.Outcome
	return begun, err
}

func beginWork(ctx context.Context, tx queries, begun Begun, f Finalization, opened bool, in teardown.BeginInput) (_ Begun, err error) {
	me := HolderOf(begun.Step)
	if !opened {
		if f, err = open(ctx, tx, me, in.Requests); err != nil {
			return Begun{}, err
		}
	} else if request, asked := newRound(f, me, in); asked {
		if f, err = nextRound(ctx, tx, f, request); err != nil {
			return Begun{}, err
		}
	}
	if err := started(ctx, tx, me, in.WorkflowID); err != nil {
		return Begun{}, err
	}
	begun.Step.Round, begun.SaveRequested = f.Round, f.SaveRequested
	if f.RuntimeConfirmedGone {
		begun.ConfirmedGoneBy = cmp.Or(f.RequestedBy, "unnamed")
	}
	if f.ParkedAt != nil {
		begun.ParkedReason = f.ParkedReason
	}
	if begun.Runtimes, err = runtimesLeft(ctx, tx, begun.Step.SessionID); err != nil {
		return Begun{}, err
	}
	left, err := resourcesLeft(ctx, tx, begun.Step.SessionID, begun.Step.Generation)
	if err != nil {
		return Begun{}, err
	}
	begun.Resources, begun.Secrets = len(left) > 0, len(secrets(left)) > 0
	begun.Result, err = resultOfHolder(ctx, tx, me)
	return begun, err
}

// open writes the finalization's row, of round 1. What the first requests ask
// for holds for that round: nothing was tried before it.
func open(ctx context.Context, tx queries, me Holder, requests []teardown.RetryRequest) (Finalization, error) {
	f := Finalization{Holder: me, Round: 1}
	for _, r := range requests {
		if r.IfParked {
			continue
		}
		f.SaveRequested = f.SaveRequested || r.SaveChanges
		f.RequestedBy = readable(r.RequestedBy, maxText)
		f.RuntimeConfirmedGone = f.RuntimeConfirmedGone || r.RuntimeConfirmedGone
	}
	_, err := tx.exec(ctx, `INSERT INTO finalizations (holder_kind, holder_id, generation, round, save_requested, requested_by, runtime_confirmed_gone)
		VALUES (?, ?, ?, ?, ?, ?, ?)`, me.Kind, me.ID, me.Generation, f.Round, f.SaveRequested, f.RequestedBy, f.RuntimeConfirmedGone)
	return f, err
}

// started notes the first run's time and the newest run's workflow id.
func started(ctx context.Context, tx queries, me Holder, workflowID string) error {
	if _, err := tx.exec(ctx, "UPDATE finalizations SET started_at = ?"+ofHolder+" AND started_at IS NULL",
		append([]any{now()}, me.key()...)...); err != nil {
		return err
	}
	_, err := tx.exec(ctx, "UPDATE finalizations SET workflow_id = ?"+ofHolder, append([]any{readable(workflowID, maxText)}, me.key()...)...)
	return err
}

// newRound decides whether the run's requests make a new round, and with what.
func newRound(f Finalization, me Holder, in teardown.BeginInput) (request RetryOptions, asked bool) {
	known := in.Round
	if in.Generation != 0 && in.Generation != me.Generation {
		known = 0 // a round of another generation
	}
	parked := f.ParkedAt != nil
	for _, r := range in.Requests {
		if r.IfParked && !parked {
			continue
		}
		request.SaveChanges = request.SaveChanges || r.SaveChanges
		if r.Round != 0 { // the sender has recorded it
			continue
		}
		request.By = r.RequestedBy
		request.RuntimeConfirmedGone = request.RuntimeConfirmedGone || r.RuntimeConfirmedGone
		switch {
		case known == 0 && parked, known == f.Round:
			asked = true
		case r.SaveChanges && !f.SaveRequested, r.RuntimeConfirmedGone && !f.RuntimeConfirmedGone:
			asked = true
		}
	}
	return request, asked
}
