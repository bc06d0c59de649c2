package test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
)

// parentInput is the input of a caller's own workflow.
type parentInput struct {
	Queue string                        `json:"queue"`
	Child teardown.FinalizeSessionInput `json:"child"`
}

func finalizeAsChild(ctx workflow.Context, in parentInput) (teardown.Result, error) {
	return teardown.FinalizeAsChild(ctx, in.Queue, in.Child)
}

// parent starts a workflow of somebody else's that finalizes a session as a
// child.
func (i *installation) parent(in teardown.FinalizeSessionInput) client.WorkflowRun {
	i.t.Helper()
	w := sdkworker.New(i.client, "callers-"+i.queue, sdkworker.Options{})
	w.RegisterWorkflow(finalizeAsChild)
	require.NoError(i.t, w.Start())
	i.t.Cleanup(w.Stop)
	run, err := i.client.ExecuteWorkflow(i.t.Context(), client.StartWorkflowOptions{TaskQueue: "callers-" + i.queue},
		finalizeAsChild, parentInput{Queue: i.queue, Child: in})
	require.NoError(i.t, err)
	return run
}

// terminateOnly records the fact and starts nothing, as somebody else's SQL
// would.
func (i *installation) terminateOnly(a *agent) {
	i.t.Helper()
	_, _, err := i.store().Terminate(i.t.Context(), a.id, "sql")
	require.NoError(i.t, err)
}

func TestFinalizedAsAChild(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.env = []string{"UNWIND_RECONCILE_INTERVAL=1h"}
	i.worker()
	a := i.agent("s1")
	i.add(a)
	i.terminateOnly(a)
	var result teardown.Result
	require.NoError(t, i.parent(teardown.FinalizeSessionInput{SessionID: a.id, Generation: 1}).Get(t.Context(), &result))
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	i.requireReleased(a)
}

func TestChildThatIsKeptDoesNotBlockAParentThatMustNotWait(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.env = []string{"UNWIND_RECONCILE_INTERVAL=1h"}
	i.worker()
	a := i.agent("s1")
	write(t, filepath.Join(a.nested, "draft.md"), "mine\n")
	i.add(a)
	i.terminateOnly(a)
	var result teardown.Result
	run := i.parent(teardown.FinalizeSessionInput{SessionID: a.id, OnParked: teardown.OnParkedReturn})
	require.NoError(t, run.Get(t.Context(), &result))
	require.Equal(t, teardown.OutcomePreserved, result.Outcome)
	require.FileExists(t, filepath.Join(a.nested, "draft.md"))
}

func TestParentAwaitsARunThatIsUnderWayElsewhere(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	draft := filepath.Join(a.nested, "draft.md")
	write(t, draft, "mine\n")
	i.add(a)
	i.result(3, "terminate", a.id, "--wait")
	run := i.parent(teardown.FinalizeSessionInput{SessionID: a.id})
	i.until("the parent waiting", func() bool {
		description, err := i.client.DescribeWorkflow(t.Context(), run.GetID(), run.GetRunID())
		require.NoError(t, err)
		return len(description.RawResponse.GetPendingActivities()) == 1
	})
	i.git(a.nested, "add", ".")
	i.git(a.nested, "commit", "-q", "-m", "keep it")
	i.must("retry", a.id)
	var result teardown.Result
	require.NoError(t, run.Get(t.Context(), &result))
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
}

func TestCancelledParentLeavesTheFinalizationAlone(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.env = []string{"UNWIND_RECONCILE_INTERVAL=1h"}
	i.worker()
	a := i.agent("s1")
	draft := filepath.Join(a.nested, "draft.md")
	write(t, draft, "mine\n")
	i.add(a)
	i.terminateOnly(a)
	run := i.parent(teardown.FinalizeSessionInput{SessionID: a.id})
	s := i.store()
	i.untilParked(s, a.id, teardown.ReasonPreserved)
	require.NoError(t, i.client.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
	require.Error(t, run.Get(t.Context(), nil))
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, i.workflowStatus(a.id))
	i.git(a.nested, "add", ".")
	i.git(a.nested, "commit", "-q", "-m", "keep it")
	i.must("retry", a.id)
	i.untilFinished(s, a.id)
	i.requireReleased(a)
}
