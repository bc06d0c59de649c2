package test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"

	"unwind/teardown"
)

// keptThenDeleted answers the id of a session that was deleted while it waited; the
// delete command runs with more in its environment.
func (i *installation) keptThenDeleted(env ...string) (id string) {
	i.t.Helper()
	a := i.agent("s1")
	write(i.t, filepath.Join(a.nested, "draft.md"), "mine\n")
	i.add(a)
	require.Equal(i.t, teardown.OutcomePreserved, i.result(3, "terminate", a.id, "--wait").Outcome)
	usual := i.env
	i.env = append(i.env, env...)
	i.must("session", "delete", a.id, "--yes")
	i.env = usual
	return a.id
}

// requireUsable gives the id to another session, and releases that.
func (i *installation) requireUsable(id string) {
	i.t.Helper()
	a := i.agent("s2")
	a.manifest.ID = id
	i.add(a)
	result := i.result(0, "terminate", id, "--wait")
	require.Equal(i.t, teardown.OutcomeFinalized, result.Outcome)
	require.EqualValues(i.t, 2, result.Generation)
	i.requireReleased(a)
}

func (i *installation) status(workflowID string) enums.WorkflowExecutionStatus {
	i.t.Helper()
	run, err := i.client.DescribeWorkflow(i.t.Context(), workflowID, "")
	require.NoError(i.t, err)
	return run.Status
}

func TestAnIDIsUsedAgainAfterTheDeletionOfAParkedSession(t *testing.T) {
	onBothDatabases(t, func(_ *testing.T, i *installation) {
		i.worker()
		id := i.keptThenDeleted()
		i.until("the run that waited has ended", func() bool {
			return i.status(teardown.FinalizeSessionID(id)) == enums.WORKFLOW_EXECUTION_STATUS_FAILED
		})
		i.requireUsable(id)
	})
}

// Temporal was away when the session was deleted.
func TestAnIDIsUsedAgainWhoseRunWaitsOn(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		i.worker()
		id := i.keptThenDeleted("TEMPORAL_ADDRESS=127.0.0.1:1")
		require.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, i.status(teardown.FinalizeSessionID(id)))
		i.requireUsable(id)
	})
}
