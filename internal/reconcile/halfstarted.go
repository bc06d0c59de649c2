package reconcile

import (
	"context"
	"errors"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"unwind/internal/store"
	"unwind/teardown"
)

// takeBackAll takes back the starts on this host that were cut off.
func (p *pass) takeBackAll(ctx context.Context) {
	p.unanswered = 0
	each(ctx, p, part[store.Due]{
		doing: "take back", until: p.shortly(), id: sessionID,
		next: func(ctx context.Context, after string) (store.Page[store.Due], error) {
			return p.Store.HalfStarted(ctx, p.Host.ID, after, pageSize)
		},
		act: func(ctx context.Context, half store.Due) {
			p.call(ctx, Finding{SessionID: half.SessionID, Doing: "take back its start"}, func(ctx context.Context) error { return p.takeBack(ctx, half) })
		},
	})
}

// takeBack terminates a session whose start is not complete and will not go on,
// because its workflow was lost or has ended: the finalization releases what
// there is.
func (p *pass) takeBack(ctx context.Context, half store.Due) error {
	switch status, err := p.statusOf(ctx, teardown.StartSessionID(half.SessionID)); {
	case err != nil:
		return err
	case status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, status == enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW:
		return nil
	}
	_, _, err := p.Store.FailStart(ctx, half.SessionID, "")
	return err
}

// statusOf answers how the newest run of a workflow stands, or unspecified if
// there is none.
func (p *pass) statusOf(ctx context.Context, workflowID string) (enumspb.WorkflowExecutionStatus, error) {
	run, err := p.Temporal.Client.DescribeWorkflow(ctx, workflowID, "")
	var missing *serviceerror.NotFound
	switch {
	case errors.As(err, &missing):
		return enumspb.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED, nil
	case err != nil:
		return enumspb.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED, err
	}
	return run.Status, nil
}
