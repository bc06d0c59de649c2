package test

import (
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"unwind/internal/store"
	"unwind/teardown"
)

// inTask adds the agent as a session of a task of its own, and answers its id.
func (i *installation) inTask(a *agent) (task string) {
	i.t.Helper()
	task = "task-" + a.id
	a.manifest.TaskID = task
	i.add(a)
	return task
}

// successor is a later session with the same worktrees, and nothing else.
func (a *agent) successor(id string) *agent {
	later := *a
	later.id = a.id + id
	later.manifest.ID, later.manifest.Runtimes, later.manifest.Resources = later.id, nil, nil
	return &later
}

func (i *installation) taskFinalization(s *store.Store, task string) store.Finalization {
	i.t.Helper()
	detail, err := s.TaskDetail(i.t.Context(), task)
	require.NoError(i.t, err)
	return detail.Finalization()
}

func (i *installation) untilTaskFinished(s *store.Store, task string) {
	i.t.Helper()
	i.until("the task finished", func() bool { return i.taskFinalization(s, task).FinishedAt != nil })
}

func TestTaskKeepsAWorktreeBeyondItsSessions(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	task := i.inTask(a)
	write(t, filepath.Join(a.nested, "draft.md"), "mine\n")
	result := i.result(0, "terminate", a.id, "--wait")
	for _, w := range result.Worktrees {
		require.Equal(t, teardown.DispositionRetained, w.Disposition)
	}
	require.NoFileExists(t, a.secret, "what is the session's alone goes")
	require.Contains(t, i.git(a.library, "worktree", "list"), a.nested)

	later := a.successor("-later")
	i.add(later)
	require.FileExists(t, filepath.Join(a.nested, "draft.md"))
	i.result(0, "terminate", later.id, "--wait")
	require.FileExists(t, filepath.Join(a.nested, "draft.md"), "also when it was the last session")

	archived := i.result(3, "task", "archive", task, "--wait")
	require.Equal(t, teardown.OutcomePreserved, archived.Outcome)
	require.Equal(t, task, archived.TaskID)
	require.Len(t, archived.Sessions, 2)
	require.FileExists(t, filepath.Join(a.nested, "draft.md"))
	require.Contains(t, i.must("task", "show", task).out, "draft.md")

	saved := i.result(0, "task", "retry", task, "--save-changes", "--wait")
	require.Equal(t, teardown.OutcomeFinalized, saved.Outcome)
	i.requireReleased(a)
	ref := ""
	for _, w := range saved.Worktrees {
		if w.Path == a.nested {
			ref = w.SavedRef
		}
	}
	require.True(t, strings.HasPrefix(ref, "refs/unwind/saved/task="+task+"/1/"), ref)
	i.must("recover", ref, "--repository", a.library)
	require.FileExists(t, filepath.Join(a.nested, "draft.md"))
}

func TestArchiveEndsTheLiveSessionsOfATask(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	task := i.inTask(a)
	result := i.result(0, "task", "archive", task, "--wait")
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	require.Equal(t, a.id, result.Sessions[0].SessionID)
	require.Equal(t, teardown.OutcomeFinalized, result.Sessions[0].Outcome)
	i.requireReleased(a)
	late := i.unwindWith(`{"id":"`+a.id+`-late","task_id":"`+task+`"}`, "session", "add", "-f", "-")
	require.Equal(t, 65, late.code)
	require.Contains(t, late.errors, "Task "+task+" is archived")
	require.Contains(t, i.must("task", "list").out, task+"\tarchived")
	require.Equal(t, teardown.OutcomeFinalized, i.result(0, "task", "archive", task, "--wait").Outcome, "again is a no-op")
	i.until("the task's runs found as docs/tasks.md says", func() bool {
		return slices.Equal(i.found(`UnwindTask = "`+task+`"`), []string{teardown.FinalizeSessionID(a.id), teardown.FinalizeTaskID(task)})
	})
}

