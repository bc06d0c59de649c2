package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

// parked is an installation with session s1, whose one worktree was kept.
func parked(t *testing.T) (*bench, *store.Store) {
	t.Helper()
	b := setup(t)
	app := b.repository("app")
	b.add(teardown.Manifest{ID: "s1", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: b.worktree(app, "wt")}}})
	s := b.store()
	preserve(t, s, "s1")
	return b, s
}

// finish takes a session that holds nothing to its end.
func finish(t *testing.T, b *bench, s *store.Store, id string) {
	t.Helper()
	b.add(teardown.Manifest{ID: id})
	_, _, err := s.Terminate(t.Context(), id, "test")
	require.NoError(t, err)
	begun, err := s.Begin(t.Context(), teardown.BeginInput{SessionID: id, WorkflowID: teardown.FinalizeSessionID(id)})
	require.NoError(t, err)
	_, err = s.ReleaseLeases(t.Context(), begun.Step)
	require.NoError(t, err)
	finished, err := s.Finish(t.Context(), begun.Step)
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, finished.Result.Outcome)
}

func TestTerminateKeepsTheFactWhileTemporalIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.add(teardown.Manifest{ID: "s1"})
	r := b.run("terminate", "s1", "--source", "pr-merged")
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "Session s1 is terminated. Finalization will start when Temporal is back: Temporal at 127.0.0.1:1 cannot be reached")
	session, err := b.store().Session(t.Context(), "s1")
	require.NoError(t, err)
	require.NotNil(t, session.TerminatedAt)
	require.Equal(t, "pr-merged", session.TerminationSource)

	r = b.run("terminate", "s1", "--json")
	require.Equal(t, exitDone, r.code)
	done := object[terminated](t, r.stdout)
	require.False(t, done.Changed)
	require.False(t, done.Started)
	require.Equal(t, store.StateTerminated, done.State)

	r = b.run("terminate", "s1", "--wait")
	require.Equal(t, exitRetryable, r.code)
	require.Contains(t, r.stdout, "was terminated before. Finalization will start when Temporal is back")
}

func TestTerminateOfWhatIsSettled(t *testing.T) {
	t.Parallel()
	b, s := parked(t)
	finish(t, b, s, "s2")

	require.Contains(t, b.must("terminate", "s1"), "waits (preserved). Commit, move or delete what is listed")
	r := b.run("terminate", "s1", "--wait", "--json")
	require.Equal(t, exitPreserved, r.code, r.stderr)
	result := object[teardown.Result](t, r.stdout)
	require.Equal(t, teardown.OutcomePreserved, result.Outcome)
	require.Equal(t, []string{"a.txt"}, result.Worktrees[0].Details)

	r = b.run("terminate", "s1", "--wait")
	require.Equal(t, exitPreserved, r.code)
	require.Contains(t, r.stdout, "preserved (untracked)\n    a.txt\n")

	require.Contains(t, b.must("terminate", "s2"), "is finalized; nothing to do")
	require.Equal(t, teardown.OutcomeFinalized, object[teardown.Result](t, b.must("terminate", "s2", "--wait", "--json")).Outcome)
}

// A waiter never takes an older generation's result for the one it waits for.
func TestAwaitingAnOlderGeneration(t *testing.T) {
	t.Parallel()
	a := awaiting{generation: 2}
	seen := sight{Detail: store.Detail{Session: store.Session{Generation: 3}, Finalizations: []store.Finalization{
		{Holder: store.Holder{Generation: 1}, Outcome: teardown.OutcomeFinalized},
		{Holder: store.Holder{Generation: 2}},
		{Holder: store.Holder{Generation: 3}, Outcome: teardown.OutcomePreserved}}}}
	outcome, over := a.over(seen)
	require.True(t, over)
	require.Equal(t, teardown.OutcomeSuperseded, outcome)
	seen.Finalizations[1].Outcome = teardown.OutcomeRestored
	outcome, _ = a.over(seen)
	require.Equal(t, teardown.OutcomeRestored, outcome)
}

