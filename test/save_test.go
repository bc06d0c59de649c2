package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/worktree"
	"unwind/teardown"
)

// dirty leaves staged, unstaged and untracked work in a worktree, and answers
// what git says of it.
func (i *installation) dirty(dir string) (status string) {
	i.t.Helper()
	write(i.t, filepath.Join(dir, "README.md"), "# staged\n")
	i.git(dir, "add", "README.md")
	write(i.t, filepath.Join(dir, "README.md"), "# staged, and more\n")
	write(i.t, filepath.Join(dir, "draft.md"), "mine\n")
	require.NoError(i.t, os.Chmod(filepath.Join(dir, "draft.md"), 0o600))
	require.NoError(i.t, os.Symlink("draft.md", filepath.Join(dir, "link")))
	return i.statusOf(dir)
}

func (i *installation) statusOf(dir string) string {
	i.t.Helper()
	return i.git(dir, "ls-files", "-s") + "\n" + i.git(dir, "status", "--porcelain=v2", "--untracked-files=all")
}

// requireRecovered recovers what the session's finalization saved.
func (i *installation) requireRecovered(a *agent, status string) {
	i.t.Helper()
	answer := i.must("recover", a.id, "--json")
	var recovered struct{ Path, Branch string }
	require.NoError(i.t, json.Unmarshal([]byte(strings.TrimSpace(answer.out)), &recovered), answer.out)
	require.Equal(i.t, a.nested, recovered.Path)
	require.Equal(i.t, "agent/"+a.id, recovered.Branch)
	require.Equal(i.t, status, i.statusOf(a.nested))
	content, err := os.ReadFile(filepath.Join(a.nested, "README.md"))
	require.NoError(i.t, err)
	require.Equal(i.t, "# staged, and more\n", string(content))
	info, err := os.Stat(filepath.Join(a.nested, "draft.md"))
	require.NoError(i.t, err)
	require.Equal(i.t, os.FileMode(0o600), info.Mode())
}

func TestChangesAreSavedThenRemovedThenRecovered(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	status := i.dirty(a.nested)
	i.add(a)
	require.Equal(t, teardown.OutcomePreserved, i.result(3, "terminate", a.id, "--wait").Outcome)

	result := i.result(0, "retry", a.id, "--save-changes", "--wait")
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	i.requireReleased(a)
	saved := map[string]string{}
	var id string
	for _, w := range result.Worktrees {
		require.Equal(t, teardown.DispositionRemoved, w.Disposition)
		if saved[w.Path] = w.SavedRef; w.Path == a.nested {
			id = w.ID
		}
	}
	require.Equal(t, map[string]string{a.worktree: "", a.nested: worktree.SavedRef(a.id, 1, id)}, saved)
	require.Contains(t, i.must("status", a.id).out, saved[a.nested])
	require.Contains(t, i.must("recover", "--list", a.id).out, saved[a.nested])
	commit := i.git(a.library, "rev-parse", saved[a.nested])
	i.requireRecovered(a, status)
	require.Equal(t, commit, i.git(a.library, "rev-parse", saved[a.nested]))
}

// What a commit cannot hold keeps the worktree all the same, and the wish stays
// for the round in which it is gone.
func TestSavingKeepsWhatACommitCannotHold(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	status := i.dirty(a.nested)
	write(t, filepath.Join(a.library, ".git", "info", "exclude"), "*.key\n")
	write(t, filepath.Join(a.nested, "private.key"), "k\n")
	i.add(a)
	i.result(3, "terminate", a.id, "--wait")
	result := i.result(3, "retry", a.id, "--save-changes", "--wait")
	for _, w := range result.Worktrees {
		if w.Path == a.nested {
			require.Equal(t, teardown.CodeIgnoredPrecious, w.Code)
			require.Empty(t, w.SavedRef)
		}
	}
	require.FileExists(t, filepath.Join(a.nested, "draft.md"))
	require.NoError(t, os.Remove(filepath.Join(a.nested, "private.key")))
	i.result(0, "retry", a.id, "--wait")
	i.requireReleased(a)
	i.requireRecovered(a, status)
}

// A signal of Temporal's own tools asks for it, too.
func TestSaveChangesSentByTemporalsOwnTools(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	status := i.dirty(a.nested)
	i.add(a)
	i.result(3, "terminate", a.id, "--wait")
	require.NoError(t, i.client.SignalWorkflow(t.Context(), teardown.FinalizeSessionID(a.id), "", teardown.RetrySignal,
		map[string]any{"save_changes": true}))
	i.untilFinished(i.store(), a.id)
	i.requireReleased(a)
	i.requireRecovered(a, status)
}

func TestWorkerKilledWhileItSaves(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"saved", "save recorded", "quarantine recorded", "moved aside", "condemned", "worktree removed"} {
		t.Run(point, func(t *testing.T) {
			onBothDatabases(t, func(t *testing.T, i *installation) {
				a := i.agent("s1")
				status := i.dirty(a.nested)
				i.add(a)
				// The wish is recorded before the first look.
				i.must("terminate", a.id)
				i.must("retry", a.id, "--save-changes")
				i.workerThatDiesAt(point).awaitDeath(t)
				i.worker()
				s := i.store()
				i.untilFinished(s, a.id)
				i.requireReleased(a)
				result, err := s.Result(t.Context(), a.id, 1)
				require.NoError(t, err)
				for _, w := range result.Worktrees {
					if w.Path == a.nested {
						require.Equal(t, worktree.SavedRef(a.id, 1, w.ID), w.SavedRef)
					}
				}
				i.requireRecovered(a, status)
			})
		})
	}
}
