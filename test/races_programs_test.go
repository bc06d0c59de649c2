package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
	"unwind/test/interleave"
)

// Two workers of one host finalize many sessions that end at once: each comes to
// its end in its first round, its worktree is removed once, and both have worked.
func TestProcessesTwoWorkers(t *testing.T) {
	t.Parallel()
	for _, dialect := range []store.Dialect{store.SQLite, store.Postgres} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			i := inMemory(t, dialect)
			var from []*lane
			for number := range 4 {
				from = append(from, i.lane(t, fmt.Sprintf("lane%d", number)))
			}
			facts := i.store()
			held := map[string]store.NewWorktree{}
			var ids []string
			for n := range interleave.Times(6) {
				l := from[n%len(from)]
				id := l.name("s", n)
				held[id] = l.worktree(id)
				l.session(id, "", held[id])
				ids = append(ids, id)
			}
			workers := []*worker{i.worker(), i.worker()}
			for _, w := range workers {
				i.upAndQuiet(w)
			}
			began := time.Now()
			for _, id := range ids {
				_, _, err := facts.Terminate(t.Context(), id, "test")
				require.NoError(t, err)
			}
			i.untilAllFinished(facts, ids)
			t.Logf("%d sessions in %v", len(ids), time.Since(began).Round(time.Second))
			for n, id := range ids {
				l := from[n%len(from)]
				detail, err := facts.SessionDetail(t.Context(), id)
				require.NoError(t, err)
				require.Len(t, detail.Finalizations, 1)
				require.Equal(t, teardown.OutcomeFinalized, detail.Finalizations[0].Outcome)
				require.Equal(t, int64(1), detail.Finalizations[0].Round, "nobody had to retry")
				l.requireGone(held[id])
				l.requireRemovedBy(held[id], id)
				require.NoFileExists(t, filepath.Join(i.dir, "secrets", id))
			}
			require.Len(t, i.workedOn(ids), 2, "both have taken part")
			for _, w := range workers {
				require.NotContains(t, w.log.String(), "DATA RACE")
			}
		})
	}
}

// untilAllFinished waits for as long as one after another comes to its end.
func (i *installation) untilAllFinished(facts *store.Store, ids []string) {
	i.t.Helper()
	for len(ids) > 0 {
		i.until(fmt.Sprintf("another one finished, of %d that are left", len(ids)), func() bool {
			before := len(ids)
			left := ids[:0:0]
			for n, id := range ids {
				if n >= 50 || finalization(i.t, facts, id).FinishedAt == nil {
					left = append(left, id)
				}
			}
			ids = left
			return len(ids) < before
		})
	}
}

// workedOn lists who did the steps on the host, until it knows of two.
func (i *installation) workedOn(ids []string) map[string]bool {
	i.t.Helper()
	who := map[string]bool{}
	for _, id := range ids {
		for _, event := range i.history(teardown.FinalizeSessionID(id)).Events {
			if started := event.GetActivityTaskStartedEventAttributes(); started != nil {
				who[started.Identity] = true
			}
		}
		if len(who) > 1 {
			break
		}
	}
	return who
}

// Two commands at once, each a process, beside a worker: exactly one of them wins,
// and whatever comes of it no worktree is lost.
func TestProcessesTwoCommands(t *testing.T) {
	eachInterleaving(t, 6, 1, func(l *lane) func(int) string {
		races := []func(n int) string{l.terminateTwice, l.addTwice, l.archiveAgainstAdd, l.deleteAgainstFork, l.retryAgainstRestore}
		return func(n int) string { return races[n%len(races)](n) }
	})
}

// command is one to run: its arguments and its standard input.
type command struct {
	args  []string
	input string
	after time.Duration
}

func run(args ...string) command { return command{args: args} }

// atOnce runs two commands, either of which may be a little ahead.
func (l *lane) atOnce(first, second command) (one, other answer) {
	l.t.Helper()
	var both sync.WaitGroup
	for _, c := range []struct {
		command
		came *answer
	}{{first, &one}, {second, &other}} {
		both.Go(func() {
			time.Sleep(soon(20*time.Millisecond) + c.after)
			*c.came = l.unwindWith(c.input, append(c.args, "--json")...)
		})
	}
	both.Wait()
	for _, a := range []answer{one, other} {
		require.NotContains(l.t, a.errors, "DATA RACE")
	}
	return one, other
}

func (l *lane) terminateTwice(n int) string {
	id := l.name("s", n)
	w := l.worktree(id)
	l.session(id, "", w)
	one, other := l.atOnce(run("terminate", id, "--source", "one"), run("terminate", id, "--source", "other"))
	changed := 0
	for _, a := range []answer{one, other} {
		require.Equal(l.t, 0, a.code, a.errors)
		var said struct {
			Changed bool `json:"changed"`
		}
		require.NoError(l.t, json.Unmarshal([]byte(a.out), &said))
		if said.Changed {
			changed++
		}
	}
	require.Equal(l.t, 1, changed, "%s%s", one.out, other.out)
	l.untilFinished(l.facts, id)
	l.requireGone(w)
	l.requireRemovedBy(w, id)
	return "terminated once"
}

