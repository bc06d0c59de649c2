package store_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
	"unwind/test/interleave"
)

// inTask registers a live session of a task.
func (b *bundle) inTask(task, id string, paths ...string) {
	b.t.Helper()
	n := b.manifest(id, paths...)
	n.TaskID = task
	b.add(n)
}

func (b *bundle) close(task, state string) {
	b.t.Helper()
	_, _, err := b.CloseTask(ctx, task, state)
	require.NoError(b.t, err)
}

func (b *bundle) beginTask(task string) teardown.Step {
	b.t.Helper()
	begun, err := b.Begin(ctx, teardown.BeginInput{TaskID: task, WorkflowID: teardown.FinalizeTaskID(task)})
	require.NoError(b.t, err)
	require.Empty(b.t, begun.Outcome)
	return begun.Step
}

// archived closes and begins.
func (b *bundle) archived(task string) teardown.Step {
	b.t.Helper()
	b.close(task, store.TaskArchived)
	return b.beginTask(task)
}

// finalized runs a session without runtimes through its finalization.
func (b *bundle) finalized(id string) {
	b.t.Helper()
	step := b.begin(id)
	b.release(step)
	b.finish(step)
}

func (b *bundle) finish(step teardown.Step) teardown.Result {
	b.t.Helper()
	done, err := b.Finish(ctx, step)
	require.NoError(b.t, err)
	require.False(b.t, done.Superseded)
	return done.Result
}

func (b *bundle) sessionsOf(step teardown.Step) []string {
	b.t.Helper()
	out, err := b.TerminateTaskSessions(ctx, teardown.TaskSessionsInput{Step: step})
	require.NoError(b.t, err)
	require.False(b.t, out.Superseded)
	ids := []string{}
	for _, ref := range out.Sessions {
		ids = append(ids, ref.SessionID)
	}
	return ids
}

func (b *bundle) taskDisposition(step teardown.Step, path string) teardown.Disposition {
	b.t.Helper()
	result, err := b.TaskResult(ctx, step.TaskID, step.Generation)
	require.NoError(b.t, err)
	for _, w := range result.Worktrees {
		if w.ID == idOf(path) {
			return w.Disposition
		}
	}
	return ""
}

func recreated(plan teardown.UnarchivePlan) []string {
	paths := []string{}
	for _, r := range plan.Recreations {
		paths = append(paths, r.Worktree.Path)
	}
	return paths
}

func (b *bundle) dueTasks() []string {
	b.t.Helper()
	due, err := b.DueTasks(ctx, "", 100)
	require.NoError(b.t, err)
	require.Empty(b.t, due.Unreadable)
	return tasksOf(due)
}

func (b *bundle) wakeableTasks() []string {
	b.t.Helper()
	due, err := b.WakeableTasks(ctx, host, "", 100)
	require.NoError(b.t, err)
	require.Empty(b.t, due.Unreadable)
	return tasksOf(due)
}

func (b *bundle) unmade() ([]store.Due, error) {
	page, err := b.UnmadeTasks(ctx, "", 10)
	return page.Rows, err
}

func tasksOf(due store.Page[store.Due]) []string {
	ids := []string{}
	for _, d := range due.Rows {
		ids = append(ids, d.TaskID)
	}
	return ids
}

// archivedAndKept is task t1, archived and parked on the worktree /wt/s1 of its
// session s1.
func (b *bundle) archivedAndKept() teardown.Step {
	b.t.Helper()
	b.inTask("t1", "s1", "/wt/s1")
	step := b.archived("t1")
	b.sessionsOf(step)
	b.finalized("s1")
	b.release(step)
	b.preserve(step, "/wt/s1")
	b.park(step, teardown.ReasonPreserved)
	return step
}

