package test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
	"unwind/workflows"
)

var record = flag.Bool("record", false, "write the histories to workflows/testdata")

// TestHistoriesReplay replays what a real server recorded. With -record it also
// keeps the histories for the tests of later versions.
func TestHistoriesReplay(t *testing.T) {
	t.Parallel()
	stories := map[string]func(*testing.T, *installation, *agent){
		"clean": func(_ *testing.T, i *installation, a *agent) {
			i.worker()
			i.result(0, "terminate", a.id, "--wait")
		},
		"preserved-then-retried": func(t *testing.T, i *installation, a *agent) {
			i.worker()
			draft := filepath.Join(a.nested, "draft.md")
			write(t, draft, "mine\n")
			i.result(3, "terminate", a.id, "--wait")
			require.NoError(t, os.Remove(draft))
			i.result(0, "retry", a.id, "--wait")
		},
		"attempts-used-up-then-retried": func(_ *testing.T, i *installation, a *agent) {
			i.env = []string{"UNWIND_RETRY_ATTEMPTS=2"}
			i.worker()
			leave := i.standIn(a.nested)
			i.result(4, "terminate", a.id, "--wait")
			leave()
			i.result(0, "retry", a.id, "--wait")
		},
		"preserved-then-restored": func(t *testing.T, i *installation, a *agent) {
			i.worker()
			write(t, filepath.Join(a.nested, "draft.md"), "mine\n")
			i.result(3, "terminate", a.id, "--wait")
			i.restore(a)
			i.untilRunEnded(a, teardown.OutcomeRestored)
		},
		"cancelled-while-parked": func(t *testing.T, i *installation, a *agent) {
			i.worker()
			write(t, filepath.Join(a.nested, "draft.md"), "mine\n")
			i.result(3, "terminate", a.id, "--wait")
			require.NoError(t, i.client.CancelWorkflow(t.Context(), teardown.FinalizeSessionID(a.id), ""))
			i.until("the workflow cancelled", func() bool { return i.workflowStatus(a.id) == enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED })
		},
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := install(t)
			a := i.agent("s1")
			i.add(a)
			story(t, i, a)
			history := i.history(teardown.FinalizeSessionID(a.id))
			replay(t, name, history)
			if name == "clean" {
				require.LessOrEqual(t, len(history.Events), 50, "one runtime and two worktrees")
			}
		})
	}
}

// TestTaskHistoriesReplay is the same for tasks.
func TestTaskHistoriesReplay(t *testing.T) {
	t.Parallel()
	stories := map[string]func(*testing.T, *installation, *agent, string){
		"task-clean": func(_ *testing.T, i *installation, _ *agent, task string) {
			i.result(0, "task", "archive", task, "--wait")
		},
		"task-preserved-then-retried": func(t *testing.T, i *installation, a *agent, task string) {
			draft := filepath.Join(a.nested, "draft.md")
			write(t, draft, "mine\n")
			i.result(3, "task", "archive", task, "--wait")
			require.NoError(t, os.Remove(draft))
			i.result(0, "task", "retry", task, "--wait")
		},
		"task-waits-for-a-session": func(_ *testing.T, i *installation, a *agent, task string) {
			i.must("hold", a.id)
			i.result(75, "task", "archive", task, "--wait")
			i.must("hold", a.id, "--release")
			i.untilFinished(i.store(), a.id)
			// Reconcile may have recorded this retry before.
			i.unwind("task", "retry", task)
			i.untilTaskFinished(i.store(), task)
		},
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := install(t)
			i.worker()
			a := i.agent("s1")
			task := i.inTask(a)
			story(t, i, a, task)
			replay(t, name, i.history(teardown.FinalizeTaskID(task)))
		})
	}
}

// TestStartHistoriesReplay is the same for starts.
func TestStartHistoriesReplay(t *testing.T) {
	t.Parallel()
	for name, story := range map[string]func(i *installation, s *starting){
		"started": func(i *installation, s *starting) {
			i.start(0, s)
			i.result(0, "terminate", s.id, "--wait")
		},
		"start-failed": func(i *installation, s *starting) {
			s.in.Resources[2].From = filepath.Join(i.dir, "nosuch")
			i.start(64, s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := install(t)
			i.worker()
			s := i.toStart("s1")
			story(i, s)
			replay(t, name, i.history(teardown.StartSessionID(s.id)))
		})
	}
}

// TestUnarchiveHistoriesReplay is the same for tasks that are opened again.
func TestUnarchiveHistoriesReplay(t *testing.T) {
	t.Parallel()
	for name, story := range map[string]func(i *installation, a *agent, task string){
		"unarchived": func(i *installation, _ *agent, task string) { i.must("task", "unarchive", task) },
		"unarchived-in-part": func(i *installation, a *agent, task string) {
			i.git(a.library, "branch", "-D", "agent/"+a.id)
			require.Equal(i.t, 4, i.unwind("task", "unarchive", task).code)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := install(t)
			i.worker()
			a := i.agent("s1")
			task := i.inTask(a)
			i.result(0, "task", "archive", task, "--wait")
			story(i, a, task)
			replay(t, name, i.history(teardown.UnarchiveTaskID(task)))
		})
	}
}

// TestConvergeHistoriesReplay is the same for what no finalization finishes.
func TestConvergeHistoriesReplay(t *testing.T) {
	t.Parallel()
	i := install(t)
	a := i.agent("s1")
	i.add(a)
	nested := i.worktreesOf(i.store(), a.id)[1]
	i.vanish(a.id)
	i.worker()
	i.until("the worktrees gone", func() bool { return !exists(a.worktree) })
	for name, id := range map[string]string{
		"converged-session":  teardown.ConvergeID(teardown.ConvergeInput{SessionID: a.id}),
		"converged-worktree": teardown.ConvergeID(teardown.ConvergeInput{WorktreeID: nested.ID}),
	} {
		require.NoError(t, i.client.GetWorkflow(t.Context(), id, "").Get(t.Context(), nil))
		replay(t, name, i.history(id))
	}
}

// replay replays a history, and keeps it with -record.
func replay(t *testing.T, name string, history *historypb.History) {
	t.Helper()
	replayer := sdkworker.NewWorkflowReplayer()
	replayer.RegisterWorkflowWithOptions(workflows.FinalizeSession, workflow.RegisterOptions{Name: teardown.FinalizeSessionWorkflow})
	replayer.RegisterWorkflowWithOptions(workflows.FinalizeTask, workflow.RegisterOptions{Name: teardown.FinalizeTaskWorkflow})
	replayer.RegisterWorkflowWithOptions(workflows.StartSession, workflow.RegisterOptions{Name: teardown.StartSessionWorkflow})
	replayer.RegisterWorkflowWithOptions(workflows.UnarchiveTask, workflow.RegisterOptions{Name: teardown.UnarchiveTaskWorkflow})
	replayer.RegisterWorkflowWithOptions(workflows.Converge, workflow.RegisterOptions{Name: teardown.ConvergeWorkflow})
	require.NoError(t, replayer.ReplayWorkflowHistory(nil, history))
	if *record {
		text, err := temporalproto.CustomJSONMarshalOptions{Indent: "  "}.Marshal(history)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join("..", "workflows", "testdata", name+".json"), text, 0o600))
	}
}

func (i *installation) history(workflowID string) *historypb.History {
	i.t.Helper()
	history := &historypb.History{}
	events := i.client.GetWorkflowHistory(i.t.Context(), workflowID, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(i.t, err)
		history.Events = append(history.Events, event)
	}
	return history
}