// found lists the ids of the workflows that a query in Temporal's web UI finds.
func (i *installation) found(query string) (ids []string) {
	i.t.Helper()
	page, err := i.client.ListWorkflow(i.t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: query})
	require.NoError(i.t, err)
	for _, run := range page.Executions {
		ids = append(ids, run.Execution.WorkflowId)
	}
	slices.Sort(ids)
	return ids
}

func TestWhatSomebodyElseHoldsStaysWithThem(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a, other := i.agent("s1"), i.agent("s2")
	task := i.inTask(a)
	i.add(other)
	s := i.store()
	w, _, found, err := s.WorktreeAt(t.Context(), i.host, a.worktree)
	require.NoError(t, err)
	require.True(t, found)
	require.NoError(t, s.Lease(t.Context(), store.Holder{Kind: store.HolderSession, ID: other.id, Generation: 1}, w.ID))
	result := i.result(0, "task", "archive", task, "--wait")
	for _, wt := range result.Worktrees {
		if wt.Path == a.worktree {
			require.Equal(t, teardown.DispositionRetained, wt.Disposition)
		}
	}
	require.DirExists(t, a.worktree)
	require.NoDirExists(t, a.nested)
	i.result(0, "terminate", other.id, "--wait")
	i.requireReleased(a)
}

func TestTaskWaitsForASessionThatIsHeldAndGoesOnByItself(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	task := i.inTask(a)
	i.must("hold", a.id)
	result := i.result(75, "task", "archive", task, "--wait")
	require.Equal(t, teardown.OutcomeDeferred, result.Outcome)
	require.DirExists(t, a.worktree)
	i.must("hold", a.id, "--release")
	i.untilTaskFinished(i.store(), task)
	i.requireReleased(a)
}

// The session waits for a person in a run of its own when the task is archived;
// the retry of the task reaches that run.
func TestRetryOfATaskReachesItsParkedSession(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	a.manifest.Resources = append(a.manifest.Resources, teardown.ResourceSpec{Kind: teardown.ResourceFile, Path: filepath.Join(i.dir, a.id, "note")})
	task := i.inTask(a)
	note := filepath.Join(i.dir, a.id, "note")
	write(t, filepath.Join(note, "something-else"), "a directory is where a file was\n")
	i.unwind("terminate", a.id, "--wait")
	s := i.store()
	i.until("the session parked", func() bool { return finalization(t, s, a.id).ParkedAt != nil })
	result := i.unwind("task", "archive", task, "--wait", "--json")
	require.NotZero(t, result.code)
	require.Contains(t, []string{teardown.ReasonSessionPreserved, teardown.ReasonSessionFailed}, i.taskFinalization(s, task).ParkedReason)
	require.Contains(t, i.taskFinalization(s, task).FailureMessage, a.id)
	require.DirExists(t, a.worktree)
	require.NoError(t, os.RemoveAll(note))
	require.Equal(t, teardown.OutcomeFinalized, i.result(0, "task", "retry", task, "--wait").Outcome)
	i.requireReleased(a)
}

func TestWorkerKilledAtEachStepOfATaskThenRestarted(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"begun", "task sessions terminated", "released", "moved aside", "removal recorded", "finished"} {
		t.Run(point, func(t *testing.T) {
			onBothDatabases(t, func(t *testing.T, i *installation) {
				a := i.agent("s1")
				task := i.inTask(a)
				killed := i.workerThatDiesAt(point)
				i.must("task", "archive", task)
				killed.awaitDeath(t)
				i.worker()
				s := i.store()
				i.untilTaskFinished(s, task)
				i.requireReleased(a)
				require.Equal(t, int64(1), i.taskFinalization(s, task).Round, "a crash is no retry")
			})
		})
	}
}

func TestTemporalsDataLostWhileATaskIsFinalized(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		i.takeOwnServer(t)
		a := i.agent("s1")
		task := i.inTask(a)
		killed := i.workerThatDiesAt("released")
		i.must("task", "archive", task)
		killed.awaitDeath(t)
		require.NoError(t, i.server.LoseData())
		require.NoError(t, i.server.Resume())
		i.worker()
		i.untilTaskFinished(i.store(), task)
		i.requireReleased(a)
	})
}

