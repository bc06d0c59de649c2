package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

func TestTaskOfASession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	wt := b.worktree(app, "wt")
	b.add(teardown.Manifest{ID: "s1", TaskID: "t1", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: wt}}})
	shown := object[taskReport](t, b.must("task", "show", "t1", "--json"))
	require.Equal(t, store.TaskStateActive, shown.State)
	require.Equal(t, wt, shown.Worktrees[0].Path)
	require.True(t, shown.Worktrees[0].Held)
	require.Equal(t, 1, shown.SessionsLive)

	// A later session finds what the task holds.
	b.write(filepath.Join(wt, "draft.md"), "mine\n")
	b.add(teardown.Manifest{ID: "s2", TaskID: "t1", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: wt}}})
	detail, err := b.store().SessionDetail(t.Context(), "s2")
	require.NoError(t, err)
	require.Equal(t, shown.Worktrees[0].ID, detail.Worktrees[0].Worktree.ID)

	other := b.feed(b.manifest(teardown.Manifest{ID: "s3", TaskID: "t2", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: wt}}}),
		"session", "add", "-f", "-")
	require.Equal(t, exitRefused, other.code)
	require.Contains(t, b.must("task", "list"), "t1\tactive\t\t1\t2\t2\t1")
}

func TestSessionInsideAWorktreeThatItsTaskHolds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app, lib := b.repository("app"), b.repository("lib")
	wt := b.worktree(app, "wt")
	b.add(teardown.Manifest{ID: "s1", TaskID: "t1", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: wt}}})
	nested := b.worktree(lib, "wt/lib")
	b.add(teardown.Manifest{ID: "s2", TaskID: "t1", Worktrees: []teardown.WorktreeSpec{
		{Repository: app, Path: wt}, {Repository: lib, Path: nested, Parent: wt}}})
	detail, err := b.store().SessionDetail(t.Context(), "s2")
	require.NoError(t, err)
	require.Len(t, detail.Worktrees, 2)
	require.Equal(t, detail.Worktrees[0].Worktree.ID, detail.Worktrees[1].Worktree.ParentID)
}

func TestWorktreeThatWasReplacedIsNotShared(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	wt := b.worktree(app, "wt")
	b.add(teardown.Manifest{ID: "s1", TaskID: "t1", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: wt}}})
	b.git(app, "worktree", "remove", "--force", wt)
	b.git(app, "worktree", "add", "-q", "-f", "-B", "again", wt)
	r := b.feed(b.manifest(teardown.Manifest{ID: "s2", TaskID: "t1", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: wt}}}),
		"session", "add", "-f", "-")
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.stderr, "another one than task t1 holds there")
}

func TestTaskAdd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, "Opened task t1.\n", b.must("task", "add", "t1"))
	app := b.repository("app")
	list, err := json.Marshal(map[string]any{"worktrees": []teardown.WorktreeSpec{{Repository: app, Path: b.worktree(app, "wt")}}})
	require.NoError(t, err)
	require.Equal(t, "Task t1 holds 1 worktree more.\n", b.feed(string(list), "task", "add", "t1", "-f", "-").stdout)
	again := object[addedTask](t, b.feed(string(list), "task", "add", "t1", "-f", "-", "--json").stdout)
	require.Equal(t, addedTask{TaskID: "t1", Generation: 1}, again)
	require.Equal(t, exitUsage, b.feed(`{"worktree":[]}`, "task", "add", "t1", "-f", "-").code)
	require.Equal(t, exitUsage, b.run("task", "add").code)
	require.Equal(t, exitUsage, b.run("task", "add", "a/b").code)
}

func TestTaskIsClosedWhileTemporalIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must("task", "add", "t1")
	done := object[closedTask](t, b.must("task", "archive", "t1", "--json"))
	require.True(t, done.Changed)
	require.False(t, done.Started)
	require.Equal(t, store.TaskStateArchiving, done.State)
	require.Contains(t, done.Message, "when Temporal is back")
	require.Equal(t, exitRetryable, b.run("task", "archive", "t1", "--wait").code)
	require.Contains(t, b.must("task", "retry", "t1"), "is recorded (round 1) and will begin when Temporal is back")
	r := b.feed(b.manifest(teardown.Manifest{ID: "s1", TaskID: "t1"}), "session", "add", "-f", "-")
	require.Equal(t, exitRefused, r.code)
	deleted := object[closedTask](t, b.must("task", "delete", "t1", "--yes", "--json"))
	require.Equal(t, store.TaskStateDeleting, deleted.State)
	require.Equal(t, exitRefused, b.run("task", "archive", "t1").code)
}

func TestTaskRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must("task", "add", "t1")
	for _, command := range []string{"show", "archive", "retry"} {
		r := b.run("task", command, "nobody", "--json")
		require.Equal(t, exitRefused, r.code, command)
		require.Contains(t, r.stdout, `"task_not_found"`)
		require.Equal(t, exitUsage, b.run("task", command).code, command)
	}
	require.Equal(t, exitRefused, b.run("task", "delete", "nobody", "--yes").code)
	require.Contains(t, b.run("task", "retry", "t1", "--json").stdout, `"task_active"`)
	r := b.run("task", "delete", "t1")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "give --yes if you are sure")
}

func TestTaskDeleteAsksOnATerminal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	b.add(teardown.Manifest{ID: "s1", TaskID: "t1", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: b.worktree(app, "wt")}}})
	for answer, want := range map[string]string{"n\n": "Nothing was deleted.", "": "Nothing was deleted."} {
		p, _, stderr := b.program(answer)
		p.inTerminal = true
		require.Zero(t, p.execute(t.Context(), []string{"task", "delete", "t1"}))
		require.Contains(t, stderr.String(), want)
		require.Contains(t, stderr.String(), "end 1 live session and give back 1 worktree? Branches stay")
	}
	require.Contains(t, b.must("task", "list"), "t1\tactive")
	p, _, _ := b.program("yes\n")
	p.inTerminal = true
	require.Zero(t, p.execute(t.Context(), []string{"task", "delete", "t1"}))
	require.Contains(t, b.must("task", "list"), "t1\tdeleting")
}

func TestTaskIDsAreCompleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must("task", "add", "t1")
	out := b.must("__complete", "task", "archive", "")
	require.True(t, strings.HasPrefix(out, "t1\tactive\n"), out)
}

// parkedTask is a task that waits, and the id of the session that was in it.
func parkedTask(t *testing.T, b *bench, task, reason string) (session string) {
	t.Helper()
	session = "s-" + task
	b.add(teardown.Manifest{ID: session, TaskID: task})
	b.must("task", "archive", task)
	s := b.store()
	begun, err := s.Begin(t.Context(), teardown.BeginInput{TaskID: task})
	require.NoError(t, err)
	_, err = s.TerminateTaskSessions(t.Context(), teardown.TaskSessionsInput{Step: begun.Step})
	require.NoError(t, err)
	_, err = s.Park(t.Context(), teardown.ParkInput{Step: begun.Step, Reason: reason})
	require.NoError(t, err)
	return session
}

func TestParkedTasksAreListedAndRetriedWithTheSessions(t *testing.T) {
	t.Parallel()
	b, _ := parked(t)
	session := parkedTask(t, b, "t1", teardown.ReasonSessionFailed)
	b.must("task", "add", "t2")
	ids := func(args ...string) (ids []string) {
		text := b.must(append([]string{"task", "list", "--json"}, args...)...)
		if text == "" {
			return nil
		}
		for _, task := range objects[taskLine](t, text) {
			ids = append(ids, task.TaskID)
		}
		return ids
	}
	require.Equal(t, []string{"t1", "t2"}, ids())
	require.Equal(t, []string{"t1"}, ids("--state", "parked"))
	require.Equal(t, []string{"t1"}, ids("--reason", "session_failed"))
	require.Equal(t, []string{"t2"}, ids("--state", "active"))
	require.Empty(t, ids("--reason", "preserved"))
	for flag, value := range map[string]string{"--state": "gone", "--reason": "runtime_refused"} {
		require.Equal(t, exitUsage, b.run("task", "list", flag, value).code)
	}
	require.Equal(t, session, object[summaryReport](t, b.must("list", "--task", "t1", "--json")).SessionID)
	require.Equal(t, exitUsage, b.run("list", "--task", "a/b").code)

	require.NotContains(t, b.must("retry", "--all", "--host", "h1", "--json"), `"t1"`, "a task has no host")
	all := strings.Split(strings.TrimSpace(b.must("retry", "--all", "--json")), "\n")
	require.Len(t, all, 1, "the session was retried before")
	done := object[retriedTask](t, all[0])
	require.Equal(t, "t1", done.TaskID)
	require.True(t, done.Recorded)
	require.Equal(t, int64(2), done.Round)
	require.Equal(t, "Nothing is parked; nothing to retry.\n", b.must("retry", "--all", "--reason", "session_failed"))
}
