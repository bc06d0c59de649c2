package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

// restore runs `unwind restore`, which has to succeed.
func (i *installation) restore(a *agent) teardown.RestoreResult {
	i.t.Helper()
	var restored teardown.RestoreResult
	require.NoError(i.t, json.Unmarshal([]byte(i.must("restore", a.id, "--json").out), &restored))
	return restored
}

// gone and restoredNames list the parts by their names.
func gone(parts []teardown.RestoredPart) []string {
	var names []string
	for _, part := range parts {
		if part.Gone {
			names = append(names, part.Name)
		}
	}
	return names
}

func restoredNames(parts []teardown.RestoredPart) []string {
	var names []string
	for _, part := range parts {
		if !part.Gone {
			names = append(names, part.Name)
		}
	}
	slices.Sort(names)
	return names
}

// requireLive checks the facts of a session that was restored once.
func (i *installation) requireLive(s *store.Store, a *agent, holds ...string) {
	i.t.Helper()
	detail, err := s.SessionDetail(i.t.Context(), a.id)
	require.NoError(i.t, err)
	require.Nil(i.t, detail.Session.TerminatedAt)
	require.Equal(i.t, int64(2), detail.Session.Generation)
	var held []string
	for _, leased := range detail.Worktrees {
		if leased.Lease.Generation != 2 {
			require.NotNil(i.t, leased.Lease.ReleasedAt)
			continue
		}
		require.Nil(i.t, leased.Lease.ReleasedAt)
		require.Equal(i.t, store.WorktreeActive, leased.Worktree.State)
		require.Empty(i.t, leased.Worktree.QuarantinePath)
		held = append(held, leased.Worktree.Path)
	}
	require.Equal(i.t, holds, held)
	require.Equal(i.t, teardown.OutcomeRestored, detail.Finalizations[0].Outcome)
}

func (i *installation) untilRunEnded(a *agent, outcome teardown.Outcome) {
	i.t.Helper()
	var result teardown.Result
	require.NoError(i.t, i.client.GetWorkflow(i.t.Context(), teardown.FinalizeSessionID(a.id), "").Get(i.t.Context(), &result))
	require.Equal(i.t, outcome, result.Outcome)
}

func TestRestoreOfAParkedSessionAndANewFinalization(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		i.worker()
		a := i.agent("s1")
		draft := filepath.Join(a.nested, "draft.md")
		write(t, draft, "mine\n")
		i.add(a)
		i.result(3, "terminate", a.id, "--wait")

		restored := i.restore(a)
		require.Equal(t, int64(2), restored.Generation)
		require.Equal(t, []string{a.worktree, a.nested}, restoredNames(restored.Worktrees))
		require.Equal(t, []string{a.tmuxSession}, gone(restored.Runtimes))
		require.Equal(t, []string{a.secret}, gone(restored.Resources), "secrets go with the runtime")
		require.Equal(t, []string{a.directory}, restoredNames(restored.Resources))
		i.untilRunEnded(a, teardown.OutcomeRestored)
		s := i.store()
		i.requireLive(s, a, a.worktree, a.nested)
		require.FileExists(t, draft)

		again := i.unwind("restore", a.id)
		require.Equal(t, 65, again.code, again.errors)
		require.Contains(t, again.errors, "is live, at generation 2")

		// A new generation has facts of its own; those of the first stay.
		second := i.result(3, "terminate", a.id, "--wait")
		require.Equal(t, int64(2), second.Generation)
		require.Empty(t, second.Runtimes)
		require.Equal(t, 0, second.Resources.Cleared)
		require.NoError(t, os.Remove(draft))
		third := i.result(0, "retry", a.id, "--wait")
		require.Equal(t, int64(2), third.Generation)
		require.Equal(t, 1, third.Resources.Cleared)
		i.requireReleased(a)
		detail, err := s.SessionDetail(t.Context(), a.id)
		require.NoError(t, err)
		require.Len(t, detail.Finalizations, 2)
		require.Equal(t, teardown.OutcomeRestored, detail.Finalizations[0].Outcome)
		require.Equal(t, teardown.OutcomeFinalized, detail.Finalizations[1].Outcome)
		require.Contains(t, i.must("status", a.id, "--all").out, "restored")
	})
}

