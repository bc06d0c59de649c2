package store_test

import (
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"unwind/internal/store"
	"unwind/teardown"
)

// modelTask is a task of the model.
type modelTask struct {
	modelRun

	generation int64
	state      string
	holds      []string
	// leased is what it has leased at this generation: by path, the newest there.
	leased map[string]string
}

func (t *modelTask) lease(w store.NewWorktree) {
	t.holds = append(t.holds, w.ID)
	t.leased[w.Path] = w.ID
}

func (m *model) closed(task string) bool {
	t, ok := m.tasks[task]
	return ok && t.state != store.TaskActive
}

// anyTask answers a task for a new session, or none, and which of its worktrees
// the session shares. An id of a deleted task may be used anew, so that none is
// answered.
func (m *model) anyTask() (id string, shared []string) {
	ids := []string{""}
	for id, t := range m.tasks {
		if t.state != store.TaskDeleted {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	id = rapid.SampledFrom(ids).Draw(m.T, "task")
	if id == "" {
		return "", nil
	}
	for _, w := range m.tasks[id].holds {
		if rapid.Bool().Draw(m.T, "share") {
			shared = append(shared, w)
		}
	}
	return id, shared
}

func (m *model) openTask(*rapid.T) {
	id := m.name("t")
	n := store.NewTask{ID: id, Host: m.prefix}
	if rapid.Bool().Draw(m.T, "worktree") {
		_, w := m.newTree()
		n.Worktrees = append(n.Worktrees, w)
	}
	_, opened, err := m.b.AddTask(ctx, n)
	if code := teardown.CodeOf(err); code == teardown.CodeWorktreeDeleting || code == teardown.CodeWorktreeMissing {
		return // inside one that may go at any moment
	}
	require.NoError(m, err)
	require.True(m, opened)
	t := &modelTask{generation: 1, state: store.TaskActive, leased: map[string]string{}}
	m.tasks[id] = t
	for _, w := range n.Worktrees {
		m.trees[w.ID] = &modelTree{path: w.Path}
		t.lease(w)
	}
}

func (m *model) closeTask(*rapid.T) {
	id, t := pick(m, m.tasks, func(*modelTask) bool { return true }, "task")
	m.setBarrier(id, t, rapid.SampledFrom([]string{store.TaskArchived, store.TaskDeleted}).Draw(m.T, "state"))
}

func (m *model) setBarrier(id string, t *modelTask, state string) {
	_, changed, err := m.b.CloseTask(ctx, id, state)
	if t.state == store.TaskDeleted && state == store.TaskArchived {
		require.Equal(m, teardown.CodeConflict, teardown.CodeOf(err))
		return
	}
	require.NoError(m, err)
	require.Equal(m, t.state != state, changed)
	t.state = state
}

// unarchive opens an archived task again, or reads again what is still to be made
// of one that is open. That is made by and by, or, its run being lost, never.
func (m *model) unarchive(*rapid.T) {
	id, t := pick(m, m.tasks, func(*modelTask) bool { return true }, "task")
	detail, err := m.b.TaskDetail(ctx, id)
	require.NoError(m, err)
	f := detail.Finalization()
	plan, err := m.b.ReopenTask(ctx, id)
	switch code := teardown.CodeOf(err); {
	case t.state == store.TaskDeleted:
		require.Equal(m, teardown.CodeConflict, code)
		return
	case t.state == store.TaskArchived && f.Round > 0 && f.FinishedAt == nil && f.ParkedAt == nil:
		require.Equal(m, teardown.CodeBusy, code)
		return
	case t.state == store.TaskArchived && (code == teardown.CodeWorktreeDeleting || code == teardown.CodeWorktreeMissing):
		return // of one of its worktrees, or of one around it, the removal is not at its end
	}
	require.NoError(m, err)
	if t.state == store.TaskArchived {
		t.generation, t.state = t.generation+1, store.TaskActive
		m.reopen(t, plan)
	}
	require.Equal(m, t.generation, plan.Generation)
	var there, listed []string
	for _, r := range plan.Recreations {
		listed = append(listed, r.WorktreeID)
	}
	for _, w := range t.holds {
		if making := m.trees[w].making; making == "" || making == unarchived {
			there = append(there, w)
		}
	}
	require.ElementsMatch(m, there, listed, "I3: all that is to be there of %s is looked at", id)
}

// unarchived makes worktrees; no session has that id.
const unarchived = "unarchived"

// reopen: what is there of what the task had leased it holds again, what is gone
// is to be made anew.
func (m *model) reopen(t *modelTask, plan teardown.UnarchivePlan) {
	again := map[string]string{}
	for _, r := range plan.Recreations {
		again[r.Worktree.Path] = r.WorktreeID
	}
	t.holds = nil
	for path, id := range t.leased {
		if m.trees[id].gone {
			require.Contains(m, again, path)
			require.NotEqual(m, id, again[path])
			id = again[path]
			m.trees[id] = &modelTree{path: path, making: unarchived, absent: true}
		}
		t.holds = append(t.holds, id)
		t.leased[path] = id
	}
	require.Empty(m, plan.Others)
}

// runTask is a task's workflow from its beginning to its removal plan. It does
// not wait for its sessions: what they hold yet is theirs to remove.
func (m *model) runTask(*rapid.T) {
	id, t := pick(m, m.tasks, func(*modelTask) bool { return true }, "task")
	step, going := m.beginTask(id)
	if !going {
		return
	}
	plan, err := m.b.ReleaseLeases(ctx, step)
	require.NoError(m, err)
	require.False(m, plan.Superseded || plan.Parked)
	t.step, t.plan, t.holds = &step, planned(plan), nil
}

// beginTask begins and terminates the task's sessions.
func (m *model) beginTask(id string) (step teardown.Step, going bool) {
	begun, err := m.b.Begin(ctx, teardown.BeginInput{TaskID: id})
	if !m.closed(id) {
		require.Equal(m, teardown.CodeTaskActive, teardown.CodeOf(err))
		return step, false
	}
	require.NoError(m, err)
	if begun.Outcome != "" || begun.ParkedReason != "" {
		return step, false
	}
	out, err := m.b.TerminateTaskSessions(ctx, teardown.TaskSessionsInput{Step: begun.Step})
	require.NoError(m, err)
	require.False(m, out.Superseded || out.More)
	listed := map[string]bool{}
	for _, ref := range out.Sessions {
		listed[ref.SessionID] = true
	}
	for session, s := range m.sessions {
		if s.task != id {
			require.False(m, listed[session], "%s is not of %s", session, id)
			continue
		}
		require.True(m, listed[session] || s.history[s.generation] == teardown.OutcomeFinalized, "%s is not in the inventory of %s", session, id)
		s.live, s.turn = false, ""
	}
	return begun.Step, true
}

func (m *model) finishTask(id string, t *modelTask) {
	done, err := m.b.Finish(ctx, *t.step)
	require.NoError(m, err)
	if done.Superseded || done.Result.Outcome != teardown.OutcomeFinalized {
		return
	}
	for session, s := range m.sessions {
		if s.task == id {
			require.Equal(m, teardown.OutcomeFinalized, s.history[s.generation], "%s ended before its session %s", id, session)
		}
	}
	for _, w := range done.Result.Worktrees {
		require.True(m, w.Disposition.Final(), "%s: %+v", id, w)
	}
}

func (m *model) retryTask() {
	id, _ := pick(m, m.tasks, func(*modelTask) bool { return true }, "task")
	_, _, err := m.b.RetryTask(ctx, id, store.RetryOptions{})
	if !m.closed(id) {
		require.Equal(m, teardown.CodeTaskActive, teardown.CodeOf(err))
	} else if err != nil {
		require.Equal(m, teardown.CodeConflict, teardown.CodeOf(err))
	}
}

func (m *model) checkTasks() {
	due, err := m.b.DueTasks(ctx, m.prefix, 1000)
	require.NoError(m, err)
	listed := map[string]bool{}
	for _, d := range due.Rows {
		listed[d.TaskID] = true
	}
	made, err := m.b.UnmadeTasks(ctx, m.prefix, 1000)
	require.NoError(m, err)
	unmade := map[string]bool{}
	for _, d := range made.Rows {
		unmade[d.TaskID] = true
	}
	for id, t := range m.tasks {
		detail, err := m.b.TaskDetail(ctx, id)
		require.NoError(m, err)
		require.Equal(m, t.state, detail.Task.State, id)
		var holds []string
		for _, l := range detail.Worktrees {
			m.checkGone(l)
			if l.Lease.ReleasedAt == nil {
				holds = append(holds, l.Worktree.ID)
				m.checkHeld(l.Worktree, id)
				require.Equal(m, t.generation, l.Lease.Generation, "an older generation holds nothing")
			}
		}
		require.ElementsMatch(m, t.holds, holds, "only its own finalization takes from %s", id)
		require.Equal(m, t.generation, detail.Task.Generation, id)
		f := detail.Finalization()
		over := t.state == store.TaskActive || f.FinishedAt != nil || f.ParkedAt != nil
		require.Equal(m, !over, listed[id], "I1: %s is found from the facts alone", id)
		toMake := t.state == store.TaskActive && slices.ContainsFunc(t.holds, func(w string) bool { return m.trees[w].making == unarchived })
		require.Equal(m, toMake, unmade[id], "I1: what is to be made for %s is found from the facts alone", id)
	}
}

// finalizeWholeTask is a task's run from its beginning to its end.
func (m *model) finalizeWholeTask(id string) {
	if _, _, err := m.b.RetryTask(ctx, id, store.RetryOptions{IfParked: true}); err != nil {
		require.Equal(m, teardown.CodeConflict, teardown.CodeOf(err))
		return
	}
	begun, err := m.b.Begin(ctx, teardown.BeginInput{TaskID: id})
	require.NoError(m, err)
	if begun.Outcome == "" {
		m.removeAll(begun.Step)
	}
}