// addTwice: two sessions register one worktree.
func (l *lane) addTwice(n int) string {
	first, second := l.name("a", n), l.name("b", n)
	path := filepath.Join(l.dir, "wt", first)
	l.git(l.repository, "worktree", "add", "-q", "-b", "agent/"+first, path)
	one, other := l.atOnce(l.add1(first, "", path), l.add1(second, "", path))
	winner, loser := first, other
	if one.code != 0 {
		winner, loser = second, one
	}
	require.Equal(l.t, []int{0, 65}, []int{min(one.code, other.code), max(one.code, other.code)}, "%s%s", one.errors, other.errors)
	require.Equal(l.t, teardown.CodeConflict, printedCode(l.t, loser))
	require.Contains(l.t, loser.out, winner, "the holder is named")
	row, held, found, err := l.facts.WorktreeAt(l.t.Context(), l.host, path)
	require.NoError(l.t, err)
	require.True(l.t, found)
	require.Equal(l.t, store.WorktreeActive, row.State)
	require.Len(l.t, held, 1)
	require.Equal(l.t, winner, held[0].ID)
	return "registered once"
}

func (l *lane) add1(id, task, path string) command {
	l.t.Helper()
	manifest, err := json.Marshal(teardown.Manifest{ID: id, TaskID: task, Worktrees: []teardown.WorktreeSpec{{Repository: l.repository, Path: path}}})
	require.NoError(l.t, err)
	return command{args: []string{"session", "add", "-f", "-"}, input: string(manifest)}
}

// archiveAgainstAdd: what was registered is ended with the task, what was refused
// is not touched.
func (l *lane) archiveAgainstAdd(n int) string {
	id, task := l.name("s", n), l.name("t", n)
	_, _, err := l.facts.AddTask(l.t.Context(), store.NewTask{ID: task, Host: l.host})
	require.NoError(l.t, err)
	path := filepath.Join(l.dir, "wt", id)
	l.git(l.repository, "worktree", "add", "-q", "-b", "agent/"+id, path)
	archive := run("task", "archive", task)
	archive.after = soon(200 * time.Millisecond) // a registration looks at the worktree first
	archived, added := l.atOnce(archive, l.add1(id, task, path))
	require.Equal(l.t, 0, archived.code, archived.errors)
	l.untilTaskFinished(l.facts, task)
	if added.code != 0 {
		require.Equal(l.t, 65, added.code, added.errors)
		require.Equal(l.t, teardown.CodeTaskClosed, printedCode(l.t, added))
		_, err := l.facts.Session(l.t.Context(), id)
		require.Equal(l.t, teardown.CodeSessionNotFound, teardown.CodeOf(err))
		require.FileExists(l.t, filepath.Join(path, "README.md"))
		return "refused, the task archived"
	}
	require.False(l.t, l.live(id))
	require.Equal(l.t, teardown.OutcomeFinalized, finalization(l.t, l.facts, id).Outcome)
	require.NoDirExists(l.t, path)
	return "registered, and ended with the task"
}

// deleteAgainstFork: a session's row is deleted while its id is asked for anew.
func (l *lane) deleteAgainstFork(n int) string {
	parent, child := l.name("p", n), l.name("c", n)
	w := l.worktree(parent)
	l.session(parent, "", w)
	l.session(child, "")
	_, _, err := l.facts.Terminate(l.t.Context(), child, "test")
	require.NoError(l.t, err)
	l.untilFinished(l.facts, child)
	deleted, forked := l.atOnce(run("session", "delete", child, "--yes"), run("session", "fork", parent, child))
	if forked.code != 0 {
		require.Equal(l.t, 65, forked.code, forked.errors)
		require.Equal(l.t, teardown.CodeConflict, printedCode(l.t, forked), "the id is taken")
		require.Equal(l.t, 0, deleted.code, deleted.errors)
		_, err := l.facts.Session(l.t.Context(), child)
		require.Equal(l.t, teardown.CodeSessionNotFound, teardown.CodeOf(err))
		l.requireThere(w, parent)
		return "deleted, the fork refused"
	}
	require.Equal(l.t, 0, deleted.code, "the fork's id was free: %s", deleted.errors)
	require.True(l.t, l.live(child))
	session, err := l.facts.Session(l.t.Context(), child)
	require.NoError(l.t, err)
	require.Equal(l.t, int64(2), session.Generation, "above all generations that are known of the id")
	l.requireThere(w, parent, child)
	return "deleted, then forked"
}

// retryAgainstRestore: the work that keeps the worktree is there, and the session
// is live, whichever comes first.
func (l *lane) retryAgainstRestore(n int) string {
	id := l.name("s", n)
	w := l.worktree(id)
	draft := filepath.Join(w.Path, "draft.md")
	write(l.t, draft, "mine\n")
	l.session(id, "", w)
	_, _, err := l.facts.Terminate(l.t.Context(), id, "test")
	require.NoError(l.t, err)
	l.untilParked(l.facts, id, teardown.ReasonPreserved)
	retried, restored := l.atOnce(run("retry", id), run("restore", id))
	came := "retried, then restored"
	if retried.code != 0 {
		require.Equal(l.t, 65, retried.code, retried.errors)
		require.Equal(l.t, teardown.CodeSessionLive, printedCode(l.t, retried))
		came = "restored, the retry refused"
	}
	if restored.code == 75 { // the round was under way for longer than it waits
		came = "retried, the restore had to wait"
		restored = l.must("restore", id)
	}
	require.Equal(l.t, 0, restored.code, restored.errors)
	require.True(l.t, l.live(id))
	l.requireThere(w, id)
	content, err := os.ReadFile(draft)
	require.NoError(l.t, err)
	require.Equal(l.t, "mine\n", string(content))
	return came
}