func TestRestoreWaitsForTheStepThatIsUnderWay(t *testing.T) {
	t.Parallel()
	i := install(t)
	a := i.agent("s1")
	write(t, filepath.Join(a.nested, "draft.md"), "mine\n")
	i.add(a)
	hold, mark := filepath.Join(i.dir, "hold"), filepath.Join(i.dir, "fault")
	write(t, hold, "")
	i.worker("UNWIND_FAULT_POINT=worktree kept", "UNWIND_FAULT_MARK="+mark, "UNWIND_FAULT_HOLD="+hold)
	i.must("terminate", a.id)
	i.until("the step under way", func() bool { return exists(mark) })
	_, err := teardown.Restore(t.Context(), i.client, i.queue, a.id, teardown.RestoreRequest{})
	require.Equal(t, teardown.CodeBusy, teardown.CodeOf(err), "%v", err)
	require.Contains(t, err.Error(), "Remove worktree lib")
	ended := make(chan answer)
	go func() { ended <- i.unwind("restore", a.id) }()
	require.NoError(t, os.Remove(hold))
	last := <-ended
	require.Equal(t, 0, last.code, last.errors)
	i.requireLive(i.store(), a, a.worktree, a.nested)
	i.untilRunEnded(a, teardown.OutcomeRestored)
	require.FileExists(t, filepath.Join(a.nested, "draft.md"))
}

func TestRestoreAdoptsARuntimeThatLives(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	i.add(a)
	i.must("hold", a.id)
	i.must("terminate", a.id)
	restored := i.restore(a)
	require.Equal(t, []string{a.tmuxSession}, restoredNames(restored.Runtimes))
	require.Empty(t, gone(restored.Resources))
	s := i.store()
	i.requireLive(s, a, a.worktree, a.nested)
	result := i.result(0, "terminate", a.id, "--wait")
	require.Equal(t, int64(2), result.Generation, "the hold ended with the restore")
	require.Len(t, result.Runtimes, 1)
	require.Equal(t, teardown.RuntimeReleased, result.Runtimes[0].Outcome)
	i.requireReleased(a)
}

func TestRestoreAfterTheRunWasLost(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	write(t, filepath.Join(a.worktree, "draft.md"), "mine\n")
	i.add(a)
	i.result(3, "terminate", a.id, "--wait")
	require.NoError(t, i.client.TerminateWorkflow(t.Context(), teardown.FinalizeSessionID(a.id), "", "lost"))
	restored := i.restore(a)
	require.Equal(t, []string{a.worktree}, restoredNames(restored.Worktrees))
	require.Equal(t, []string{a.nested}, gone(restored.Worktrees))
	i.untilRunEnded(a, teardown.OutcomeRestored)
	require.FileExists(t, filepath.Join(a.worktree, "draft.md"))
	i.requireLive(i.store(), a, a.worktree)
}

