package workflows_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
	"unwind/workflows"
)

// TestRecordedHistoriesReplay proves that a change to the workflow does not
// break runs that are open. The histories were recorded by `make histories`;
// those of released versions are kept for ever.
func TestRecordedHistoriesReplay(t *testing.T) {
	t.Parallel()
	recorded, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(recorded), 14)
	for _, path := range recorded {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			replayer := worker.NewWorkflowReplayer()
			replayer.RegisterWorkflowWithOptions(workflows.FinalizeSession, workflow.RegisterOptions{Name: teardown.FinalizeSessionWorkflow})
			replayer.RegisterWorkflowWithOptions(workflows.FinalizeTask, workflow.RegisterOptions{Name: teardown.FinalizeTaskWorkflow})
			replayer.RegisterWorkflowWithOptions(workflows.StartSession, workflow.RegisterOptions{Name: teardown.StartSessionWorkflow})
			replayer.RegisterWorkflowWithOptions(workflows.UnarchiveTask, workflow.RegisterOptions{Name: teardown.UnarchiveTaskWorkflow})
			replayer.RegisterWorkflowWithOptions(workflows.Converge, workflow.RegisterOptions{Name: teardown.ConvergeWorkflow})
			require.NoError(t, replayer.ReplayWorkflowHistoryFromJSONFile(nil, path))
		})
	}
}
