package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/teardown"
)

// faultPoints are all places between two effects of a finalization at which a
// worker may die; see package fault.
var faultPoints = []string{
	"begun", "runtime about to be ended", "runtime destroyed", "runtime recorded", "released", "claimed",
	"quarantine recorded", "moved aside", "condemned", "worktree removed", "removal recorded",
	"resource cleared", "finished",
}

func TestWorkerKilledAtEachStepThenRestarted(t *testing.T) {
	t.Parallel()
	for _, point := range faultPoints {
		t.Run(point, func(t *testing.T) {
			onBothDatabases(t, func(t *testing.T, i *installation) {
				a := i.agent("s1")
				i.add(a)
				head := i.git(a.worktree, "rev-parse", "HEAD")
				killed := i.workerThatDiesAt(point)
				i.must("terminate", a.id)
				killed.awaitDeath(t)

				i.worker()
				i.requireDoneOnce(t, a)
				require.Equal(t, head, i.git(a.repository, "rev-parse", "agent/"+a.id))
				require.Contains(t, i.must("snapshot", a.id).out, "working on it", "what it showed is kept, whoever ended it")
			})
		})
	}
}

// Each place at which a worker may die is one at which a test kills one.
func TestEveryFaultPointIsDiedAt(t *testing.T) {
	t.Parallel()
	tests, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var told strings.Builder
	for _, path := range tests {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		told.Write(content)
	}
	point := regexp.MustCompile(`fault\.Point\((".*?")\)`)
	count := 0
	for _, pattern := range []string{"../activities/*.go", "../internal/*/*.go", "../worker/*.go"} {
		sources, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range sources {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, found := range point.FindAllStringSubmatch(string(content), -1) {
				require.Contains(t, told.String(), found[1], path)
				count++
			}
		}
	}
	require.Greater(t, count, 30)
}

// workerThatDiesAt starts a worker that is killed with SIGKILL at this point,
// once.
func (i *installation) workerThatDiesAt(point string) *worker {
	i.t.Helper()
	return i.worker("UNWIND_FAULT_POINT="+point, "UNWIND_FAULT_MARK="+filepath.Join(i.dir, "fault"))
}

func TestWorkerKilledWhileAWorktreeIsKept(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"worktree kept", "parked"} {
		t.Run(point, func(t *testing.T) {
			onBothDatabases(t, func(t *testing.T, i *installation) {
				a := i.agent("s1")
				write(t, filepath.Join(a.worktree, "draft.md"), "mine\n")
				i.add(a)
				killed := i.workerThatDiesAt(point)
				i.must("terminate", a.id)
				killed.awaitDeath(t)
				i.worker()
				s := i.store()
				i.untilParked(s, a.id, teardown.ReasonPreserved)
				content, err := os.ReadFile(filepath.Join(a.worktree, "draft.md"))
				require.NoError(t, err)
				require.Equal(t, "mine\n", string(content))
				require.NoDirExists(t, a.nested, "what is clean goes")
				require.NoError(t, os.Remove(filepath.Join(a.worktree, "draft.md")))
				i.result(0, "retry", a.id, "--wait")
				i.requireReleased(a)
			})
		})
	}
}

func TestTemporalsDataLostBetweenTwoSteps(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"runtime recorded", "released", "moved aside", "removal recorded"} {
		t.Run(point, func(t *testing.T) {
			onBothDatabases(t, func(t *testing.T, i *installation) {
				i.takeOwnServer(t)
				a := i.agent("s1")
				i.add(a)
				killed := i.workerThatDiesAt(point)
				i.must("terminate", a.id)
				killed.awaitDeath(t)
				require.NoError(t, i.server.LoseData())
				require.NoError(t, i.server.Resume())
				i.worker()
				i.requireDoneOnce(t, a)
			})
		})
	}
}

func TestTemporalsDataLostWhileParkedIsNotFinalized(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		i.takeOwnServer(t)
		a := i.agent("s1")
		write(t, filepath.Join(a.nested, "draft.md"), "mine\n")
		i.add(a)
		w := i.worker()
		i.result(3, "terminate", a.id, "--wait")
		w.stop()
		require.NoError(t, i.server.LoseData())
		require.NoError(t, i.server.Resume())
		i.worker()
		// Somebody starts it again although it is parked: it waits at once.
		run, err := teardown.Start(t.Context(), i.client, i.queue, teardown.FinalizeSessionInput{SessionID: a.id, OnParked: teardown.OnParkedReturn})
		require.NoError(t, err)
		var result teardown.Result
		require.NoError(t, run.Get(t.Context(), &result))
		require.Equal(t, teardown.OutcomePreserved, result.Outcome)
		require.FileExists(t, filepath.Join(a.nested, "draft.md"))
		require.NoError(t, os.Remove(filepath.Join(a.nested, "draft.md")))
		i.result(0, "retry", a.id, "--wait")
		i.requireReleased(a)
	})
}

func TestStoppedWorkerLetsTheStepFinish(t *testing.T) {
	t.Parallel()
	i := install(t)
	a := i.agent("s1")
	i.add(a)
	hold := filepath.Join(i.dir, "hold")
	write(t, hold, "")
	w := i.worker("UNWIND_FAULT_POINT=moved aside", "UNWIND_FAULT_MARK="+filepath.Join(i.dir, "fault"),
		"UNWIND_FAULT_HOLD="+hold, "UNWIND_STOP_TIMEOUT=1m")
	i.must("terminate", a.id)
	i.until("the worktree moved aside", func() bool { return exists(filepath.Join(i.dir, "fault")) })
	stopped := make(chan struct{})
	go func() {
		w.stop()
		close(stopped)
	}()
	i.until("the worker stopping", func() bool { return strings.Contains(w.log.String(), "Stopping") })
	require.NoError(t, os.Remove(hold))
	<-stopped
	require.True(t, w.cmd.ProcessState.Success())
	require.NoDirExists(t, a.nested, "the removal that ran was finished")
	quarantined, err := filepath.Glob(filepath.Join(a.worktree, ".lib.*"))
	require.NoError(t, err)
	require.Empty(t, quarantined)
	i.worker()
	i.untilFinished(i.store(), a.id)
	i.requireReleased(a)
}

func TestScreenThatCannotBeSavedStopsNothingAndIsNoted(t *testing.T) {
	t.Parallel()
	i := install(t)
	a := i.agent("s1")
	i.add(a)
	write(t, filepath.Join(i.dir, "state-"+i.host, "snapshots"), "not a directory")
	w := i.worker()
	result := i.result(0, "terminate", a.id, "--wait")
	i.requireReleased(a)
	require.Contains(t, strings.Join(result.Runtimes[0].Details, "\n"), "No snapshot: ")
	require.Contains(t, w.log.String(), "No snapshot: ")
	require.Contains(t, w.log.String(), "session="+a.id)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
