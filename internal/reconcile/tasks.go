package reconcile

import (
	"context"
	"errors"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"unwind/internal/store"
	"unwind/teardown"
)

func taskID(due store.Due) string { return due.TaskID }

// wakeTasks wakes the tasks whose obstacle has passed.
func (p *pass) wakeTasks(ctx context.Context) {
	each(ctx, p, part[store.Due]{
		doing: "wake tasks", until: p.shortly(), id: taskID,
		next: func(ctx context.Context, after string) (store.Page[store.Due], error) {
			page, err := p.Store.WakeableTasks(ctx, p.Host.ID, after, pageSize)
			return p.ofTasks(page, "wake"), err
		},
		act: func(ctx context.Context, due store.Due) {
			p.call(ctx, Finding{TaskID: due.TaskID, Doing: "wake"}, func(ctx context.Context) error { return p.wakeTask(ctx, due) })
		},
	})
}

// startTasks starts the finalization of those that are archived or deleted, and
// are neither finished nor parked.
func (p *pass) startTasks(ctx context.Context) {
	each(ctx, p, part[store.Due]{
		doing: "start tasks", until: p.shortly(), id: taskID,
		next: func(ctx context.Context, after string) (store.Page[store.Due], error) {
			page, err := p.Store.DueTasks(ctx, after, pageSize)
			return p.ofTasks(page, "start"), err
		},
		act: func(ctx context.Context, due store.Due) {
			p.call(ctx, Finding{TaskID: due.TaskID, Doing: "start"}, func(ctx context.Context) error { return p.startTask(ctx, due) })
		},
	})
}

// unarchiveTasks has the worktrees of unarchived tasks made whose run was lost.
func (p *pass) unarchiveTasks(ctx context.Context) {
	each(ctx, p, part[store.Due]{
		doing: "unarchive", until: p.shortly(), id: taskID,
		next: func(ctx context.Context, after string) (store.Page[store.Due], error) {
			page, err := p.Store.UnmadeTasks(ctx, after, pageSize)
			return p.ofTasks(page, "unarchive"), err
		},
		act: func(ctx context.Context, due store.Due) {
			p.call(ctx, Finding{TaskID: due.TaskID, Doing: "unarchive"}, func(ctx context.Context) error { return p.unarchiveTask(ctx, due) })
		},
	})
}

// unarchiveTask leaves alone what has a run. One that came to its end has told a
// person what could not be made.
func (p *pass) unarchiveTask(ctx context.Context, due store.Due) error {
	if err := teardown.ValidateID(due.TaskID); err != nil {
		return err
	}
	switch status, err := p.statusOf(ctx, teardown.UnarchiveTaskID(due.TaskID)); {
	case err != nil:
		return err
	case status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, status == enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW,
		status == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, status == enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED:
		return nil
	}
	_, err := teardown.UnarchiveTask(ctx, p.Temporal.Client, p.TaskQueue, due.TaskID)
	if err == nil {
		p.done.Converging++
	}
	return err
}

// ofTasks notes what cannot be read as a task's.
func (p *pass) ofTasks(page store.Page[store.Due], doing string) store.Page[store.Due] {
	for _, row := range page.Unreadable {
		p.failed(Finding{TaskID: row.ID, Doing: doing}, row.Err)
	}
	page.Unreadable = nil
	return page
}

// startTask is start for a task.
func (p *pass) startTask(ctx context.Context, due store.Due) error {
	if err := teardown.ValidateID(due.TaskID); err != nil {
		return err
	}
	options := teardown.TaskStartOptions(p.TaskQueue, due.TaskID)
	options.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL
	options.WorkflowExecutionErrorWhenAlreadyStarted = true
	_, err := p.Temporal.Client.ExecuteWorkflow(ctx, options, teardown.FinalizeTaskWorkflow, teardown.FinalizeTaskInput{TaskID: due.TaskID})
	var already *serviceerror.WorkflowExecutionAlreadyStarted
	switch {
	case errors.As(err, &already):
		p.done.UnderWay++
		return p.deliverToTask(ctx, due)
	case err != nil:
		return err
	}
	p.done.Started++
	return nil
}

// deliverToTask is deliver for a task.
func (p *pass) deliverToTask(ctx context.Context, due store.Due) error {
	round, err := p.unheardTaskRound(ctx, due)
	if err != nil || round == 0 || !p.waits(ctx, teardown.FinalizeTaskID(due.TaskID)) {
		return err
	}
	if round, err = p.unheardTaskRound(ctx, due); err != nil || round == 0 {
		return err
	}
	return p.signalTask(ctx, due.TaskID, round)
}

func (p *pass) unheardTaskRound(ctx context.Context, due store.Due) (int64, error) {
	detail, err := p.Store.TaskDetail(ctx, due.TaskID)
	return unheard(detail.Finalizations, due.Generation), err
}

// wakeTask is wake for a task.
func (p *pass) wakeTask(ctx context.Context, due store.Due) error {
	round, recorded, err := p.Store.RetryTask(ctx, due.TaskID, store.RetryOptions{IfParked: true, Reason: due.ParkedReason, By: p.name()})
	switch teardown.CodeOf(err) {
	case teardown.CodeTaskActive, teardown.CodeTaskNotFound, teardown.CodeConflict:
		return nil // unarchived, deleted or finished since it was listed
	}
	if err != nil || !recorded {
		return err
	}
	return p.signalTask(ctx, due.TaskID, round)
}

func (p *pass) signalTask(ctx context.Context, taskID string, round int64) error {
	_, err := teardown.SignalTaskRetry(ctx, p.Temporal.Client, p.TaskQueue, taskID,
		teardown.RetryRequest{Round: round, RequestedBy: p.name()})
	if err == nil {
		p.done.Woken++
	}
	return err
}