// The rows of the task and its session are deleted by somebody else's SQL: what
// the task has still to give back, it gives back.
func TestTaskIsFinalizedAlthoughItsRowIsGone(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	task := i.inTask(a)
	write(t, filepath.Join(a.nested, "draft.md"), "mine\n")
	i.result(3, "task", "archive", task, "--wait")
	db, err := sql.Open("sqlite", strings.TrimPrefix(i.database, "sqlite://"))
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	for _, statement := range []string{"PRAGMA busy_timeout = 20000", "UPDATE sessions SET task_id = NULL WHERE task_id = '" + task + "'", "DELETE FROM tasks WHERE id = '" + task + "'"} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	require.NoError(t, i.client.TerminateWorkflow(t.Context(), teardown.FinalizeTaskID(task), "", "lost"))
	i.git(a.nested, "add", ".")
	i.git(a.nested, "commit", "-q", "-m", "keep it")
	i.result(0, "task", "retry", task, "--wait")
	i.requireReleased(a)
}

func TestDeletedTaskIsForgottenAndItsFactsAreNot(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	task := "task-" + a.id
	listed, err := json.Marshal(map[string]any{"worktrees": a.manifest.Worktrees})
	require.NoError(t, err)
	added := i.unwindWith(string(listed), "task", "add", task, "-f", "-")
	require.Equal(t, 0, added.code, added.errors)
	require.Equal(t, 64, i.unwind("task", "delete", task).code, "without a terminal it needs --yes")
	// Nothing runs in its worktree but what the test has started.
	i.killAgent(a)
	result := i.result(0, "task", "delete", task, "--yes", "--wait")
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	require.NoDirExists(t, a.worktree)
	require.NotContains(t, i.must("task", "list").out, task)
	require.Contains(t, i.must("task", "show", task).out, a.worktree)
	require.Contains(t, i.git(a.repository, "branch", "--list", "agent/*"), "agent/"+a.id, "a branch is never deleted")
	require.Equal(t, 65, i.unwind("task", "archive", task).code)
}

func TestCancelledTaskGoesOnWithRetry(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	task := i.inTask(a)
	write(t, filepath.Join(a.nested, "draft.md"), "mine\n")
	i.result(3, "task", "archive", task, "--wait")
	require.NoError(t, i.client.CancelWorkflow(t.Context(), teardown.FinalizeTaskID(task), ""))
	i.until("the workflow cancelled", func() bool {
		described, err := i.client.DescribeWorkflow(t.Context(), teardown.FinalizeTaskID(task), "")
		require.NoError(t, err)
		return described.Status == enums.WORKFLOW_EXECUTION_STATUS_CANCELED
	})
	require.NoError(t, os.Remove(filepath.Join(a.nested, "draft.md")))
	i.result(0, "task", "retry", task, "--wait")
	i.requireReleased(a)
}