// A restore gives back what there is of a session whose start was cut off: it
// starts nothing, and what is found by its tag is adopted.
func TestRestoreOfASessionWhoseStartWasCutOff(t *testing.T) {
	t.Parallel()
	for point, there := range map[string]struct{ runtimes, worktrees, resources int }{
		"start recorded":            {0, 0, 0},
		"resource made":             {0, 0, 1},
		"worktree made":             {0, 1, 3},
		"runtime started":           {1, 2, 3},
		"start of runtime recorded": {1, 2, 3},
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			i := install(t)
			s := i.toStart("s1")
			killed := i.workerThatDiesAt(point)
			_, err := teardown.StartSession(t.Context(), i.client, i.queue, i.input(s))
			require.NoError(t, err)
			killed.awaitDeath(t)
			i.must("hold", s.id)
			i.must("terminate", s.id)
			i.worker()
			restored := i.restore(s.agent)
			require.Equal(t, int64(2), restored.Generation)
			require.Len(t, restoredNames(restored.Runtimes), there.runtimes)
			require.Len(t, restoredNames(restored.Worktrees), there.worktrees)
			require.Len(t, restoredNames(restored.Resources), there.resources)
			facts := i.store()
			detail, err := facts.SessionDetail(t.Context(), s.id)
			require.NoError(t, err)
			require.Nil(t, detail.Session.TerminatedAt)
			processes := tagged(t, facts, s.id)
			if there.runtimes == 1 {
				require.Contains(t, i.sessionsAt(s.socket), s.tmuxSession)
			}
			// A worktree around one that was never made waits for the pass that
			// takes that off the books.
			i.must("terminate", s.id)
			i.until("finished again", func() bool {
				f := finalization(t, facts, s.id)
				return f.Generation == 2 && f.FinishedAt != nil
			})
			for _, pid := range processes {
				require.NotContains(t, tagged(t, facts, s.id), pid)
			}
			for _, path := range []string{s.worktree, s.nested, s.directory} {
				require.False(t, exists(path), path)
			}
			require.NotContains(t, i.sessionsAt(s.socket), s.tmuxSession)
		})
	}
}

func TestRestoreSaysWhatToDoWhenARuntimeCannotBeTold(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	i.add(a)
	i.must("hold", a.id)
	i.must("terminate", a.id)
	server, err := strconv.Atoi(a.serverPID)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Kill(server, syscall.SIGCONT) })
	require.NoError(t, syscall.Kill(server, syscall.SIGSTOP))
	refused := i.unwind("restore", a.id)
	require.Equal(t, 75, refused.code, refused.errors)
	for _, advice := range []string{"kill -CONT " + a.serverPID, "unwind retry " + a.id + " --runtime-confirmed-gone"} {
		require.Contains(t, refused.errors, advice)
	}
	require.NoError(t, syscall.Kill(server, syscall.SIGCONT))
	require.Equal(t, []string{a.tmuxSession}, restoredNames(i.restore(a).Runtimes))
}

