package store_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"unwind/internal/store"
	"unwind/teardown"
)

// TestRandomSequencesKeepTheInvariants runs sequences of what users, workflows,
// reconcile, crashes and lost histories do against a small reference model. The
// disk is the model's own; every fact is the database's.
//
// After each step it checks design's invariants as far as they are the store's:
// I1, I2, I3, I4, I6, I9 and I10 by name; I5 by steps that are done again; I7 in
// that no worktree is removed twice or by somebody whom it is not left to; I8 in
// that the facts are compared with the model, not what is derived from them. Of
// I3 it is that nothing is recorded as gone that is there, of I10 that neither a
// row that cannot be read nor others that wait hide what is due; the rest of the
// two is the adapters' and the callers'.
func TestRandomSequencesKeepTheInvariants(t *testing.T) {
	t.Parallel()
	// Unless asked for more, few of them run with every build.
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	if !asked {
		_ = flag.Set("rapid.checks", "5")
	}
	_ = flag.Set("rapid.nofailfile", "true")
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			b := setup(t, dialect)
			n := 0
			rapid.Check(t, func(rt *rapid.T) {
				n++
				m := &model{T: rt, b: &bundle{Store: b.Store, t: t, url: b.url}, prefix: fmt.Sprintf("m%d", n),
					sessions: map[string]*modelSession{}, deleted: map[string]*modelSession{},
					tasks: map[string]*modelTask{}, trees: map[string]*modelTree{}}
				defer m.unreadable()()
				rt.Repeat(map[string]func(*rapid.T){
					"":          m.check,
					"add":       m.add,
					"start":     m.start,
					"make":      m.make,
					"launch":    m.launch,
					"take back": m.takeBack,
					"converge":  m.converge,
					"attach":    m.attach,
					"fork":      m.fork,
					"terminate": m.terminate,
					"hold":      m.hold,
					"edit":      m.edit,
					"run":       m.run,
					"run on":    m.run,
					"remove":    m.remove,
					"go on":     m.goOn,
					"advance":   m.goOn,
					"crash":     m.crash,
					"lose":      m.loseHistory,
					"park":      m.park,
					"finish":    m.finish,
					"retry":     m.retry,
					"restore":   m.restore,
					"delete":    m.delete,
					"turn":      m.turn,
					"open":      m.openTask,
					"close":     m.closeTask,
					"unarchive": m.unarchive,
					"run task":  m.runTask,
				})
				m.settle()
			})
		})
	}
}

// model is what the world looks like, whatever the database says.
type model struct {
	*rapid.T
	b        *bundle
	prefix   string
	made     int
	sessions map[string]*modelSession
	// deleted are those whose ids may be used again.
	deleted map[string]*modelSession
	tasks   map[string]*modelTask
	trees   map[string]*modelTree
}

// modelRun is what a run of a finalization knows; nil without one.
type modelRun struct {
	step *teardown.Step
	plan []string
}

type modelSession struct {
	modelRun

	task       string // "" outside of one
	live       bool
	generation int64
	holds      []string // worktrees, while live or not yet released
	agent      bool     // its runtime lives
	turn       string
	// launching: its start has still to record that its agent runs.
	launching bool
	// history is what became of the generations that are over, released when those
	// before its id was used again let go of what.
	history  map[int64]teardown.Outcome
	released map[modelLease]time.Time
}

type modelLease struct {
	worktree   string
	generation int64
}

// modelTree is one worktree on disk. An attempt that is under way holds its path
// lock.
type modelTree struct {
	path string
	// making is who has still to record that it is there: the start of a session,
	// or the unarchiving of a task.
	making   string
	makingAt int64 // generation of the session
	absent   bool  // it was not made yet
	dirty    bool
	aside    bool
	gone     bool
	removals int
	attempt  *modelAttempt
}

type modelAttempt struct {
	step  teardown.Step
	stray bool // it is reconcile's
	stage int
}

// there: its directory is at its path.
func (w *modelTree) there() bool { return !w.absent && !w.aside && !w.gone }

func (m *model) name(kind string) string {
	m.made++
	return fmt.Sprintf("%s%s%d", m.prefix, kind, m.made)
}

// sessionID is a new one, or that of a deleted session.
func (m *model) sessionID() string {
	if len(m.deleted) > 0 && rapid.Bool().Draw(m.T, "again") {
		id, _ := pick(m, m.deleted, anySession, "id")
		return id
	}
	return m.name("s")
}