var taskPromises = []promise{
	{"a task holds the worktrees of its sessions, and keeps them when the last one is finalized", func(t *testing.T, b *bundle) {
		b.inTask("t1", "s1", "/wt/s1")
		b.terminate("s1")
		step := b.begin("s1")
		require.Empty(t, b.release(step))
		require.Equal(t, teardown.DispositionRetained, b.disposition(step, "/wt/s1"))
		b.finish(step)
		require.Equal(t, store.WorktreeActive, b.state("/wt/s1"))
	}},
	{"a later session of the task leases what the task holds", func(t *testing.T, b *bundle) {
		b.inTask("t1", "s1", "/wt/s1")
		b.terminate("s1")
		b.finalized("s1")
		later := b.manifest("s2")
		later.TaskID, later.Lease = "t1", []string{idOf("/wt/s1")}
		b.add(later)
		_, held, _, err := b.WorktreeAt(ctx, host, "/wt/s1")
		require.NoError(t, err)
		require.Len(t, held, 2)
		require.Equal(t, "s2", held[0].ID)
	}},
	{"what the task does not hold is no session's to share", func(t *testing.T, b *bundle) {
		b.session("other", "/wt/other")
		for _, task := range []string{"t1", ""} {
			n := b.manifest("s1")
			n.TaskID, n.Lease = task, []string{idOf("/wt/other")}
			_, err := b.AddSession(ctx, n)
			requireCode(t, teardown.CodeConflict, false, err)
		}
		_, err := b.Session(ctx, "s1")
		requireCode(t, teardown.CodeSessionNotFound, false, err)
	}},
	{"a task is added with worktrees of its own, again is a no-op", func(t *testing.T, b *bundle) {
		n := store.NewTask{ID: "t1", Host: host, Worktrees: b.manifest("", "/wt/t1").Worktrees}
		added, opened, err := b.AddTask(ctx, n)
		require.NoError(t, err)
		require.True(t, opened)
		require.Equal(t, int64(1), added.Generation)
		_, opened, err = b.AddTask(ctx, store.NewTask{ID: "t1", Host: host, Lease: []string{idOf("/wt/t1")}})
		require.NoError(t, err)
		require.False(t, opened)
		_, held, _, err := b.WorktreeAt(ctx, host, "/wt/t1")
		require.NoError(t, err)
		require.Len(t, held, 1)
		require.Equal(t, added.Holder(), held[0].Holder)
		_, _, err = b.AddTask(ctx, store.NewTask{ID: "a b", Host: host})
		requireCode(t, teardown.CodeInvalidID, false, err)
	}},
	{"the barrier is set once; nothing enters the task after it", func(t *testing.T, b *bundle) {
		b.inTask("t1", "s1", "/wt/s1")
		first, changed, err := b.CloseTask(ctx, "t1", store.TaskArchived)
		require.NoError(t, err)
		require.True(t, changed)
		require.NotNil(t, first.TerminatedAt)
		again, changed, err := b.CloseTask(ctx, "t1", store.TaskArchived)
		require.NoError(t, err)
		require.False(t, changed)
		require.Equal(t, first, again)
		late := b.manifest("s2", "/wt/s2")
		late.TaskID = "t1"
		_, err = b.AddSession(ctx, late)
		requireCode(t, teardown.CodeTaskClosed, false, err)
		requireCode(t, teardown.CodeTaskClosed, false, b.Lease(ctx, holder("s1"), idOf("/wt/s1")))
		_, _, err = b.AddTask(ctx, store.NewTask{ID: "t1", Host: host})
		requireCode(t, teardown.CodeTaskClosed, false, err)
	}},
	{"an archived task may be deleted, a deleted one not archived", func(t *testing.T, b *bundle) {
		b.inTask("t1", "s1")
		b.close("t1", store.TaskArchived)
		deleted, changed, err := b.CloseTask(ctx, "t1", store.TaskDeleted)
		require.NoError(t, err)
		require.True(t, changed)
		require.Equal(t, store.TaskDeleted, deleted.State)
		_, _, err = b.CloseTask(ctx, "t1", store.TaskArchived)
		requireCode(t, teardown.CodeConflict, false, err)
	}},
	{"an unknown task is task_not_found everywhere, an active one is task_active", func(t *testing.T, b *bundle) {
		_, _, err := b.CloseTask(ctx, "nobody", store.TaskArchived)
		requireCode(t, teardown.CodeTaskNotFound, false, err)
		_, err = b.TaskDetail(ctx, "nobody")
		requireCode(t, teardown.CodeTaskNotFound, false, err)
		_, err = b.Begin(ctx, teardown.BeginInput{TaskID: "nobody"})
		requireCode(t, teardown.CodeTaskNotFound, false, err)
		_, _, err = b.RetryTask(ctx, "nobody", store.RetryOptions{})
		requireCode(t, teardown.CodeTaskNotFound, false, err)
		_, err = b.TaskResult(ctx, "nobody", 1)
		requireCode(t, teardown.CodeTaskNotFound, false, err)
		b.inTask("t1", "s1")
		_, err = b.Begin(ctx, teardown.BeginInput{TaskID: "t1"})
		requireCode(t, teardown.CodeTaskActive, false, err)
		_, _, err = b.RetryTask(ctx, "t1", store.RetryOptions{})
		requireCode(t, teardown.CodeTaskActive, false, err)
	}},
	{"a finalization of a task terminates its live sessions and lists those to finalize", func(t *testing.T, b *bundle) {
		b.inTask("t1", "s1", "/wt/s1")
		b.inTask("t1", "s2")
		b.inTask("t2", "other")
		b.terminate("s2")
		b.finalized("s2")
		step := b.archived("t1")
		require.Equal(t, []string{"s1"}, b.sessionsOf(step))
		s1, err := b.Session(ctx, "s1")
		require.NoError(t, err)
		require.NotNil(t, s1.TerminatedAt)
		require.Equal(t, "task t1", s1.TerminationSource)
		other, err := b.Session(ctx, "other")
		require.NoError(t, err)
		require.Nil(t, other.TerminatedAt)
		b.finalized("s1")
		require.Empty(t, b.sessionsOf(step))
	}},
	{"a task is not finished before its sessions are", func(t *testing.T, b *bundle) {
		b.inTask("t1", "s1")
		step := b.archived("t1")
		b.release(step)
		done, err := b.Finish(ctx, step)
		require.NoError(t, err)
		require.True(t, done.Superseded)
		b.sessionsOf(step)
		b.finalized("s1")
		result := b.finish(step)
		require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
		require.Equal(t, "t1", result.TaskID)
		require.Empty(t, result.SessionID)
		require.Equal(t, teardown.OutcomeFinalized, result.Sessions[0].Outcome)
	}},
	{"archiving removes what only the task holds, and nothing that somebody else holds", func(t *testing.T, b *bundle) {
		b.inTask("t1", "s1", "/wt/s1", "/wt/shared")
		b.session("s9")
		b.lease("s9", "/wt/shared")
		step := b.archived("t1")
		b.sessionsOf(step)
		b.finalized("s1")
		require.Equal(t, []string{idOf("/wt/s1")}, b.release(step))
		require.Equal(t, store.HolderOf(step), b.worktree("/wt/s1").Remover())
		require.Equal(t, teardown.DispositionRetained, b.taskDisposition(step, "/wt/shared"))
		b.remove(step, "/wt/s1")
		b.finish(step)
		require.Equal(t, store.WorktreeActive, b.state("/wt/shared"))
		require.Equal(t, teardown.DispositionRemoved, b.taskDisposition(step, "/wt/s1"))
	}},
	{"a task's worktree that is kept parks the task; its retry takes it up", func(t *testing.T, b *bundle) {
		step := b.archivedAndKept()
		begun, err := b.Begin(ctx, teardown.BeginInput{TaskID: "t1"})
		require.NoError(t, err)
		require.Equal(t, teardown.ReasonPreserved, begun.ParkedReason)
		require.Empty(t, b.dueTasks())
		round, recorded, err := b.RetryTask(ctx, "t1", store.RetryOptions{SaveChanges: true, By: "me"})
		require.NoError(t, err)
		require.True(t, recorded)
		require.Equal(t, []string{"t1"}, b.dueTasks())
		late, err := b.ReleaseLeases(ctx, step)
		require.NoError(t, err)
		require.True(t, late.Superseded)
		step.Round = round
		require.Equal(t, []string{idOf("/wt/s1")}, b.release(step))
		require.True(t, b.claim(step, "/wt/s1").SaveChanges)
	}},
	{"the retry of a task retries its parked sessions with what it asks for, and no live one", func(t *testing.T, b *bundle) {
		b.inTask("t1", "s1")
		b.inTask("t1", "s2")
		b.terminate("s1")
		first := b.begin("s1")
		b.park(first, teardown.ReasonRuntimeRefused)
		step := b.archived("t1")
		b.park(step, teardown.ReasonSessionFailed)
		_, _, err := b.RetryTask(ctx, "t1", store.RetryOptions{SaveChanges: true, RuntimeConfirmedGone: true})
		require.NoError(t, err)
		f := b.finalization(first)
		require.Nil(t, f.ParkedAt)
		require.Equal(t, int64(2), f.Round)
		require.True(t, f.SaveRequested)
		require.False(t, f.RuntimeConfirmedGone, "that is said of one session")
		s2, err := b.Session(ctx, "s2")
		require.NoError(t, err)
		require.Nil(t, s2.TerminatedAt, "it is terminated by the next round")
		step.Round = 2
		out, err := b.TerminateTaskSessions(ctx, teardown.TaskSessionsInput{Step: step})
		require.NoError(t, err)
		require.Equal(t, int64(2), out.Sessions[0].RetriedRound)
		require.Zero(t, out.Sessions[1].RetriedRound)
	}},
	{"a retry of a task touches no session of the same name", func(t *testing.T, b *bundle) {
		n := b.manifest("x")
		n.Runtimes = []store.NewRuntime{{ID: "rt", Handle: teardown.Runtime{Kind: teardown.KindTmux}}}
		b.add(n)
		b.terminate("x")
		session := b.begin("x")
		_, err := b.RuntimeRefused(ctx, session, "rt", teardown.RuntimeResult{Code: teardown.CodeRuntimeIdentity}, "not ours")
		require.NoError(t, err)
		b.inTask("x", "other")
		step := b.archived("x")
		b.park(step, teardown.ReasonCancelled)
		_, _, err = b.RetryTask(ctx, "x", store.RetryOptions{})
		require.NoError(t, err)
		rt, err := b.Runtime(ctx, "rt")
		require.NoError(t, err)
		require.Equal(t, teardown.RuntimeRefused, rt.Outcome)
		require.Equal(t, int64(1), b.finalization(session).Round)
	}},
	{"a task that waits for a session is woken when all are finalized", func(t *testing.T, b *bundle) {
		b.inTask("t1", "s1")
		step := b.archived("t1")
		b.sessionsOf(step)
		b.park(step, teardown.ReasonSessionPreserved)
		require.Empty(t, b.wakeableTasks())
		b.finalized("s1")
		require.Equal(t, []string{"t1"}, b.wakeableTasks())
	}},
	{"a task that waits for what it kept is woken when it keeps nothing any more", func(t *testing.T, b *bundle) {
		step := b.archivedAndKept()
		require.Empty(t, b.wakeableTasks())
		b.session("s9")
		b.lease("s9", "/wt/s1")
		require.Equal(t, []string{"t1"}, b.wakeableTasks())
		round, _, err := b.RetryTask(ctx, "t1", store.RetryOptions{IfParked: true})
		require.NoError(t, err)
		step.Round = round
		require.Empty(t, b.release(step))
		require.Equal(t, teardown.DispositionRetained, b.taskDisposition(step, "/wt/s1"))
		b.finish(step)
	}},
	{"a task that waits for a host is woken on the host of what is left", func(t *testing.T, b *bundle) {
		b.inTask("t1", "s1", "/wt/s1")
		step := b.archived("t1")
		b.sessionsOf(step)
		b.finalized("s1")
		b.release(step)
		b.park(step, teardown.ReasonHostUnreachable)
		require.Equal(t, []string{"t1"}, b.wakeableTasks())
		due, err := b.WakeableTasks(ctx, "elsewhere", "", 10)
		require.NoError(t, err)
		require.Empty(t, due.Rows)
	}},
	{"a row that cannot be read keeps no other task from being listed", func(t *testing.T, b *bundle) {
		if b.Dialect() == store.Postgres {
			return // it knows what a time and a number are
		}
		for _, id := range []string{"t1", "t2", "t3", "t4"} {
			b.inTask(id, "s-"+id, "/wt/"+id)
			step := b.archived(id)
			b.sessionsOf(step)
			b.finalized("s-" + id)
			b.release(step)
			b.preserve(step, "/wt/"+id)
			b.park(step, teardown.ReasonPreserved)
		}
		b.session("s9")
		b.lease("s9", "/wt/t4")
		b.exec("UPDATE leases SET bytes = 'many' WHERE holder_id = 't1'")
		b.exec("UPDATE worktrees SET updated_at = 'x' WHERE path = '/wt/t2'")
		b.exec("UPDATE finalizations SET parked_at = 'x' WHERE holder_id = 't3'")
		page, err := b.WakeableTasks(ctx, host, "", 10)
		require.NoError(t, err)
		require.Equal(t, []string{"t4"}, tasksOf(page))
		require.Len(t, page.Unreadable, 2)
		for i, id := range []string{"t1", "t2"} {
			require.Equal(t, id, page.Unreadable[i].ID)
			requireCode(t, teardown.CodeInternal, false, page.Unreadable[i].Err)
		}
		first, err := b.WakeableTasks(ctx, host, "", 1)
		require.NoError(t, err)
		require.Equal(t, "t1", first.Next, "a page of rows none of which is to be woken is not the last one")
		b.exec("UPDATE tasks SET generation = 'x' WHERE id = 't1'")
		b.exec("UPDATE finalizations SET parked_at = NULL")
		due, err := b.DueTasks(ctx, "", 10)
		require.NoError(t, err)
		require.Subset(t, tasksOf(due), []string{"t2", "t4"})
		require.Len(t, due.Unreadable, 1)
	}},
	{"a deleted task's row goes when it is finalized and no session refers to it; the facts stay", func(t *testing.T, b *bundle) {
		_, _, err := b.AddTask(ctx, store.NewTask{ID: "t1", Host: host, Worktrees: b.manifest("", "/wt/t1").Worktrees})
		require.NoError(t, err)
		b.close("t1", store.TaskDeleted)
		step := b.beginTask("t1")
		b.release(step)
		b.remove(step, "/wt/t1")
		b.finish(step)
		require.Empty(t, b.tasks())
		b.finish(step)
		detail, err := b.TaskDetail(ctx, "t1")
		require.NoError(t, err)
		require.Equal(t, store.TaskStateDeleted, detail.State)
		require.Len(t, detail.Worktrees, 1)
		_, changed, err := b.CloseTask(ctx, "t1", store.TaskDeleted)
		require.NoError(t, err)
		require.False(t, changed)
		again, opened, err := b.AddTask(ctx, store.NewTask{ID: "t1", Host: host})
		require.NoError(t, err)
		require.True(t, opened)
		require.Equal(t, int64(2), again.Generation, "the facts of the deleted one are not overwritten")
	}},
	{"a deleted task's row stays while sessions refer to it", func(t *testing.T, b *bundle) {
		b.inTask("t1", "s1")
		b.close("t1", store.TaskDeleted)
		step := b.beginTask("t1")
		b.sessionsOf(step)
		b.finalized("s1")
		b.release(step)
		b.finish(step)
		require.Equal(t, []string{"t1"}, b.tasks())
		b.exec("DELETE FROM sessions WHERE id = 's1'")
		b.close("t1", store.TaskDeleted)
		require.Empty(t, b.tasks())
	}},
	{"a task whose row is gone is finalized all the same, and its id not used before that", func(t *testing.T, b *bundle) {
		_, _, err := b.AddTask(ctx, store.NewTask{ID: "t1", Host: host, Worktrees: b.manifest("", "/wt/a", "/wt/b").Worktrees})
		require.NoError(t, err)
		b.exec("DELETE FROM tasks WHERE id = 't1'")
		require.Equal(t, []string{"t1"}, b.dueTasks(), "its leases are all that is left of it")
		_, _, err = b.AddTask(ctx, store.NewTask{ID: "t1", Host: host})
		requireCode(t, teardown.CodeTaskClosed, false, err)
		step := b.beginTask("t1")
		require.Equal(t, []string{"t1"}, b.dueTasks())
		require.Len(t, b.release(step), 2)
		b.remove(step, "/wt/a")
		b.preserve(step, "/wt/b")
		b.park(step, teardown.ReasonPreserved)
		require.Empty(t, b.dueTasks())
		round, _, err := b.RetryTask(ctx, "t1", store.RetryOptions{})
		require.NoError(t, err)
		step.Round = round
		b.release(step)
		b.remove(step, "/wt/b")
		b.finish(step)
		require.Empty(t, b.dueTasks())
	}},
	{"a step of a task's older generation touches nothing", func(t *testing.T, b *bundle) {
		b.inTask("t1", "s1", "/wt/s1")
		step := b.archived("t1")
		b.sessionsOf(step)
		b.exec("UPDATE tasks SET terminated_at = NULL, state = 'active', generation = 2 WHERE id = 't1'")
		plan, err := b.ReleaseLeases(ctx, step)
		require.NoError(t, err)
		require.True(t, plan.Superseded)
		out, err := b.TerminateTaskSessions(ctx, teardown.TaskSessionsInput{Step: step})
		require.NoError(t, err)
		require.True(t, out.Superseded)
		begun, err := b.Begin(ctx, teardown.BeginInput{TaskID: "t1", Generation: 1, Round: 1})
		require.NoError(t, err)
		require.Equal(t, teardown.OutcomeRestored, begun.Outcome)
	}},
	{"an archived task is reopened at the next generation, its worktrees to be made from their branches", func(t *testing.T, b *bundle) {
		b.inTask("t1", "s1", "/wt/s1", "/wt/s1/lib", "/wt/shared")
		b.session("s9")
		b.lease("s9", "/wt/shared")
		step := b.archived("t1")
		b.sessionsOf(step)
		_, err := b.ReopenTask(ctx, "t1")
		requireCode(t, teardown.CodeBusy, true, err)
		b.finalized("s1")
		b.release(step)
		b.remove(step, "/wt/s1/lib")
		b.remove(step, "/wt/s1")
		b.finish(step)
		plan, err := b.ReopenTask(ctx, "t1")
		require.NoError(t, err)
		require.Equal(t, int64(2), plan.Generation)
		require.Empty(t, plan.Others)
		require.Equal(t, []string{"/wt/s1", "/wt/s1/lib", "/wt/shared"}, recreated(plan), "what was not removed is to be seen")
		again, err := b.ReopenTask(ctx, "t1")
		require.NoError(t, err)
		require.Equal(t, plan.Recreations, again.Recreations, "what is still to be made is answered again")
		unmade, err := b.unmade()
		require.NoError(t, err)
		require.Equal(t, []store.Due{{TaskID: "t1", Generation: 2}}, unmade)
		later := b.manifest("s2")
		later.TaskID, later.Lease = "t1", []string{plan.Recreations[0].WorktreeID}
		_, err = b.AddSession(ctx, later)
		requireCode(t, teardown.CodeWorktreeMissing, false, err)
		for _, r := range plan.Recreations[:2] {
			active, err := b.WorktreeMade(ctx, r.WorktreeID, "nonce "+r.WorktreeID)
			require.NoError(t, err)
			require.True(t, active)
		}
		made, err := b.Worktree(ctx, plan.Recreations[1].WorktreeID)
		require.NoError(t, err)
		require.Equal(t, store.WorktreeActive, made.State)
		require.Equal(t, plan.Recreations[0].WorktreeID, made.ParentID)
		require.Equal(t, "nonce "+made.ID, made.Nonce)
		unmade, err = b.unmade()
		require.NoError(t, err)
		require.Empty(t, unmade)
		b.add(later)
		begun, err := b.Begin(ctx, teardown.BeginInput{TaskID: "t1", Generation: 1, Round: 1})
		require.NoError(t, err)
		require.Equal(t, teardown.OutcomeRestored, begun.Outcome)
	}},
	{"a task that is reopened before its finalization has begun holds its worktrees once", func(t *testing.T, b *bundle) {
		b.inTask("t1", "s1", "/wt/s1")
		b.close("t1", store.TaskArchived)
		plan, err := b.ReopenTask(ctx, "t1")
		require.NoError(t, err)
		require.Equal(t, []string{"/wt/s1"}, recreated(plan))
		_, held, _, err := b.WorktreeAt(ctx, host, "/wt/s1")
		require.NoError(t, err)
		require.Len(t, held, 2, "the session and the task")
		require.Contains(t, []int64{held[0].Generation, held[1].Generation}, int64(2))
	}},
	{"what a task gave up with a start that failed is not made again", func(t *testing.T, b *bundle) {
		n := b.manifest("s1", "/wt/s1")
		n.TaskID, n.Starting = "t1", true
		b.add(n)
		_, begun, err := b.FailStart(ctx, "s1", "")
		require.NoError(t, err)
		require.True(t, begun)
		mine := b.begin("s1")
		b.release(mine)
		b.remove(mine, "/wt/s1")
		b.finish(mine)
		step := b.archived("t1")
		b.release(step)
		b.finish(step)
		plan, err := b.ReopenTask(ctx, "t1")
		require.NoError(t, err)
		require.Empty(t, plan.Recreations)
	}},
	{"what a session of a task is about to make is not the task's to make", func(t *testing.T, b *bundle) {
		n := b.manifest("s1", "/wt/s1")
		n.TaskID, n.Starting = "t1", true
		b.add(n)
		plan, err := b.ReopenTask(ctx, "t1")
		require.NoError(t, err)
		require.Empty(t, plan.Recreations)
		unmade, err := b.unmade()
		require.NoError(t, err)
		require.Empty(t, unmade)
	}},
	{"a task that is parked is reopened with what was kept", func(t *testing.T, b *bundle) {
		b.archivedAndKept()
		plan, err := b.ReopenTask(ctx, "t1")
		require.NoError(t, err)
		require.Equal(t, []string{"/wt/s1"}, recreated(plan), "it is to be seen")
		require.Equal(t, store.WorktreeActive, b.state("/wt/s1"))
		require.Empty(t, b.dueTasks())
		require.Empty(t, b.wakeableTasks())
	}},
	{"the id of a task that was parked, reopened and deleted can be used again", func(t *testing.T, b *bundle) {
		step := b.archivedAndKept()
		_, err := b.ReopenTask(ctx, "t1")
		require.NoError(t, err)
		result, err := b.TaskResult(ctx, "t1", 1)
		require.NoError(t, err)
		require.Equal(t, teardown.OutcomeRestored, result.Outcome)
		require.NotNil(t, result.FinishedAt)
		begun, err := b.Begin(ctx, teardown.BeginInput{TaskID: "t1", Generation: 1, Round: 1})
		require.NoError(t, err)
		require.Equal(t, teardown.OutcomeRestored, begun.Outcome, "a run that waits ends")
		late, err := b.Park(ctx, teardown.ParkInput{Step: step, Reason: teardown.ReasonPreserved})
		require.NoError(t, err)
		require.True(t, late.Superseded)

		b.close("t1", store.TaskDeleted)
		last := b.beginTask("t1")
		require.Equal(t, int64(2), last.Generation)
		b.sessionsOf(last)
		b.release(last)
		b.remove(last, "/wt/s1")
		b.finish(last)
		require.Equal(t, []string{"t1"}, b.tasks(), "its session refers to it")
		_, deleted, err := b.DeleteSession(ctx, "s1")
		require.NoError(t, err)
		require.True(t, deleted)
		require.Empty(t, b.tasks(), "its row went with that of its last session")
		require.Empty(t, b.wakeableTasks())
		require.Empty(t, b.dueTasks())
		added, opened, err := b.AddTask(ctx, store.NewTask{ID: "t1", Host: host})
		require.NoError(t, err)
		require.True(t, opened)
		require.Equal(t, int64(3), added.Generation)
	}},
	{"a worktree that was given up while it was made is its removal's", func(t *testing.T, b *bundle) {
		b.inTask("t1", "s1", "/wt/s1")
		step := b.archived("t1")
		b.sessionsOf(step)
		b.finalized("s1")
		b.release(step)
		b.remove(step, "/wt/s1")
		b.finish(step)
		plan, err := b.ReopenTask(ctx, "t1")
		require.NoError(t, err)
		second := b.archived("t1")
		require.Equal(t, []string{plan.Recreations[0].WorktreeID}, b.release(second))
		active, err := b.WorktreeMade(ctx, plan.Recreations[0].WorktreeID, "late")
		require.NoError(t, err)
		require.False(t, active)
		w, err := b.Worktree(ctx, plan.Recreations[0].WorktreeID)
		require.NoError(t, err)
		require.Equal(t, "late", w.Nonce)
		require.Equal(t, store.WorktreeDeleting, w.State)
	}},
	{"a task is not reopened over what others have at its paths, nor once deleted", func(t *testing.T, b *bundle) {
		b.inTask("t1", "s1", "/wt/s1")
		step := b.archived("t1")
		b.sessionsOf(step)
		b.finalized("s1")
		b.release(step)
		b.remove(step, "/wt/s1")
		b.finish(step)
		n := b.manifest("s2", "/wt/s1")
		n.Worktrees[0].ID = "second"
		b.add(n)
		_, err := b.ReopenTask(ctx, "t1")
		requireCode(t, teardown.CodeConflict, false, err)
		detail, err := b.TaskDetail(ctx, "t1")
		require.NoError(t, err)
		require.Equal(t, store.TaskStateArchived, detail.State, "nothing was changed")
		b.close("t1", store.TaskDeleted)
		_, err = b.ReopenTask(ctx, "t1")
		requireCode(t, teardown.CodeConflict, false, err)
		_, err = b.ReopenTask(ctx, "nobody")
		requireCode(t, teardown.CodeTaskNotFound, false, err)
	}},
	{"tasks are listed with what they hold", func(t *testing.T, b *bundle) {
		b.inTask("t1", "s1", "/wt/s1")
		b.inTask("t2", "s2")
		b.archived("t2")
		page, err := b.Tasks(ctx, "", 10)
		require.NoError(t, err)
		require.Equal(t, []string{"t1", "t2"}, []string{page[0].ID, page[1].ID})
		require.Equal(t, store.TaskStateActive, page[0].Status)
		require.Equal(t, 1, page[0].Worktrees)
		require.Equal(t, 1, page[0].SessionsLive)
		require.Equal(t, store.TaskStateArchiving, page[1].Status)
		page, err = b.Tasks(ctx, "t1", 10)
		require.NoError(t, err)
		require.Len(t, page, 1)
	}},
}

