package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/teardown"
)

func TestForkSharesWorktreesAndTurnsAreOneAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	path := b.worktree(app, "wt")
	b.add(teardown.Manifest{ID: "s1", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: path}}})
	done := object[forked](t, b.must("session", "fork", "s1", "s2", "--json"))
	require.Equal(t, forked{SessionID: "s2", Parent: "s1", Host: done.Host, Generation: 1, Added: true, Worktrees: []string{path}}, done)
	require.Contains(t, b.must("session", "fork", "s1", "s2"), "already; nothing to do")

	require.True(t, object[turned](t, b.must("turn", "begin", "s1", "--turn", "t1", "--json")).Running)
	r := b.run("turn", "begin", "s2", "--json")
	require.Equal(t, exitRetryable, r.code)
	refused := object[printedError](t, r.stdout).Error
	require.Equal(t, teardown.CodeBusy, refused.Code)
	require.Equal(t, []string{"s1"}, refused.Details)
	require.Equal(t, exitRefused, b.run("turn", "end", "s1", "--turn", "t0").code)
	require.Contains(t, b.must("turn", "end", "s1"), "Turn t1 of session s1 has ended")
	require.Contains(t, b.must("turn", "end", "s1"), "nothing to end")
	b.must("turn", "begin", "s2")

	require.Equal(t, exitRefused, b.run("session", "fork", "nobody", "s3").code)
	require.Equal(t, exitUsage, b.run("session", "fork", "s1").code)
	require.Equal(t, exitUsage, b.run("session", "fork", "s1", "s1").code)
	require.NoError(t, os.Rename(path, path+".moved"))
	r = b.run("session", "fork", "s1", "s3", "--json")
	require.Equal(t, exitRefused, r.code)
	require.Equal(t, teardown.CodeWorktreeMissing, object[printedError](t, r.stdout).Error.Code)
	require.Contains(t, r.stderr+r.stdout, "git worktree move")
	_, _, err := b.store().Terminate(t.Context(), "s1", "test")
	require.NoError(t, err)
	r = b.run("session", "fork", "s1", "s3", "--json")
	require.Equal(t, teardown.CodeSessionTerminated, object[printedError](t, r.stdout).Error.Code)
	require.Equal(t, exitRefused, r.code)
	again := object[forked](t, b.must("session", "fork", "s1", "s2", "--json"))
	require.Equal(t, forked{SessionID: "s2", Parent: "s1", Host: done.Host, Generation: 1, Worktrees: []string{path}}, again, "again is a no-op")
	b.environment = b.environment.with("UNWIND_HOST=h2")
	r = b.run("session", "fork", "s1", "s3", "--json")
	require.Equal(t, teardown.CodeForeignHost, object[printedError](t, r.stdout).Error.Code)
	require.Equal(t, exitRefused, r.code)
}

func TestAttachGivesALiveSessionMore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	path := b.worktree(app, "wt")
	b.add(teardown.Manifest{ID: "s1", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: path}}})
	pid, _ := b.process(path)
	state := filepath.Join(b.root, "agent")
	require.NoError(t, os.Mkdir(state, 0o700))
	more := b.write("more.json", b.manifest(teardown.Manifest{
		Runtimes:  []teardown.Runtime{{Kind: teardown.KindProcess, PID: pid}},
		Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: path}, {Repository: app, Path: b.worktree(app, "wt/inner"), Parent: path}},
		Resources: []teardown.ResourceSpec{{Kind: teardown.ResourceDir, Path: state}},
	}))
	first := object[attached](t, b.must("session", "attach", "s1", "-f", more, "--json"))
	require.Equal(t, attached{SessionID: "s1", Generation: 1, Runtimes: 1, Worktrees: 1, Resources: 1}, first)
	require.Contains(t, b.must("session", "attach", "s1", "-f", more), "nothing to do")
	detail, err := b.store().SessionDetail(t.Context(), "s1")
	require.NoError(t, err)
	require.Len(t, detail.Worktrees, 2)
	require.Equal(t, detail.Worktrees[0].Worktree.ID, detail.Worktrees[1].Worktree.ParentID)
	require.Equal(t, path, detail.Runtimes[0].Handle.V.Identity.Worktree)

	other := b.write("other.json", b.manifest(teardown.Manifest{ID: "s2"}))
	require.Equal(t, exitUsage, b.run("session", "attach", "s1", "-f", other).code)
	require.Equal(t, exitRefused, b.run("session", "attach", "nobody", "-f", more).code)
	b.add(teardown.Manifest{ID: "s3"})
	r := b.run("session", "attach", "s3", "-f", more, "--json")
	require.Equal(t, exitRefused, r.code)
	require.Equal(t, teardown.CodeConflict, object[printedError](t, r.stdout).Error.Code)
}

func TestDeleteForgetsTheRowOnly(t *testing.T) {
	t.Parallel()
	b, s := parked(t)
	r := b.run("session", "delete", "s1")
	require.Equal(t, exitUsage, r.code, "nobody can be asked: %s", r.stderr)
	done := object[deleted](t, b.must("session", "delete", "s1", "--yes", "--json"))
	require.True(t, done.Deleted)
	require.Len(t, done.Stays.Worktrees, 1)
	require.DirExists(t, done.Stays.Worktrees[0].Path)
	require.Equal(t, "wt", done.Stays.Branches[0].Name)
	require.Equal(t, exitRefused, b.run("session", "delete", "s1", "--yes").code)
	b.add(teardown.Manifest{ID: "s2"})
	require.Equal(t, exitRefused, b.run("session", "delete", "s2", "--yes").code, "it is live")
	finish(t, b, s, "s3")
	require.Contains(t, b.must("session", "delete", "s3", "--yes"), "Session s3 is deleted")
}

func TestDeleteAsksOnATerminal(t *testing.T) {
	t.Parallel()
	b, s := parked(t)
	for _, answer := range []string{"n\n", "y\n"} {
		p, stdout, stderr := b.program(answer)
		p.inTerminal = true
		require.Equal(t, int(exitDone), p.execute(t.Context(), []string{"session", "delete", "s1"}), stderr.String())
		require.Contains(t, stderr.String(), "stays: worktree")
		require.Contains(t, stderr.String(), "Forget session s1?")
		if answer == "y\n" {
			require.Contains(t, stdout.String(), "is deleted")
			continue
		}
		_, err := s.Session(t.Context(), "s1")
		require.NoError(t, err)
	}
}