func TestUnarchivedTaskHasItsWorktreesAgain(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	task := i.inTask(a)
	write(t, filepath.Join(a.worktree, "done.md"), "done\n")
	i.git(a.worktree, "add", ".")
	i.git(a.worktree, "commit", "-q", "-m", "done")
	i.result(0, "task", "archive", task, "--wait")
	i.requireReleased(a)

	var again teardown.UnarchiveTaskResult
	require.NoError(t, json.Unmarshal([]byte(i.must("task", "unarchive", task, "--json").out), &again))
	require.Equal(t, int64(2), again.Generation)
	require.Len(t, again.Worktrees, 2)
	require.FileExists(t, filepath.Join(a.worktree, "done.md"))
	require.Equal(t, "agent/"+a.id, i.git(a.worktree, "branch", "--show-current"))
	require.FileExists(t, filepath.Join(a.nested, "README.md"))
	i.must("task", "unarchive", task) // again is a no-op

	later := a.successor("-later")
	i.add(later)
	write(t, filepath.Join(a.nested, "draft.md"), "mine\n")
	i.result(0, "terminate", later.id, "--wait")
	i.result(3, "task", "archive", task, "--wait")
	// What was kept is the task's again, as it is.
	i.must("task", "unarchive", task)
	require.FileExists(t, filepath.Join(a.nested, "draft.md"))
	i.until("the finalization that waited ended", func() bool {
		described, err := i.client.DescribeWorkflow(t.Context(), teardown.FinalizeTaskID(task), "")
		require.NoError(t, err)
		return described.Status == enums.WORKFLOW_EXECUTION_STATUS_COMPLETED
	})
	require.NoError(t, os.Remove(filepath.Join(a.nested, "draft.md")))
	i.result(0, "task", "delete", task, "--yes", "--wait")
	i.requireReleased(a)
	require.Equal(t, 65, i.unwind("task", "unarchive", task).code)
}

// A worktree that was kept has to be at its path: one that somebody has removed is
// not silently held.
func TestUnarchiveTellsThatAKeptWorktreeIsGone(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	task := i.inTask(a)
	write(t, filepath.Join(a.nested, "draft.md"), "mine\n")
	i.result(3, "task", "archive", task, "--wait")
	require.NoError(t, os.RemoveAll(a.nested))
	for _, again := range []string{"archived", "active"} {
		failed := i.unwind("task", "unarchive", task, "--json")
		require.Equal(t, 4, failed.code, "%s: %s%s", again, failed.out, failed.errors)
		var result teardown.UnarchiveTaskResult
		require.NoError(t, json.Unmarshal([]byte(failed.out), &result))
		require.Equal(t, int64(2), result.Generation)
		require.Len(t, result.Worktrees, 2)
		require.True(t, result.Worktrees[0].Held, "one stops no other")
		require.False(t, result.Worktrees[1].Held)
		require.Equal(t, teardown.CodeWorktreeMissing, result.Worktrees[1].Failure.Code)
		require.NoDirExists(t, a.nested)
	}
	// What the sentence says to do.
	i.result(0, "task", "archive", task, "--wait")
	i.must("task", "unarchive", task)
	require.FileExists(t, filepath.Join(a.nested, "README.md"))
}

func TestWorkerKilledWhileItUnarchives(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"task reopened", "worktree made"} {
		t.Run(point, func(t *testing.T) {
			onBothDatabases(t, func(t *testing.T, i *installation) {
				first := i.worker()
				a := i.agent("s1")
				task := i.inTask(a)
				i.result(0, "task", "archive", task, "--wait")
				first.stop()
				killed := i.workerThatDiesAt(point)
				done := make(chan answer, 1)
				go func() { done <- i.unwind("task", "unarchive", task, "--json") }()
				killed.awaitDeath(t)
				i.worker()
				answered := <-done
				require.Equal(t, 0, answered.code, answered.out+answered.errors)
				require.FileExists(t, filepath.Join(a.worktree, "README.md"))
				require.FileExists(t, filepath.Join(a.nested, "README.md"))
				require.Contains(t, i.must("task", "show", task).out, "active")
			})
		})
	}
}

func TestWorktreeWhoseBranchIsGoneIsListed(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	task := i.inTask(a)
	i.result(0, "task", "archive", task, "--wait")
	i.git(a.library, "branch", "-D", "agent/"+a.id)
	failed := i.unwind("task", "unarchive", task, "--json")
	require.Equal(t, 4, failed.code)
	require.Contains(t, failed.out, `"branch_missing"`)
	require.FileExists(t, filepath.Join(a.worktree, "README.md"), "one stops no other")
	i.git(a.library, "branch", "agent/"+a.id)
	i.must("task", "unarchive", task)
	require.FileExists(t, filepath.Join(a.nested, "README.md"))
	i.result(0, "task", "archive", task, "--wait")
	i.requireReleased(a)
}
