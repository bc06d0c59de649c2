package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/teardown"
)

func TestSecondAttemptWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	i := install(t)
	// The first attempt is given up by its time limit, but still runs.
	i.env = []string{"UNWIND_STEP_TIMEOUT=3s", "UNWIND_LOCK_WAIT=500ms", "UNWIND_RETRY_ATTEMPTS=100"}
	a := i.agent("s1")
	i.add(a)
	hold, mark := filepath.Join(i.dir, "hold"), filepath.Join(i.dir, "fault")
	write(t, hold, "")
	i.worker("UNWIND_FAULT_POINT=moved aside", "UNWIND_FAULT_MARK="+mark, "UNWIND_FAULT_HOLD="+hold)
	i.must("terminate", a.id)
	s := i.store()
	i.until("a later attempt finds the lock held", func() bool {
		return finalization(t, s, a.id).FailureCode == teardown.CodeBusy
	})
	require.NoError(t, os.Remove(hold))
	i.untilFinished(s, a.id)
	i.requireReleased(a)
	require.Equal(t, int64(1), finalization(t, s, a.id).Round)
}

func TestKilledWorkersGitChildStillHoldsTheLock(t *testing.T) {
	t.Parallel()
	i := install(t)
	block := filepath.Join(i.dir, "block")
	child := filepath.Join(i.dir, "child")
	i.env = []string{"PATH=" + i.gitThatWaits(block, child) + ":" + os.Getenv("PATH"),
		"UNWIND_LOCK_WAIT=500ms", "UNWIND_RETRY_ATTEMPTS=100"}
	a := i.agent("s1")
	i.add(a)
	write(t, block, "")
	first := i.worker()
	i.must("terminate", a.id)
	i.until("git at work", func() bool { return exists(child) })
	first.kill()
	i.worker()
	s := i.store()
	i.until("the second worker finds the lock held", func() bool {
		return finalization(t, s, a.id).FailureCode == teardown.CodeBusy
	})
	require.DirExists(t, a.nested)
	require.NoError(t, os.Remove(block))
	i.untilFinished(s, a.id)
	i.requireReleased(a)
}

// gitThatWaits answers a directory with a git that, asked what a commit holds, says
// so in the file child and waits as long as the file block is there.
func (i *installation) gitThatWaits(block, child string) string {
	i.t.Helper()
	git, err := exec.LookPath("git")
	require.NoError(i.t, err)
	dir := filepath.Join(i.dir, "wrapped")
	require.NoError(i.t, os.MkdirAll(dir, 0o755))
	script := fmt.Sprintf(`#!/bin/sh
case " $* " in *" ls-tree "*)
	[ ! -e %[1]q ] || echo $$ > %[2]q
	while [ -e %[1]q ]; do sleep 0.05; done ;;
esac
exec %[3]q "$@"
`, block, child, git)
	require.NoError(i.t, os.WriteFile(filepath.Join(dir, "git"), []byte(script), 0o755))
	return dir
}
