package test

import (
	dbsql "database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"
	_ "github.com/lib/pq" // driver "postgres"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // driver "sqlite"

	"unwind/internal/store"
	"unwind/teardown"
)

// otherProgram is somebody else's connection to the database.
func (i *installation) otherProgram() *sqlx.DB {
	i.t.Helper()
	driver, source := "postgres", i.database
	if path, isFile := strings.CutPrefix(i.database, "sqlite://"); isFile {
		driver, source = "sqlite", path+"?_pragma=busy_timeout(20000)"
	}
	db, err := sqlx.Open(driver, source)
	require.NoError(i.t, err)
	db.SetMaxOpenConns(1)
	return db
}

// query reads one row, as somebody else's program does; none leaves into as it is.
func (i *installation) query(statement string, into ...any) {
	i.t.Helper()
	db := i.otherProgram()
	defer func() { _ = db.Close() }()
	if err := db.QueryRowContext(i.t.Context(), statement).Scan(into...); !errors.Is(err, dbsql.ErrNoRows) {
		require.NoError(i.t, err, statement)
	}
}

// sql runs statements on one connection, as somebody else's program does.
func (i *installation) sql(statements ...string) {
	i.t.Helper()
	db := i.otherProgram()
	defer func() { _ = db.Close() }()
	for _, statement := range statements {
		_, err := db.ExecContext(i.t.Context(), statement)
		require.NoError(i.t, err, statement)
	}
}

func TestAgentThatExitsEndsItsSession(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		a := i.agent("s1")
		i.add(a)
		i.worker()
		s := i.store()
		i.until("a pass", func() bool { _, seen, err := s.Host(t.Context(), i.host); return err == nil && seen })
		session, err := s.Session(t.Context(), a.id)
		require.NoError(t, err)
		require.Nil(t, session.TerminatedAt, "a living agent is left alone")
		i.killAgent(a)
		i.untilFinished(s, a.id)
		i.requireReleased(a)
		session, err = s.Session(t.Context(), a.id)
		require.NoError(t, err)
		require.Equal(t, teardown.SourceRuntimeExit, session.TerminationSource)
	})
}

// exited is a session whose agent is gone, with work that nobody has committed.
func (i *installation) exited(name string) *agent {
	i.t.Helper()
	a := i.agent(name)
	write(i.t, filepath.Join(a.worktree, "draft.md"), "mine\n")
	i.add(a)
	i.killAgent(a)
	return a
}

func TestAgentThatExitsLeavesWorkThatIsSavedAndKept(t *testing.T) {
	t.Parallel()
	i := install(t)
	a := i.exited("s1")
	i.worker()
	s := i.store()
	i.untilParked(s, a.id, teardown.ReasonPreserved)
	require.FileExists(t, filepath.Join(a.worktree, "draft.md"))
	result, err := s.Result(t.Context(), a.id, 1)
	require.NoError(t, err)
	require.NotEmpty(t, result.Worktrees[0].SavedRef)
	require.Equal(t, "mine", i.git(a.repository, "show", result.Worktrees[0].SavedRef+":draft.md"))
	i.result(0, "retry", a.id, "--save-changes", "--wait")
	i.requireReleased(a)
}

func TestDeletedSessionSaysWhatStays(t *testing.T) {
	t.Parallel()
	i := install(t)
	a := i.exited("s1")
	w := i.worker()
	s := i.store()
	i.untilParked(s, a.id, teardown.ReasonPreserved)
	w.stop()
	result, err := s.Result(t.Context(), a.id, 1)
	require.NoError(t, err)
	ref := result.Worktrees[0].SavedRef
	said := i.must("session", "delete", a.id, "--yes", "--json").out
	for _, stays := range []string{
		`"saved_refs":[{"repository":"` + a.repository + `/.git","name":"` + ref + `"}]`,
		`"path":"` + a.worktree + `"`, `"` + a.directory + `"`, `"name":"agent/` + a.id + `"`,
	} {
		require.Contains(t, said, stays)
	}
	require.Equal(t, "mine", i.git(a.repository, "show", ref+":draft.md"))
	require.FileExists(t, filepath.Join(a.worktree, "draft.md"))
	require.DirExists(t, a.directory)
}

// vanish deletes the session's row alone.
func (i *installation) vanish(id string) {
	i.t.Helper()
	remove := "DELETE FROM sessions WHERE id = '" + id + "'"
	if strings.HasPrefix(i.database, "sqlite:") {
		i.sql("PRAGMA foreign_keys = OFF", remove)
		return
	}
	i.sql("SET session_replication_role = replica", remove)
}