// born is a live session; all that is known of its id is of older generations. A
// run of those may still be under way.
func (m *model) born(id, task string) *modelSession {
	s := &modelSession{task: task, live: true, generation: 1, history: map[int64]teardown.Outcome{}}
	if old, again := m.deleted[id]; again {
		s.modelRun, s.generation, s.history, s.released = old.modelRun, old.generation+1, old.history, old.released
		delete(m.deleted, id)
	}
	m.sessions[id] = s
	return s
}

// unreadable is a session whose row holds what somebody else wrote, as long as
// the sequence runs. Postgres knows what a time is.
func (m *model) unreadable() (restore func()) {
	if m.b.Dialect() == store.Postgres {
		return func() {}
	}
	id := m.prefix + "broken"
	_, err := m.b.AddSession(ctx, store.NewSession{ID: id, Host: m.prefix, ManifestHash: id})
	require.NoError(m, err)
	_, _, err = m.b.Terminate(ctx, id, "test")
	require.NoError(m, err)
	m.b.exec("UPDATE sessions SET held_until = 'tomorrow' WHERE id = ?", id)
	return func() { m.b.exec("DELETE FROM sessions WHERE id = ?", id) }
}

func pick[V any](m *model, from map[string]V, wanted func(V) bool, what string) (string, V) {
	var ids []string
	for id, one := range from {
		if wanted(one) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if len(ids) == 0 {
		m.Skip("none")
	}
	id := rapid.SampledFrom(ids).Draw(m.T, what)
	return id, from[id]
}

func anySession(*modelSession) bool { return true }

// runs lists those of sessions and of tasks.
func (m *model) runs() map[string]*modelRun {
	all := map[string]*modelRun{}
	for id, s := range m.sessions {
		all[id] = &s.modelRun
	}
	for id, t := range m.tasks {
		all[id] = &t.modelRun
	}
	return all
}

func underWay(r *modelRun) bool { return r.step != nil }

// newTree is a worktree at a path of its own, or inside one that a live session
// holds.
func (m *model) newTree() (string, store.NewWorktree) {
	id := m.name("w")
	path := "/wt/" + id
	for _, outer := range m.trees {
		if outer.there() && strings.Count(outer.path, "/") == 2 && rapid.Bool().Draw(m.T, "inside") {
			path = outer.path + "/" + id
			break
		}
	}
	return id, store.NewWorktree{ID: id, Repository: "/src", Path: path, Branch: "agent/" + id, Nonce: id}
}

func (m *model) add(*rapid.T) {
	n := m.newSession()
	n.TaskID, n.Lease = m.anyTask()
	m.register(n)
}

func (m *model) newSession() store.NewSession {
	id := m.sessionID()
	n := store.NewSession{ID: id, Host: m.prefix, ManifestHash: id,
		Runtimes: []store.NewRuntime{{ID: id + "r", Handle: teardown.Runtime{Kind: teardown.KindProcess, PID: 2}}}}
	for range rapid.IntRange(0, 2).Draw(m.T, "worktrees") {
		_, w := m.newTree()
		n.Worktrees = append(n.Worktrees, w)
	}
	return n
}

func (m *model) register(n store.NewSession) {
	added, err := m.b.AddSession(ctx, n)
	if m.closed(n.TaskID) {
		require.Equal(m, teardown.CodeTaskClosed, teardown.CodeOf(err))
		return
	}
	if code := teardown.CodeOf(err); code == teardown.CodeWorktreeDeleting || code == teardown.CodeWorktreeMissing {
		return // inside one that may go at any moment, or not made yet
	}
	require.NoError(m, err)
	require.True(m, added)
	s := m.born(n.ID, n.TaskID)
	s.agent, s.launching, s.holds = !n.Starting, n.Starting, n.Lease
	m.hand(s, n.Worktrees)
	if n.Starting {
		for _, w := range n.Worktrees {
			tree := m.trees[w.ID]
			tree.making, tree.makingAt, tree.absent = n.ID, s.generation, true
		}
	}
}

func (m *model) hand(s *modelSession, worktrees []store.NewWorktree) {
	for _, w := range worktrees {
		m.trees[w.ID] = &modelTree{path: w.Path}
		s.holds = append(s.holds, w.ID)
		if t, ok := m.tasks[s.task]; ok {
			t.lease(w)
		}
	}
}

func (m *model) attach(*rapid.T) {
	id, s := pick(m, m.sessions, anySession, "session")
	_, w := m.newTree()
	_, err := m.b.Attach(ctx, store.NewSession{ID: id, Host: m.prefix, Worktrees: []store.NewWorktree{w}})
	switch code := teardown.CodeOf(err); {
	case !s.live:
		require.Equal(m, teardown.CodeSessionTerminated, code)
	case m.closed(s.task):
		require.Equal(m, teardown.CodeTaskClosed, code)
	case code == teardown.CodeWorktreeDeleting, code == teardown.CodeWorktreeMissing:
	default:
		require.NoError(m, err)
		m.hand(s, []store.NewWorktree{w})
	}
}

func (m *model) fork(*rapid.T) {
	id, parent := pick(m, m.sessions, anySession, "parent")
	child := m.sessionID()
	_, added, err := m.b.Fork(ctx, store.Fork{Parent: id, Child: child, Seen: parent.holds})
	if !parent.live {
		require.Equal(m, teardown.CodeSessionTerminated, teardown.CodeOf(err))
		return
	}
	if m.closed(parent.task) {
		require.Equal(m, teardown.CodeTaskClosed, teardown.CodeOf(err))
		return
	}
	if teardown.CodeOf(err) == teardown.CodeWorktreeDeleting {
		return // below one that is being removed, and that the claim will keep
	}
	if slices.ContainsFunc(parent.holds, func(id string) bool { return m.trees[id].making != "" }) {
		require.Equal(m, teardown.CodeWorktreeMissing, teardown.CodeOf(err))
		return
	}
	require.NoError(m, err)
	require.True(m, added)
	m.born(child, parent.task).holds = slices.Clone(parent.holds)
}

func (m *model) terminate(*rapid.T) {
	id, s := pick(m, m.sessions, anySession, "session")
	if s.live && rapid.Bool().Draw(m.T, "by SQL") {
		m.b.exec("UPDATE sessions SET terminated_at = ? WHERE id = ?", time.Now(), id)
		s.live, s.turn = false, ""
		if rapid.Bool().Draw(m.T, "begun at once") {
			m.runSession(id, s)
		}
		return
	}
	m.end(id, s)
}

func (m *model) end(id string, s *modelSession) {
	_, changed, err := m.b.Terminate(ctx, id, "test")
	require.NoError(m, err)
	require.Equal(m, s.live, changed)
	if changed {
		m.takeUnmade(s)
	}
	s.live, s.turn = false, ""
}

func (m *model) hold(*rapid.T) {
	id, _ := pick(m, m.sessions, anySession, "session")
	by := rapid.SampledFrom([]string{"", "me"}).Draw(m.T, "by")
	_, err := m.b.Hold(ctx, id, nil, by)
	require.NoError(m, err)
}

// edit is an agent or a person at work, who finds the directory by its path.
func (m *model) edit(*rapid.T) {
	_, w := pick(m, m.trees, (*modelTree).there, "worktree")
	w.dirty = rapid.Bool().Draw(m.T, "dirty")
}

// run is a workflow from its beginning to its removal plan. Whether one is under
// way already makes no difference.
func (m *model) run(*rapid.T) {
	id, s := pick(m, m.sessions, anySession, "session")
	m.runSession(id, s)
}

func (m *model) runSession(id string, s *modelSession) {
	begun, err := m.b.Begin(ctx, teardown.BeginInput{SessionID: id})
	if s.live {
		require.Equal(m, teardown.CodeSessionLive, teardown.CodeOf(err))
		return
	}
	require.NoError(m, err)
	if begun.Outcome == "" {
		m.takeUnmade(s) // if it was terminated by SQL
	}
	if begun.Outcome != "" || begun.ParkedReason != "" {
		return
	}
	require.Equal(m, s.generation, begun.Step.Generation)
	for _, runtime := range begun.Runtimes {
		s.agent = false
		_, err := m.b.RuntimeReleased(ctx, begun.Step, runtime.ID, "ended", "", teardown.RuntimeResult{Outcome: teardown.RuntimeReleased})
		require.NoError(m, err)
	}
	plan, err := m.b.ReleaseLeases(ctx, begun.Step)
	require.NoError(m, err)
	require.False(m, plan.Superseded || plan.Parked)
	require.False(m, s.agent, "I2: no worktree is touched while a runtime lives")
	s.step, s.plan, s.holds = &begun.Step, planned(plan), nil
}

// remove is the first step of an attempt: it takes the path lock and claims.
func (m *model) remove(*rapid.T) {
	_, s := pick(m, m.runs(), func(r *modelRun) bool { return r.step != nil && len(r.plan) > 0 }, "run")
	id := rapid.SampledFrom(s.plan).Draw(m.T, "worktree")
	if m.trees[id].attempt != nil {
		m.Skip("busy")
	}
	claim, err := m.b.Claim(ctx, *s.step, id)
	require.NoError(m, err)
	if claim.Go {
		m.trees[id].attempt = &modelAttempt{step: *s.step}
	}
}

func (m *model) goOn(*rapid.T) {
	id, w := pick(m, m.trees, func(w *modelTree) bool { return w.attempt != nil }, "worktree")
	m.advance(id, w)
}

// advance does the next step of an attempt, in the order of R6.
func (m *model) advance(id string, w *modelTree) {
	row, err := m.b.Worktree(ctx, id)
	require.NoError(m, err)
	a := w.attempt
	if w.absent {
		w.absent, w.gone = false, true
		m.recordGone(id, w, teardown.DispositionAlreadyGone)
		return
	}
	const look, rename, lookAgain, unlink, record = 0, 1, 2, 3, 4
	if a.stage == look && row.QuarantinePath != "" && (w.aside || w.gone) {
		a.stage = lookAgain // what an earlier attempt has left
		if row.CondemnedAt != nil {
			a.stage = unlink
		}
	}
	switch a.stage {
	case look:
		if w.dirty {
			m.keep(id, w, false)
			return
		}
		quarantine := row.QuarantinePath
		if quarantine == "" {
			quarantine = "/wt/." + id + ".unwind-" + id
		}
		if a.stray {
			require.NoError(m, m.b.MovingStrayAside(ctx, id, quarantine))
		} else {
			require.NoError(m, m.b.MovingAside(ctx, a.step, id, quarantine))
		}
		a.stage = rename
	case rename:
		m.mayTouch(id)
		w.aside = true
		a.stage = lookAgain
	case lookAgain:
		if w.dirty {
			w.aside = false
			m.keep(id, w, false)
			return
		}
		require.NoError(m, m.b.Condemned(ctx, id))
		a.stage = unlink
	case unlink:
		m.mayTouch(id)
		require.False(m, w.dirty, "I4: work would be lost")
		if !w.gone {
			w.removals++
		}
		w.aside, w.gone = false, true
		a.stage = record
	case record:
		m.recordGone(id, w, teardown.DispositionRemoved)
	}
}

// recordGone is the last write of an attempt, which may be done again.
func (m *model) recordGone(id string, w *modelTree, disposition teardown.Disposition) {
	for range rapid.IntRange(1, 2).Draw(m.T, "times") {
		if w.attempt.stray {
			require.NoError(m, m.b.RemovedStray(ctx, id))
			continue
		}
		_, err := m.b.Removed(ctx, w.attempt.step, id, teardown.WorktreeResult{Disposition: disposition})
		require.NoError(m, err)
	}
	w.attempt, w.making = nil, ""
}

// mayTouch: nobody holds what is about to be moved or deleted.
func (m *model) mayTouch(id string) {
	var held []string
	require.NoError(m, m.b.DB().Select(&held, m.b.DB().Rebind("SELECT holder_id FROM leases WHERE worktree_id = ? AND released_at IS NULL"), id))
	require.Empty(m, held, "I9: %s is held", id)
}

func (m *model) keep(id string, w *modelTree, quarantine bool) {
	if w.attempt.stray {
		require.NoError(m, m.b.PreservedStray(ctx, kept(id), quarantine))
	} else {
		_, err := m.b.Preserved(ctx, w.attempt.step, id, modified, quarantine)
		require.NoError(m, err)
	}
	w.attempt, w.making = nil, ""
}

// crash ends an attempt; its lock goes with it.
func (m *model) crash(*rapid.T) {
	_, w := pick(m, m.trees, func(w *modelTree) bool { return w.attempt != nil }, "worktree")
	w.attempt = nil
}

func (m *model) loseHistory(*rapid.T) {
	_, run := pick(m, m.runs(), underWay, "run")
	*run = modelRun{}
}

func (m *model) park(*rapid.T) {
	_, s := pick(m, m.runs(), underWay, "run")
	reason := rapid.SampledFrom([]string{teardown.ReasonPreserved, teardown.ReasonAttemptsExhausted}).Draw(m.T, "reason")
	_, err := m.b.Park(ctx, teardown.ParkInput{Step: *s.step, Reason: reason})
	if err != nil {
		requireCode(m.b.t, teardown.CodeInternal, false, err)
	}
}

func (m *model) finish(*rapid.T) {
	id, _ := pick(m, m.runs(), underWay, "run")
	if t, ok := m.tasks[id]; ok {
		m.finishTask(id, t)
		return
	}
	m.finishSession(id, m.sessions[id])
}

func (m *model) finishSession(id string, s *modelSession) {
	run := &s.modelRun
	done, err := m.b.Finish(ctx, *run.step)
	require.NoError(m, err)
	if done.Superseded || done.Result.Outcome != teardown.OutcomeFinalized || run.step.Generation != s.generation {
		return
	}
	require.False(m, s.live || s.agent)
	for _, w := range done.Result.Worktrees {
		require.True(m, w.Disposition.Final(), "%s: %+v", id, w)
	}
	s.history[s.generation] = teardown.OutcomeFinalized
}

func (m *model) retry(*rapid.T) {
	if len(m.tasks) > 0 && rapid.Bool().Draw(m.T, "of a task") {
		m.retryTask()
		return
	}
	id, s := pick(m, m.sessions, anySession, "session")
	_, _, err := m.b.Retry(ctx, id, store.RetryOptions{})
	if s.live {
		require.Equal(m, teardown.CodeSessionLive, teardown.CodeOf(err))
	} else if err != nil {
		require.Equal(m, teardown.CodeConflict, teardown.CodeOf(err))
	}
}

// restore is R8: the locks of all paths, a look, and one transaction.
func (m *model) restore(*rapid.T) {
	id, s := pick(m, m.sessions, anySession, "session")
	if s.live {
		if s.generation == 1 {
			_, err := m.b.Restore(ctx, store.Restoration{SessionID: id, Generation: 1})
			require.Equal(m, teardown.CodeSessionLive, teardown.CodeOf(err))
		}
		return
	}
	runtimes, worktrees, err := m.b.Restorable(ctx, id, s.generation)
	require.NoError(m, err)
	r := store.Restoration{SessionID: id, Generation: s.generation}
	if slices.ContainsFunc(runtimes, func(r store.Runtime) bool { return r.State == store.RuntimeCreating }) {
		m.Skip("what its start was about to run cannot be told")
	}
	for _, w := range worktrees {
		if m.trees[w.ID].attempt != nil {
			m.Skip("busy")
		}
	}
	for _, runtime := range runtimes {
		if s.agent {
			r.Alive = append(r.Alive, runtime.ID)
		}
	}
	var back []*modelTree
	for _, w := range worktrees {
		tree := m.trees[w.ID]
		if w.State == store.WorktreeRemoved || w.CondemnedAt != nil || tree.gone || tree.absent {
			continue
		}
		tree.aside, tree.making = false, ""
		back = append(back, tree)
		r.Intact = append(r.Intact, w.ID)
	}
	restored, err := m.b.Restore(ctx, r)
	if m.closed(s.task) {
		require.Equal(m, teardown.CodeTaskClosed, teardown.CodeOf(err))
		return
	}
	if code := teardown.CodeOf(err); code == teardown.CodeWorktreeDeleting || code == teardown.CodeWorktreeMissing {
		return // inside one that somebody else is removing
	}
	require.NoError(m, err)
	require.Len(m, restored.Worktrees, len(back))
	require.Equal(m, s.generation+1, restored.Session.Generation)
	m.takeUnmade(s)
	if _, over := s.history[s.generation]; !over {
		s.history[s.generation] = teardown.OutcomeRestored
	}
	s.live, s.launching, s.holds = true, false, slices.Clone(r.Intact)
	s.generation++
}

func (m *model) delete(*rapid.T) {
	id, s := pick(m, m.sessions, anySession, "session")
	if rapid.Bool().Draw(m.T, "at its end") {
		m.end(id, s)
		m.runSession(id, s)
		if s.step != nil {
			m.finishSession(id, s)
		}
	}
	detail, err := m.b.SessionDetail(ctx, id)
	require.NoError(m, err)
	_, deleted, err := m.b.DeleteSession(ctx, id)
	if err != nil {
		require.False(m, deleted)
		return
	}
	require.False(m, s.live || s.agent || len(s.holds) > 0, "%s is live or holds something", id)
	delete(m.sessions, id)
	m.deleted[id], s.released = s, map[modelLease]time.Time{}
	for _, l := range detail.Worktrees {
		s.released[leaseIn(l)] = *l.Lease.ReleasedAt
	}
}

func leaseIn(l store.LeasedWorktree) modelLease {
	return modelLease{worktree: l.Worktree.ID, generation: l.Lease.Generation}
}

func (m *model) turn(*rapid.T) {
	id, s := pick(m, m.sessions, anySession, "session")
	if s.turn != "" && rapid.Bool().Draw(m.T, "end") {
		_, ended, err := m.b.EndTurn(ctx, id, s.turn)
		require.NoError(m, err)
		require.True(m, ended)
		s.turn = ""
		return
	}
	busy := false
	for _, other := range m.sessions {
		shares := other == s || slices.ContainsFunc(other.holds, func(w string) bool { return slices.Contains(s.holds, w) })
		busy = busy || other.live && other.turn != "" && shares
	}
	turn := m.name("t")
	_, err := m.b.BeginTurn(ctx, id, turn, "test")
	switch {
	case !s.live:
		require.Equal(m, teardown.CodeSessionTerminated, teardown.CodeOf(err))
	case m.closed(s.task):
		require.Equal(m, teardown.CodeTaskClosed, teardown.CodeOf(err))
	case busy:
		require.Equal(m, teardown.CodeBusy, teardown.CodeOf(err))
	default:
		require.NoError(m, err)
		s.turn = turn
	}
}

// check compares the facts with the model after each step.
func (m *model) check(*rapid.T) {
	due := m.due()
	for id, s := range m.sessions {
		session, err := m.b.Session(ctx, id)
		require.NoError(m, err)
		require.Equal(m, s.generation, session.Generation, id)
		require.Equal(m, s.live, session.TerminatedAt == nil, id)
		detail, err := m.b.SessionDetail(ctx, id)
		require.NoError(m, err)
		var holds []string
		for _, l := range detail.Worktrees {
			m.checkGone(l)
			if l.Lease.ReleasedAt == nil {
				holds = append(holds, l.Worktree.ID)
				m.checkHeld(l.Worktree, id)
				require.Equal(m, s.generation, l.Lease.Generation, "an older generation holds nothing")
			}
			if at, old := s.released[leaseIn(l)]; old {
				require.True(m, l.Lease.ReleasedAt != nil && at.Equal(*l.Lease.ReleasedAt), "I6: %s was deleted, and its lease is another's: %+v", id, l.Lease)
			}
		}
		require.ElementsMatch(m, s.holds, holds, id)
		for _, runtime := range detail.Runtimes {
			gone := runtime.State == store.RuntimeReleased && runtime.ReleasedHow != "adopted by a restore"
			require.False(m, s.agent && gone, "I3: %s is recorded as gone and runs", runtime.ID)
		}
		for _, f := range detail.Finalizations {
			if outcome, over := s.history[f.Generation]; over {
				require.Equal(m, outcome, f.Outcome, "I6: %s at generation %d", id, f.Generation)
			}
		}
		over := s.live
		for _, f := range detail.Finalizations {
			over = over || f.Generation == s.generation && (f.FinishedAt != nil || f.ParkedAt != nil)
		}
		_, listed, err := m.b.DueSession(ctx, id, time.Now())
		require.NoError(m, err)
		require.Equal(m, !over && !session.Held(time.Now()), listed, "I1: %s is found from the facts alone", id)
		require.Equal(m, listed, due[id], "I10: %s is listed, whatever else is", id)
	}
	m.checkTasks()
	m.checkStarts()
	for id, w := range m.trees {
		require.LessOrEqual(m, w.removals, 1, "%s was removed twice", id)
		require.False(m, w.gone && w.dirty, "I4: work was lost in %s", id)
		row, err := m.b.Worktree(ctx, id)
		require.NoError(m, err)
		if row.State == store.WorktreeRemoved || row.State == store.WorktreePreserved && row.QuarantinePath == "" || row.State == store.WorktreeActive {
			require.False(m, w.aside, "%s is in quarantine and its row does not know", id)
		}
		if row.State == store.WorktreeRemoved {
			require.True(m, w.gone, "I3: %s is still there and its row says removed", id)
		}
	}
}

// due lists, page by page, all sessions whose finalization is due.
func (m *model) due() map[string]bool {
	due := map[string]bool{}
	for _, list := range []func(context.Context, string, int, time.Time) (store.Page[store.Due], error){m.b.NeverBegun, m.b.UnderWay} {
		for after := m.prefix; ; {
			page, err := list(ctx, after, 3, time.Now())
			require.NoError(m, err)
			for _, row := range page.Rows {
				due[row.SessionID] = true
			}
			if after = page.Next; after == "" {
				break
			}
		}
	}
	return due
}

// checkGone: what was recorded as gone was seen to be gone.
func (m *model) checkGone(l store.LeasedWorktree) {
	switch l.Lease.Disposition {
	case teardown.DispositionRemoved, teardown.DispositionAlreadyGone:
		require.True(m, m.trees[l.Worktree.ID].gone, "I3: %s is still there, and %s was told that it is gone", l.Worktree.ID, l.Lease.ID)
	}
}

// checkHeld: what somebody holds is there, unless it is still to be made.
func (m *model) checkHeld(row store.Worktree, by string) {
	tree := m.trees[row.ID]
	if tree.making != "" {
		require.Equal(m, store.WorktreeCreating, row.State, row.ID)
		return
	}
	require.True(m, tree.there(), "I9: %s is held by %s and not at its path", row.ID, by)
	require.Equal(m, store.WorktreeActive, row.State, row.ID)
}

// settle lets everything come to its end: nothing is stuck.
func (m *model) settle() {
	for _, w := range m.trees {
		w.attempt, w.dirty = nil, false
	}
	for id, s := range m.sessions {
		_, err := m.b.Hold(ctx, id, nil, "")
		require.NoError(m, err)
		m.end(id, s)
	}
	for id, t := range m.tasks {
		if t.state == store.TaskActive {
			m.setBarrier(id, t, store.TaskArchived)
		}
	}
	for range 6 {
		for id := range m.sessions {
			m.finalizeWhole(id)
		}
		for id := range m.tasks {
			m.finalizeWholeTask(id)
		}
		m.convergeAll()
	}
	for id, t := range m.tasks {
		summary, err := m.b.TaskResult(ctx, id, t.generation)
		require.NoError(m, err)
		require.Equal(m, teardown.OutcomeFinalized, summary.Outcome, "task %s does not come to its end: %+v", id, summary)
	}
	for id := range m.sessions {
		summary, err := m.b.Result(ctx, id, m.sessions[id].generation)
		require.NoError(m, err)
		require.Equal(m, teardown.OutcomeFinalized, summary.Outcome, "%s does not come to its end: %+v", id, summary)
	}
	for id, w := range m.trees {
		row, err := m.b.Worktree(ctx, id)
		require.NoError(m, err)
		require.Equal(m, store.WorktreeRemoved, row.State, "%s is left by everybody: %+v", id, row)
		require.True(m, w.gone, "%s is left on disk", id)
	}
}

func (m *model) finalizeWhole(id string) {
	if _, _, err := m.b.Retry(ctx, id, store.RetryOptions{IfParked: true}); err != nil {
		require.Equal(m, teardown.CodeConflict, teardown.CodeOf(err))
		return
	}
	begun, err := m.b.Begin(ctx, teardown.BeginInput{SessionID: id})
	require.NoError(m, err)
	for _, runtime := range begun.Runtimes {
		_, err := m.b.RuntimeReleased(ctx, begun.Step, runtime.ID, "ended", "", teardown.RuntimeResult{Outcome: teardown.RuntimeReleased})
		require.NoError(m, err)
	}
	m.removeAll(begun.Step)
}

// removeAll is a run from its release to its end.
func (m *model) removeAll(step teardown.Step) {
	for range 3 { // an ancestor is reopened by its last child
		plan, err := m.b.ReleaseLeases(ctx, step)
		require.NoError(m, err)
		for _, worktree := range planned(plan) {
			claim, err := m.b.Claim(ctx, step, worktree)
			require.NoError(m, err)
			if !claim.Go {
				continue
			}
			w := m.trees[worktree]
			w.attempt = &modelAttempt{step: step}
			for w.attempt != nil {
				m.advance(worktree, w)
			}
		}
	}
	done, err := m.b.Finish(ctx, step)
	require.NoError(m, err)
	if done.Superseded {
		_, err = m.b.Park(ctx, teardown.ParkInput{Step: step, Reason: teardown.ReasonAttemptsExhausted})
		require.NoError(m, err)
	}
}
