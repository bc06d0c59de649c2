package store_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

// The protocol's faults that rows alone can cause. Others of its list stand with
// the promise that they break, named by their number.
var faultPromises = []promise{
	{"fault 1: a removal given up does not go on under a new holder", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.mustClaim(step, "/wt/s1") // given up by a time-out; it still runs
		written, err := b.Preserved(ctx, step, idOf("/wt/s1"), modified, false)
		require.NoError(t, err)
		require.True(t, written)
		b.session("s2")
		b.lease("s2", "/wt/s1")
		next := b.claim(step, "/wt/s1")
		require.False(t, next.Go)
		require.Equal(t, teardown.DispositionRetained, next.Result.Disposition)
		requireCode(t, teardown.CodeInternal, false, b.MovingAside(ctx, step, idOf("/wt/s1"), "/wt/.s1.unwind-x"))
		written, err = b.Preserved(ctx, step, idOf("/wt/s1"), modified, false)
		require.NoError(t, err)
		require.False(t, written)
		require.Equal(t, store.WorktreeActive, b.state("/wt/s1"))
	}},
	{"fault 2: a late attempt does not take over a row that is another's by now", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.preserve(step, "/wt/s1")
		b.session("s2")
		b.lease("s2", "/wt/s1")
		b.terminate("s2")
		owner := b.begin("s2")
		require.Len(t, b.release(owner), 1)
		late := b.claim(step, "/wt/s1")
		require.False(t, late.Go)
		require.Equal(t, teardown.DispositionRetained, late.Result.Disposition)
		requireCode(t, teardown.CodeInternal, false, b.MovingAside(ctx, step, idOf("/wt/s1"), "/wt/.s1.unwind-x"))
		written, err := b.Preserved(ctx, step, idOf("/wt/s1"), modified, false)
		require.NoError(t, err)
		require.False(t, written)
		b.mustClaim(owner, "/wt/s1")
	}},
	{"fault 4: a resume of what is condemned finds it so, whatever is inside", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.mustClaim(step, "/wt/s1")
		require.NoError(t, b.MovingAside(ctx, step, idOf("/wt/s1"), "/wt/.s1.unwind-x"))
		require.NoError(t, b.Condemned(ctx, idOf("/wt/s1")))
		b.park(step, teardown.ReasonAttemptsExhausted)
		next := b.retry(step)
		require.Equal(t, []string{idOf("/wt/s1")}, b.release(next))
		claim := b.claim(next, "/wt/s1")
		require.True(t, claim.Go)
		require.NotNil(t, claim.Worktree.CondemnedAt)
		require.Equal(t, "/wt/.s1.unwind-x", claim.Worktree.QuarantinePath)
	}},
	{"fault 6: a path used again is not removed under its old row", func(t *testing.T, b *bundle) {
		step := b.parked("s1", "/wt/s1")
		n := b.manifest("s2", "/wt/s1")
		n.Worktrees[0].ID, n.Retire = "second", []string{idOf("/wt/s1")}
		b.add(n)
		next := b.retry(step)
		require.Empty(t, b.release(next))
		claim := b.claim(next, "/wt/s1")
		require.False(t, claim.Go)
		require.Equal(t, teardown.DispositionAlreadyGone, claim.Result.Disposition)
		second, err := b.Worktree(ctx, "second")
		require.NoError(t, err)
		require.Equal(t, store.WorktreeActive, second.State)
		done, err := b.Finish(ctx, next)
		require.NoError(t, err)
		require.False(t, done.Superseded)
	}},
	{"fault 11: what starts after the finalizer looked is not there, or known to it", func(t *testing.T, b *bundle) {
		start := b.starting("s1")
		require.NoError(t, b.Starting(ctx, start)) // on its way to spawn
		b.terminate("s1")
		begun, err := b.Begin(ctx, teardown.BeginInput{SessionID: "s1"})
		require.NoError(t, err)
		require.Len(t, begun.Runtimes, 1, "the intent was recorded first, so it is looked for by its tag")
		_, err = b.ReleaseLeases(ctx, begun.Step)
		requireCode(t, teardown.CodeInternal, false, err)
		requireCode(t, teardown.CodeSessionTerminated, false, b.RuntimeStarted(ctx, start, "r-s1", tmuxHandle("$1")))
		b.runtimeGone(begun.Step, "r-s1")
		b.release(begun.Step)
		requireCode(t, teardown.CodeSessionTerminated, false, b.Starting(ctx, start))
		n := b.manifest("s1")
		n.Runtimes = []store.NewRuntime{{ID: "late", Handle: processHandle(5)}}
		_, err = b.Attach(ctx, n)
		requireCode(t, teardown.CodeSessionTerminated, false, err)
		_, err = b.Runtime(ctx, "late")
		require.Error(t, err)
	}},
	{"fault 13: an older attempt does not answer for a newer round", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.mustClaim(step, "/wt/s1")
		round, _, err := b.Retry(ctx, "s1", store.RetryOptions{SaveChanges: true})
		require.NoError(t, err)
		written, err := b.Preserved(ctx, step, idOf("/wt/s1"), modified, false)
		require.NoError(t, err)
		require.False(t, written, "it looked without saving")
		parked, err := b.Park(ctx, teardown.ParkInput{Step: step, Reason: teardown.ReasonPreserved})
		require.NoError(t, err)
		require.True(t, parked.Superseded)
		step.Round = round
		require.Equal(t, []string{idOf("/wt/s1")}, b.release(step))
		require.True(t, b.claim(step, "/wt/s1").SaveChanges)
	}},
	{"fault 14: a late round-one removal leaves no parked row deleting", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1", "/wt/s1/lib")
		b.mustClaim(step, "/wt/s1/lib")
		require.False(t, b.claim(step, "/wt/s1").Go)
		next := b.retry(step)
		require.Len(t, b.release(next), 2)
		_, err := b.Removed(ctx, step, idOf("/wt/s1/lib"), teardown.WorktreeResult{Disposition: teardown.DispositionRemoved})
		require.NoError(t, err)
		_, err = b.Park(ctx, teardown.ParkInput{Step: next, Reason: teardown.ReasonPreserved})
		requireCode(t, teardown.CodeInternal, false, err)
		require.Equal(t, []string{idOf("/wt/s1")}, b.release(next))
	}},
}

// A transaction that waits for a file lock, whose holder waits for its rows,
// waits forever. Transactions begin in this package alone, and it knows no locks.
func TestFault16NoTransactionWaitsForAFileLock(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, imported := range tree.Imports {
			path, err := strconv.Unquote(imported.Path.Value)
			require.NoError(t, err)
			require.NotContains(t, []string{"unwind/internal/lock", "unwind/internal/worktree", "unwind/internal/runtime"}, path, file)
		}
	}
}

// Each of the protocol's faults is a test that is found by its number:
// go test -run 'Fault16|/fault_16:'.
func TestEveryFaultIsATest(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../*/*_test.go")
	require.NoError(t, err)
	named := regexp.MustCompile(`(?:func TestFault|\{"fault )(\d+)`)
	tests := map[string]int{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range named.FindAllSubmatch(content, -1) {
			tests[string(match[1])]++
		}
	}
	for fault := 1; fault <= 18; fault++ {
		require.NotZero(t, tests[fmt.Sprint(fault)], "fault %d has no test", fault)
	}
}