// Parked in the round before the one that a retry began is not the end of it,
// nor is a round that did not take up the request.
func TestAwaitingTheRoundOfARetry(t *testing.T) {
	t.Parallel()
	at := now()
	f := store.Finalization{Round: 1, ParkedAt: &at, ParkedReason: teardown.ReasonPreserved}
	seen := sight{Detail: store.Detail{Session: store.Session{Generation: 1}}, finalization: &f, state: store.StateParked,
		live: live{Available: true}}
	a := awaiting{generation: 1, round: 2, request: "r2"}
	_, over := a.over(seen)
	require.False(t, over)
	f.Round = 2
	_, over = a.over(seen)
	require.True(t, over)
	require.False(t, a.takenUp(seen))
	seen.live.HandledRequests = []string{"r1", "r2"}
	require.True(t, a.takenUp(seen))
}

func TestNoLongerWaitingStopsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.add(teardown.Manifest{ID: "s1"})
	p, stdout, stderr := b.program("")
	f, err := p.openFacts(t.Context())
	require.NoError(t, err)
	defer f.close()
	a := awaiting{program: p, facts: f, server: temporal{away: usageError("not asked")}, id: "s1", generation: 1}
	_, err = a.wait(cancelled())
	require.Equal(t, exitRetryable, exitOf(err))
	require.Contains(t, stderr.String(), "the finalization of s1 goes on. See `unwind status s1`.")
	require.Empty(t, stdout.String())

	p, _, stderr = b.program("")
	require.EqualValues(t, exitRetryable, p.execute(cancelled(), []string{"list"}))
	require.Equal(t, "unwind: stopped by a signal; run it again to go on\n", stderr.String())
}

func TestStatusOfAParkedSession(t *testing.T) {
	t.Parallel()
	b, _ := parked(t)
	text := b.must("status", "s1")
	for _, part := range []string{"Session s1  Worktree kept", "preserved (untracked), 2.0 KiB", "    a.txt\n",
		"(preserved): Worktree was kept", "then run `unwind retry s1`", "Live progress is not available: Temporal at"} {
		require.Contains(t, text, part)
	}
	r := object[report](t, b.must("status", "s1", "--json"))
	require.Equal(t, store.StateParked, r.State)
	require.Equal(t, teardown.ReasonPreserved, r.Finalization.ParkedReason)
	require.Equal(t, teardown.DispositionPreserved, r.Worktrees[0].Disposition)
	require.False(t, r.Live.Available)
	require.NotContains(t, b.must("status", "s1", "--json"), "Worktree kept\"", "display words are for people")
}

func TestWatchEndsWithASettledSession(t *testing.T) {
	t.Parallel()
	b, _ := parked(t)
	r := b.run("watch", "s1")
	require.Equal(t, exitPreserved, r.code, r.stderr)
	require.Equal(t, 1, strings.Count(r.stdout, "\n"))
	require.True(t, strings.HasPrefix(r.stdout, "s1\tparked\tround 1\tpreserved\t"), r.stdout)
	r = b.run("watch", "s1", "--json")
	require.Equal(t, store.StateParked, object[report](t, r.stdout).State)
}

func TestWatchRedrawsOnATerminal(t *testing.T) {
	t.Parallel()
	b, _ := parked(t)
	p, stdout, _ := b.program("")
	p.outTerminal, p.width, p.height = true, 40, 6
	o := &watchOptions{program: p, ID: "s1"}
	show := o.show()
	f, err := p.openFacts(t.Context())
	require.NoError(t, err)
	defer f.close()
	seen, err := f.look(t.Context(), "s1")
	require.NoError(t, err)
	show(seen)
	show(seen)
	drawings := strings.Split(stdout.String(), "\x1b[5A\r\x1b[J")
	require.Len(t, drawings, 2)
	require.Equal(t, drawings[0], drawings[1])
	for _, line := range strings.Split(drawings[0], "\n") {
		require.LessOrEqual(t, visible(line), 40)
	}
}