func TestSessionWhoseRowVanishedIsReleased(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		a := i.agent("s1")
		write(t, filepath.Join(a.nested, "draft.md"), "mine\n")
		i.add(a)
		s := i.store()
		worktrees := i.worktreesOf(s, a.id)
		i.vanish(a.id)
		i.worker()
		i.until("the runtime ended", func() bool { return !i.hasTmuxSession(a) })
		i.until("its secret gone", func() bool { return !exists(a.secret) })
		i.until("both worktrees kept", func() bool {
			for _, w := range worktrees {
				if now, err := s.Worktree(t.Context(), w.ID); err != nil || now.State != store.WorktreePreserved {
					return false
				}
			}
			return true
		})
		require.FileExists(t, filepath.Join(a.nested, "draft.md"), "nothing that a person could lose is deleted")
		require.DirExists(t, a.directory, "what a restore by hand would need stays with the worktree")
		i.until("the reason shown", func() bool { return strings.Contains(i.unwind("reconcile").errors, "is kept (untracked: draft.md)") })
		// It becomes clean; what was kept is looked at again now and then.
		require.NoError(t, os.Remove(filepath.Join(a.nested, "draft.md")))
		i.sql("UPDATE worktrees SET updated_at = '2001-01-01 00:00:00+00:00'")
		i.until("the worktrees gone", func() bool { return !exists(a.worktree) })
		i.until("its other resources gone", func() bool { return !exists(a.directory) })
	})
}

func (i *installation) hasTmuxSession(a *agent) bool {
	i.t.Helper()
	listing, err := exec.Command("tmux", "-S", a.socket, "list-sessions", "-F", "#{session_name}").CombinedOutput()
	require.NoError(i.t, err, string(listing))
	return slices.Contains(strings.Fields(string(listing)), a.tmuxSession)
}

func TestWorkerKilledWhileItFinishesAStray(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"stray claimed", "stray moved aside", "stray removed"} {
		t.Run(point, func(t *testing.T) {
			onBothDatabases(t, func(t *testing.T, i *installation) {
				a := i.agent("s1")
				i.add(a)
				i.killAgent(a)
				i.must("hold", a.id)
				i.sql("UPDATE leases SET released_at = acquired_at")
				i.workerThatDiesAt(point).awaitDeath(t)
				i.worker()
				i.until("the worktrees gone", func() bool { return !exists(a.worktree) })
				s := i.store()
				i.until("the rows follow", func() bool {
					w := i.worktreesOf(s, a.id)
					return w[0].State == store.WorktreeRemoved && w[1].State == store.WorktreeRemoved
				})
				require.NotContains(t, i.git(a.repository, "worktree", "list"), a.worktree)
			})
		})
	}
}

func TestWorkerKilledWhileItReleasesASessionWhoseRowVanished(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		a := i.agent("s1")
		i.add(a)
		i.vanish(a.id)
		i.workerThatDiesAt("vanished runtimes ended").awaitDeath(t)
		require.False(t, i.hasTmuxSession(a))
		require.FileExists(t, a.secret)
		i.worker()
		i.until("its secret gone", func() bool { return !exists(a.secret) })
		i.until("the worktrees gone", func() bool { return !exists(a.worktree) })
		i.until("its other resources gone", func() bool { return !exists(a.directory) })
	})
}

func TestWorkerKilledWhenItHasSavedTheWorkOfAnAgentThatExited(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		a := i.exited("s1")
		i.workerThatDiesAt("work saved").awaitDeath(t)
		s := i.store()
		session, err := s.Session(t.Context(), a.id)
		require.NoError(t, err)
		require.Nil(t, session.TerminatedAt, "what is saved is not recorded")
		i.worker()
		i.untilParked(s, a.id, teardown.ReasonPreserved)
		session, err = s.Session(t.Context(), a.id)
		require.NoError(t, err)
		require.Equal(t, teardown.SourceRuntimeExit, session.TerminationSource)
		require.FileExists(t, filepath.Join(a.worktree, "draft.md"))
		saved := strings.Fields(i.git(a.repository, "for-each-ref", "--format=%(refname)", "refs/unwind/saved"))
		require.Len(t, saved, 1, "the same is saved once")
		require.Equal(t, "mine", i.git(a.repository, "show", saved[0]+":draft.md"))
	})
}

// A worktree is kept because another session's is inside it. When that one goes,
// nobody has to retry.
func TestParentKeptForAnotherSessionsWorktreeGoesAfterIt(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		outer := i.agent("s1")
		inner := i.agent("s2")
		outer.manifest.Worktrees, inner.manifest.Worktrees = outer.manifest.Worktrees[:1], outer.manifest.Worktrees[1:]
		i.add(outer)
		i.add(inner)
		i.worker()
		i.result(3, "terminate", outer.id, "--wait")
		s := i.store()
		i.untilParked(s, outer.id, teardown.ReasonPreserved)
		require.DirExists(t, outer.nested)
		i.must("terminate", inner.id)
		i.untilFinished(s, inner.id)
		i.untilFinished(s, outer.id)
		require.NoDirExists(t, outer.worktree)
	})
}
