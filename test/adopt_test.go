package test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/teardown"
)

// adopt has something released that leaked, and answers its session.
func (i *installation) adopt(args ...string) (sessionID string) {
	i.t.Helper()
	for line := range strings.Lines(i.must(append([]string{"adopt", "--yes", "--json"}, args...)...).out) {
		var adopted struct {
			SessionID string `json:"session_id"`
		}
		require.NoError(i.t, json.Unmarshal([]byte(line), &adopted), line)
		require.NotEmpty(i.t, adopted.SessionID, line)
		sessionID = adopted.SessionID
	}
	return sessionID
}

// What was there before unwind came: agents in tmux sessions, in worktrees, of
// which nothing is registered.
func TestWhatLeakedIsFoundAdoptedAndReleased(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		clean, dirty := i.agent("clean"), i.agent("dirty")
		write(t, filepath.Join(dirty.nested, "draft.md"), "mine\n")
		i.worker()
		s := i.store()
		found := i.unwind("scan", i.dir, "--socket", clean.socket, "--socket", dirty.socket)
		for _, a := range []*agent{clean, dirty} {
			require.Contains(t, found.out, a.worktree+": ")
			require.Contains(t, found.out, a.nested+": ")
			require.Contains(t, found.out, a.tmuxSession+": tmux session without an owner")

			refused := i.unwind("adopt", "--yes", a.worktree, a.nested)
			require.Equal(t, 65, refused.code, "an agent works in it: %s", refused.errors)
			require.Contains(t, refused.errors, "in_use")
			id := i.adopt("--tmux", a.tmuxSession, "--socket", a.socket)
			i.untilFinished(s, id)
			require.False(t, i.hasTmuxSession(a))
			require.DirExists(t, a.nested, "only what was named is touched")
		}
		id := i.adopt(clean.worktree, clean.nested)
		i.untilFinished(s, id)
		require.NoDirExists(t, clean.worktree)
		id = i.adopt(dirty.worktree, dirty.nested)
		i.untilParked(s, id, teardown.ReasonPreserved)
		require.FileExists(t, filepath.Join(dirty.nested, "draft.md"))
		require.Equal(t, 65, i.unwind("adopt", "--yes", dirty.worktree).code, "it is registered by now")
	})
}
