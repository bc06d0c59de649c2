package store_test

import (
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"unwind/internal/store"
	"unwind/teardown"
)

// start records what a session is to have; make and launch make it, one by one,
// or never.
func (m *model) start(*rapid.T) {
	n := m.newSession()
	n.TaskID, _ = m.anyTask()
	n.Starting = true
	m.register(n)
}

// make makes a worktree that is to be made, or records one that was made before a
// crash. It holds the locks that no removal goes on under.
func (m *model) make(*rapid.T) {
	id, w := pick(m, m.trees, func(w *modelTree) bool { return w.making != "" && w.attempt == nil }, "worktree")
	if w.making == unarchived {
		m.recreate(id, w)
		return
	}
	start := teardown.StartStep{SessionID: w.making, Generation: w.makingAt}
	s, known := m.sessions[w.making]
	err := m.b.Starting(ctx, start)
	if !known || !s.live || s.generation != w.makingAt {
		require.Error(m, err, "R11: nothing more is made")
		return
	}
	require.NoError(m, err)
	w.absent = false
	if rapid.Bool().Draw(m.T, "crash") {
		return
	}
	require.NoError(m, m.b.WorktreeCreated(ctx, start, id, "agent/"+id))
	w.making = ""
}

func (m *model) recreate(id string, w *modelTree) {
	row, err := m.b.Worktree(ctx, id)
	require.NoError(m, err)
	if row.State != store.WorktreeCreating {
		return // given up meanwhile
	}
	w.absent = false
	if rapid.Bool().Draw(m.T, "crash") {
		return
	}
	for range rapid.IntRange(1, 2).Draw(m.T, "times") {
		active, err := m.b.WorktreeMade(ctx, id, id)
		require.NoError(m, err)
		require.True(m, active)
	}
	w.making = ""
}

// launch starts the agent of a session that is being started.
func (m *model) launch(*rapid.T) {
	id, s := pick(m, m.sessions, func(s *modelSession) bool { return s.launching }, "session")
	start := teardown.StartStep{SessionID: id, Generation: s.generation}
	if s.generation > 1 {
		late := m.b.RuntimeStarted(ctx, teardown.StartStep{SessionID: id, Generation: s.generation - 1}, id+"r", teardown.Runtime{Kind: teardown.KindProcess, PID: 2})
		require.Equal(m, teardown.CodeSessionTerminated, teardown.CodeOf(late), "R11: it was for the session that had this id before")
	}
	err := m.b.Starting(ctx, start)
	if !s.live {
		require.Equal(m, teardown.CodeSessionTerminated, teardown.CodeOf(err))
		return
	}
	require.NoError(m, err)
	s.agent = true
	if rapid.Bool().Draw(m.T, "crash") {
		return
	}
	require.NoError(m, m.b.RuntimeStarted(ctx, start, id+"r", teardown.Runtime{Kind: teardown.KindProcess, PID: 2}))
	s.launching = false
}

// takeBack is reconcile, which finds a start whose run was lost.
func (m *model) takeBack(*rapid.T) {
	id, s := pick(m, m.sessions, m.half, "session")
	_, begun, err := m.b.FailStart(ctx, id, "")
	require.NoError(m, err)
	require.True(m, begun)
	m.takeFromTask(s, func(*modelTree) bool { return true })
	s.live, s.turn = false, ""
}

// takeUnmade: a task keeps nothing that is still to be made for a session that is over.
func (m *model) takeUnmade(s *modelSession) {
	m.takeFromTask(s, func(w *modelTree) bool { return w.making != "" })
}

// takeFromTask: a task keeps nothing of a start that is taken back.
func (m *model) takeFromTask(s *modelSession, wanted func(*modelTree) bool) {
	t, ok := m.tasks[s.task]
	if !ok {
		return
	}
	t.holds = slices.DeleteFunc(t.holds, func(id string) bool {
		w := m.trees[id]
		taken := slices.Contains(s.holds, id) && wanted(w)
		if taken && t.leased[w.path] == id {
			delete(t.leased, w.path)
		}
		return taken
	})
}

// half: its start is not complete.
func (m *model) half(s *modelSession) bool {
	return s.live && (s.launching || slices.ContainsFunc(s.holds, func(id string) bool { return m.trees[id].making != "" }))
}

func (m *model) checkStarts() {
	due, err := m.b.HalfStarted(ctx, m.prefix, "", 1000)
	require.NoError(m, err)
	var half, listed []string
	for _, d := range due.Rows {
		listed = append(listed, d.SessionID)
	}
	for id, s := range m.sessions {
		if m.half(s) {
			half = append(half, id)
		}
	}
	require.ElementsMatch(m, half, listed, "I1: what is started by half is found from the facts alone")
}

// converge is reconcile's step on what no finalization will finish.
func (m *model) converge(*rapid.T) {
	id, w := pick(m, m.trees, func(w *modelTree) bool { return w.attempt == nil }, "worktree")
	m.claimStray(id, w)
}

func (m *model) claimStray(id string, w *modelTree) {
	row, err := m.b.Worktree(ctx, id)
	require.NoError(m, err)
	if row.State == store.WorktreePreserved && row.QuarantinePath == "" && w.dirty {
		require.NoError(m, m.b.LookedAtStray(ctx, kept(id)))
		return
	}
	claim, err := m.b.ClaimStray(ctx, id)
	require.NoError(m, err)
	if claim.Go {
		m.mayTouch(id)
		w.attempt = &modelAttempt{stray: true}
	}
}

func (m *model) convergeAll() {
	for id, w := range m.trees {
		m.claimStray(id, w)
		for w.attempt != nil {
			m.advance(id, w)
		}
	}
}