func TestListFilters(t *testing.T) {
	t.Parallel()
	b, s := parked(t)
	finish(t, b, s, "s2")
	b.add(teardown.Manifest{ID: "s3"})
	ids := func(args ...string) (ids []string) {
		text := b.must(append([]string{"list", "--json"}, args...)...)
		if text == "" {
			return nil
		}
		for _, session := range objects[summaryReport](t, text) {
			ids = append(ids, session.SessionID)
		}
		return ids
	}
	require.Equal(t, []string{"s1", "s2", "s3"}, ids())
	require.Equal(t, []string{"s1"}, ids("--state", "parked"))
	require.Equal(t, []string{"s1"}, ids("--reason", "preserved"))
	require.Equal(t, []string{"s2"}, ids("--state", "finished"))
	require.Equal(t, []string{"s3"}, ids("--state", "live", "--host", "h1"))
	require.Empty(t, ids("--host", "h2"))
	fields := strings.Split(b.must("list", "--state", "parked"), "\t")
	require.Equal(t, []string{"s1", "parked", "preserved", "h1", "1", "1", "1", "2048"}, fields[:8])
	for flag, value := range map[string]string{"--state": "gone", "--reason": "mood", "--host": "a/b"} {
		r := b.run("list", flag, value)
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.stderr, flag)
	}
}

func TestListAlignsOnATerminal(t *testing.T) {
	t.Parallel()
	b, _ := parked(t)
	p, stdout, _ := b.program("")
	p.outTerminal, p.width, p.colour = true, 200, true
	require.Zero(t, p.execute(t.Context(), []string{"list"}))
	lines := strings.Split(stdout.String(), "\n")
	require.Contains(t, lines[0], "STATE")
	require.Contains(t, lines[1], "\x1b[33mWorktree kept\x1b[0m  preserved")
}

func TestRetry(t *testing.T) {
	t.Parallel()
	b, s := parked(t)
	finish(t, b, s, "s2")
	b.add(teardown.Manifest{ID: "s3"})

	r := b.run("retry", "s3", "--json")
	require.Equal(t, exitRefused, r.code)
	require.Equal(t, teardown.CodeSessionLive, object[printedError](t, r.stdout).Error.Code)
	require.Contains(t, b.must("retry", "s2"), "already finalized; nothing to retry")

	r = b.run("retry", "s1", "--runtime-confirmed-gone")
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "is recorded (round 2) and will begin when Temporal is back: Temporal at")
	require.NotContains(t, r.stdout, "--runtime-confirmed-gone", "that part is recorded, too")
	detail, err := s.SessionDetail(t.Context(), "s1")
	require.NoError(t, err)
	require.EqualValues(t, 2, detail.Finalizations[0].Round)
	require.Nil(t, detail.Finalizations[0].ParkedAt)

	require.Equal(t, exitRetryable, b.run("retry", "s1", "--wait").code)
	require.Contains(t, b.must("retry", "--all"), "Nothing is parked")
}

func TestRetryAll(t *testing.T) {
	t.Parallel()
	b, s := parked(t)
	finish(t, b, s, "s2")
	require.Contains(t, b.must("retry", "--all", "--reason", "cancelled"), "Nothing is parked")
	require.Contains(t, b.must("retry", "--all", "--host", "h2"), "Nothing is parked")
	done := object[retried](t, b.must("retry", "--all", "--reason", "preserved", "--host", "h1", "--json"))
	require.Equal(t, "s1", done.SessionID)
	require.EqualValues(t, 2, done.Round)
	require.True(t, done.Recorded)
	require.False(t, done.Signalled)
}

func TestHold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.add(teardown.Manifest{ID: "s1"})
	require.Contains(t, b.must("hold", "s1", "--for", "1h"), "Held until 2")
	h := object[held](t, b.must("hold", "s1", "--json"))
	require.True(t, h.Held)
	require.Nil(t, h.HeldUntil)
	require.NotEmpty(t, h.HeldBy)
	require.Contains(t, b.must("terminate", "s1"), "is terminated. Held until further notice by")
	r := b.run("terminate", "s1", "--wait", "--json")
	require.Equal(t, exitRetryable, r.code)
	require.Equal(t, teardown.OutcomeDeferred, object[teardown.Result](t, r.stdout).Outcome)
	require.Contains(t, b.must("status", "s1"), "Session s1  Held")
	require.Contains(t, b.must("hold", "s1", "--release"), "Finalization will start when Temporal is back")
	require.False(t, object[held](t, b.must("hold", "s1", "--release", "--json")).Held)
	require.Contains(t, b.must("hold", "s1", "--release"), "Session s1 was not held; nothing to lift.")
	for _, args := range [][]string{{"--for", "1h", "--release"}, {"--for", "0s", "--release"}, {"--for", "-1h"}, {"--for", "0s"}} {
		r := b.run(append([]string{"hold", "s1"}, args...)...)
		require.Equal(t, exitUsage, r.code, args)
		require.Contains(t, r.stderr, "--release", args)
		require.NotContains(t, r.stderr, "flags in the group", args)
	}
	require.Equal(t, exitRefused, b.run("hold", "s2").code)
}

