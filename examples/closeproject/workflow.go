package main

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
)

// CloseProjectInput names the sessions of a project.
type CloseProjectInput struct {
	Sessions []string `json:"sessions"`
	// UnwindQueue is the workflow queue of the unwind installation.
	UnwindQueue string `json:"unwind_queue"`
}

// ClosedSession is what became of one session: an outcome, or why there is none.
type ClosedSession struct {
	SessionID string           `json:"session_id"`
	Outcome   teardown.Outcome `json:"outcome,omitempty"`
	// Kept lists the worktrees that stay, each with its reason and what was found.
	Kept  []teardown.WorktreeResult `json:"kept,omitempty"`
	Error *teardown.Failure         `json:"error,omitempty"`
}

// CloseProject ends all sessions of a project and has what they held released.
// It answers what became of each, in the order of the input. A session that is
// kept, or fails, stops none of the others. Cancelling it stops no release that
// has begun.
func CloseProject(ctx workflow.Context, in CloseProjectInput) ([]ClosedSession, error) {
	closed := make([]ClosedSession, len(in.Sessions))
	all := workflow.NewWaitGroup(ctx)
	for i, id := range in.Sessions {
		all.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer all.Done()
			closed[i] = closeSession(ctx, in.UnwindQueue, id)
		})
	}
	all.Wait(ctx)
	return closed, ctx.Err()
}

func closeSession(ctx workflow.Context, unwindQueue, id string) ClosedSession {
	closed := ClosedSession{SessionID: id}
	// The fact comes first: were this workflow lost after it, a worker of unwind
	// would find the session and release it all the same.
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 30 * time.Second})
	var facts *Facts
	if err := workflow.ExecuteActivity(ctx, facts.Terminate, id).Get(ctx, nil); err != nil {
		closed.Error = failureOf(err)
		return closed
	}
	result, err := teardown.FinalizeAsChild(ctx, unwindQueue, teardown.FinalizeSessionInput{
		SessionID: id,
		OnParked:  teardown.OnParkedReturn, // a kept worktree waits for a person; we do not
	})
	if err != nil {
		closed.Error = failureOf(err)
		return closed
	}
	closed.Outcome = result.Outcome
	for _, worktree := range result.Worktrees {
		if !worktree.Disposition.Final() {
			closed.Kept = append(closed.Kept, worktree)
		}
	}
	return closed
}

// failureOf finds unwind's code in a child's or an activity's error: the type of
// the application error.
func failureOf(err error) *teardown.Failure {
	var application *temporal.ApplicationError
	if errors.As(err, &application) {
		return &teardown.Failure{Code: teardown.Code(application.Type()), Message: application.Message()}
	}
	return &teardown.Failure{Message: err.Error()}
}