func (b *bundle) tasks() []string {
	b.t.Helper()
	page, err := b.Tasks(ctx, "", 100)
	require.NoError(b.t, err)
	var ids []string
	for _, row := range page {
		ids = append(ids, row.ID)
	}
	return ids
}

// A session that starts in a task while it is archived is
// either terminated by the archiving or was refused, and then nothing of it is
// registered.
func TestFault17StartAgainstArchive(t *testing.T) {
	t.Parallel()
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			b := setup(t, dialect)
			other := open(t, b.url)
			var pairs sync.WaitGroup
			numbers := make(chan int)
			for range 8 {
				pairs.Go(func() {
					for n := range numbers {
						startAgainstArchive(t, b, other, n)
					}
				})
			}
			for n := range interleave.Times(100) {
				numbers <- n
			}
			close(numbers)
			pairs.Wait()
			if dialect == store.Postgres {
				requireNoDeadlocks(t, b)
			}
		})
	}
}

func startAgainstArchive(t *testing.T, b *bundle, other *store.Store, n int) {
	task, id, path := fmt.Sprintf("t%d", n), fmt.Sprintf("s%d", n), fmt.Sprintf("/wt/%d", n)
	if _, _, err := b.AddTask(ctx, store.NewTask{ID: task, Host: host}); err != nil {
		t.Error(err)
		return
	}
	starting := b.manifest(id, path)
	starting.TaskID = task
	var startErr, closeErr error
	var inventory teardown.TaskSessionsResult
	together(
		func() { _, startErr = b.AddSession(ctx, starting) },
		func() {
			if _, _, closeErr = other.CloseTask(ctx, task, store.TaskArchived); closeErr != nil {
				return
			}
			var begun store.Begun
			if begun, closeErr = other.Begin(ctx, teardown.BeginInput{TaskID: task}); closeErr != nil {
				return
			}
			inventory, closeErr = other.TerminateTaskSessions(ctx, teardown.TaskSessionsInput{Step: begun.Step})
		},
	)
	_, _, registered, err := b.WorktreeAt(ctx, host, path)
	switch {
	case closeErr != nil || err != nil:
		t.Errorf("%v, %v", closeErr, err)
	case startErr == nil && (len(inventory.Sessions) != 1 || !registered):
		t.Errorf("%s started and is not in the inventory of %s", id, task)
	case startErr != nil && (teardown.CodeOf(startErr) != teardown.CodeTaskClosed || len(inventory.Sessions) != 0 || registered):
		t.Errorf("%s was refused (%v), and something of it is left", id, startErr)
	}
}