func TestHoldOfASessionThatIsFinished(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.store()
	finish(t, b, s, "s1")
	r := b.run("hold", "s1", "--json")
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.stderr, "session s1 is finished, so there is nothing to hold")
	session, err := s.Session(t.Context(), "s1")
	require.NoError(t, err)
	require.Empty(t, session.HeldBy)
	require.Contains(t, b.must("hold", "s1", "--release"), "was not held")
}

func TestRetryOfASessionThatIsHeld(t *testing.T) {
	t.Parallel()
	b, s := parked(t)
	b.must("hold", "s1", "--for", "1h")
	r := b.run("retry", "s1")
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "The retry of session s1 is recorded (round 2). Held until 2")
	require.Contains(t, r.stdout, "It begins when the hold ends or is lifted with `unwind hold s1 --release`.")
	require.Equal(t, exitRetryable, b.run("retry", "s1", "--wait").code)
	detail, err := s.SessionDetail(t.Context(), "s1")
	require.NoError(t, err)
	require.EqualValues(t, 3, detail.Finalizations[0].Round)
}

func TestListShowsTheNewestChange(t *testing.T) {
	t.Parallel()
	b, s := parked(t)
	detail, err := s.SessionDetail(t.Context(), "s1")
	require.NoError(t, err)
	parkedAt := *detail.Finalizations[0].ParkedAt
	require.True(t, parkedAt.After(detail.Session.UpdatedAt))
	require.True(t, parkedAt.Equal(object[summaryReport](t, b.must("list", "--json")).UpdatedAt))
	require.True(t, strings.HasSuffix(b.must("list"), "\t"+parkedAt.UTC().Format(time.RFC3339)+"\n"))
}

// Every command that takes the id of a session answers an unknown and an
// ill-formed one in the same way.
func TestUnknownAndIllFormedIDs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.store()
	for _, command := range []string{"terminate", "status", "watch", "retry", "hold", "plan"} {
		r := b.run(command, "s9", "--json")
		require.Equal(t, exitRefused, r.code, command)
		require.Contains(t, r.stderr, "There is no session s9", command)
		require.Equal(t, teardown.CodeSessionNotFound, object[printedError](t, r.stdout).Error.Code)
		r = b.run(command, "../s9", "--json")
		require.Equal(t, exitUsage, r.code, command)
		require.Equal(t, teardown.CodeInvalidID, object[printedError](t, r.stdout).Error.Code)
		require.Equal(t, exitUsage, b.run(command).code, command)
		require.Equal(t, exitUsage, b.run(command, "s1", "s2").code, command)
	}
}

func TestRestoreChangesNothingWhileTemporalIsAway(t *testing.T) {
	t.Parallel()
	b, s := parked(t)
	r := b.run("restore", "s1")
	require.Equal(t, exitUnavailable, r.code, r.stderr)
	require.Contains(t, r.stderr, "Temporal at 127.0.0.1:1 cannot be reached")
	session, err := s.Session(t.Context(), "s1")
	require.NoError(t, err)
	require.NotNil(t, session.TerminatedAt)
	require.Equal(t, int64(1), session.Generation)
	b.add(teardown.Manifest{ID: "s2"})
	r = b.run("restore", "s2", "--json")
	require.Equal(t, exitRefused, r.code)
	require.Equal(t, teardown.CodeSessionLive, object[printedError](t, r.stdout).Error.Code)
	require.Equal(t, exitRefused, b.run("restore", "nobody").code)
}