// Faults 4, 5 and 7: what was moved aside is put back, what is condemned is not.
func TestRestoreOfAnUnfinishedRemoval(t *testing.T) {
	t.Parallel()
	quarantines := func(a *agent) []string {
		found, _ := filepath.Glob(filepath.Join(a.worktree, ".lib.unwind-*"))
		return found
	}
	interrupted := func(t *testing.T, point string) (*installation, *agent) {
		i := install(t)
		a := i.agent("s1")
		i.add(a)
		killed := i.workerThatDiesAt(point)
		i.must("terminate", a.id)
		killed.awaitDeath(t)
		i.must("hold", a.id)
		i.worker()
		// The step that was cut off is tried again and finds the session held.
		i.untilRunEnded(a, teardown.OutcomeDeferred)
		require.Len(t, quarantines(a), 1)
		return i, a
	}
	t.Run("moved aside", func(t *testing.T) {
		t.Parallel()
		i, a := interrupted(t, "moved aside")
		restored := i.restore(a)
		require.Equal(t, []string{a.worktree, a.nested}, restoredNames(restored.Worktrees))
		require.Empty(t, quarantines(a))
		require.FileExists(t, filepath.Join(a.nested, "README.md"))
		i.requireLive(i.store(), a, a.worktree, a.nested)
		require.Equal(t, teardown.OutcomeFinalized, i.result(0, "terminate", a.id, "--wait").Outcome)
		i.requireReleased(a)
	})
	t.Run("and the worker is killed when it has put it back", func(t *testing.T) {
		t.Parallel()
		i := install(t)
		a := i.agent("s1")
		i.add(a)
		killed := i.workerThatDiesAt("moved aside")
		i.must("terminate", a.id)
		killed.awaitDeath(t)
		i.must("hold", a.id)
		again := i.workerThatDiesAtMark("put back", filepath.Join(i.dir, "fault 2"))
		i.untilRunEnded(a, teardown.OutcomeDeferred)
		ended := make(chan answer)
		go func() { ended <- i.unwind("restore", a.id, "--json") }()
		again.awaitDeath(t)
		i.worker()
		require.Equal(t, 75, (<-ended).code, "whether it was restored is not known")
		require.Equal(t, []string{a.worktree, a.nested}, restoredNames(i.restore(a).Worktrees))
		require.Empty(t, quarantines(a))
		i.requireLive(i.store(), a, a.worktree, a.nested)
		require.Equal(t, teardown.OutcomeFinalized, i.result(0, "terminate", a.id, "--wait").Outcome)
		i.requireReleased(a)
	})
	t.Run("and its path is taken", func(t *testing.T) {
		t.Parallel()
		i, a := interrupted(t, "moved aside")
		write(t, filepath.Join(a.nested, "theirs.md"), "theirs\n")
		refused := i.unwind("restore", a.id, "--json")
		require.Equal(t, 65, refused.code, refused.errors)
		require.Contains(t, refused.out, string(teardown.CodePathOccupied))
		s := i.store()
		session, err := s.Session(t.Context(), a.id)
		require.NoError(t, err)
		require.NotNil(t, session.TerminatedAt)
		require.Equal(t, int64(1), session.Generation)
		require.True(t, session.Held(session.UpdatedAt))
		for _, w := range i.worktreesOf(s, a.id) {
			require.Equal(t, store.WorktreeDeleting, w.State)
		}
		require.FileExists(t, filepath.Join(a.nested, "theirs.md"))
		require.Len(t, quarantines(a), 1)
		require.NoError(t, os.RemoveAll(a.nested))
		require.Len(t, restoredNames(i.restore(a).Worktrees), 2)
	})
	t.Run("condemned", func(t *testing.T) {
		t.Parallel()
		i, a := interrupted(t, "condemned")
		restored := i.restore(a)
		require.Equal(t, []string{a.nested}, gone(restored.Worktrees))
		require.Equal(t, []string{a.worktree}, restoredNames(restored.Worktrees))
		s := i.store()
		i.requireLive(s, a, a.worktree)
		for _, w := range i.worktreesOf(s, a.id) {
			// A pass may have finished it by now.
			if w.Path == a.nested && w.State != store.WorktreeRemoved {
				require.Equal(t, store.WorktreeDeleting, w.State, "it is only ever deleted")
				require.NotNil(t, w.CondemnedAt)
			}
		}
	})
}

func TestRestoreOfAFinalizedSessionListsWhatIsGone(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	i.add(a)
	i.result(0, "terminate", a.id, "--wait")
	text := i.must("restore", a.id).out
	require.Contains(t, text, "live again, at generation 2")
	require.Equal(t, 5, strings.Count(text, "already gone"), text)
	detail, err := i.store().SessionDetail(t.Context(), a.id)
	require.NoError(t, err)
	require.Nil(t, detail.Session.TerminatedAt)
	require.Equal(t, teardown.OutcomeFinalized, detail.Finalizations[0].Outcome, "what was done stays known")
}

func TestRestoreIsRefusedWhenItsHostIsAway(t *testing.T) {
	t.Parallel()
	one := installOnPostgres(t)
	two := one.elsewhere("h2")
	there := two.agent("there")
	two.add(there)
	one.worker()
	one.must("hold", there.id)
	one.must("terminate", there.id)
	refused := one.unwind("restore", there.id, "--json")
	require.Equal(t, 75, refused.code, refused.errors)
	require.Contains(t, refused.out, string(teardown.CodeHostUnreachable))
	session, err := one.store().Session(t.Context(), there.id)
	require.NoError(t, err)
	require.NotNil(t, session.TerminatedAt)
	require.Equal(t, int64(1), session.Generation)
	two.worker()
	require.Equal(t, []string{there.tmuxSession}, restoredNames(one.restore(there).Runtimes))
}
