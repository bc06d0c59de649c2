package reconcile

import (
	"context"
	"errors"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"unwind/internal/store"
	"unwind/teardown"
)

// start starts a session's finalization, or finds the run that is under way. The
// two are told apart, which StartOptions alone does not.
func (p *pass) start(ctx context.Context, due store.Due) error {
	options := teardown.StartOptions(p.TaskQueue, due.SessionID)
	options.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL
	options.WorkflowExecutionErrorWhenAlreadyStarted = true
	_, err := p.Temporal.Client.ExecuteWorkflow(ctx, options, teardown.FinalizeSessionWorkflow,
		teardown.FinalizeSessionInput{SessionID: due.SessionID})
	var already *serviceerror.WorkflowExecutionAlreadyStarted
	switch {
	case errors.As(err, &already):
		p.done.UnderWay++
		return p.deliver(ctx, due)
	case err != nil:
		return err
	}
	p.done.Started++
	return nil
}
