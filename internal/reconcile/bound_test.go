package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"unwind/internal/reconcile"
	"unwind/internal/store"
	"unwind/teardown"
)

// A host was away for long, say, and thousands of each are found at once.
func TestNoPartOfABoundedPassHoldsUpTheOthers(t *testing.T) {
	t.Parallel()
	parts := map[string]struct {
		leave func(b *bundle, id string)
		done  func(reconcile.Summary) int
	}{
		"wake for this host": {
			func(b *bundle, id string) { b.park(here, id, teardown.ReasonHostUnreachable) },
			func(s reconcile.Summary) int { return s.Woken }},
		"wake what keeps nothing": {
			(*bundle).keptNothing,
			func(s reconcile.Summary) int { return s.Woken }},
		"wake tasks": {
			func(b *bundle, id string) {
				b.task(id)
				_, err := b.Store.Park(b.Context(), teardown.ParkInput{Step: b.beginTask(id), Reason: teardown.ReasonSessionFailed})
				require.NoError(b, err)
			},
			func(s reconcile.Summary) int { return s.Woken }},
		"take back": {
			func(b *bundle, id string) {
				b.add(here, id)
				b.exec("UPDATE runtimes SET state = 'creating' WHERE session_id = '" + id + "'")
			},
			func(s reconcile.Summary) int { return s.Started }},
		"release what vanished sessions hold": {
			func(b *bundle, id string) {
				b.holding(id)
				b.vanish(id)
			},
			func(s reconcile.Summary) int { return s.Converging }},
		"finish worktrees": {
			func(b *bundle, id string) {
				b.holding(id)
				b.exec("UPDATE leases SET released_at = acquired_at WHERE holder_id = '" + id + "'")
			},
			func(s reconcile.Summary) int { return s.Converging }},
		"start tasks": {
			func(b *bundle, id string) { b.task(id) },
			func(s reconcile.Summary) int { return s.Started }},
		"unarchive": {
			(*bundle).unarchived,
			func(s reconcile.Summary) int { return s.Converging }},
		"start sessions": {
			func(b *bundle, id string) { b.terminate(here, id) },
			func(s reconcile.Summary) int { return s.Started }},
	}
	for name, part := range parts {
		t.Run(name, func(t *testing.T) {
			onBothDatabases(t, func(t *testing.T, b *bundle) {
				b.withoutAnswers()
				const left = 3
				for i := range left {
					part.leave(b, fmt.Sprintf("a%d", i))
				}
				b.StartFor, b.Reached = time.Nanosecond, &reconcile.Reached{}
				summary := b.once()
				require.Equal(t, 1, part.done(summary))
				require.True(t, summary.More, "the loop goes on at once")
				done := 1
				for range 3 * left {
					summary = b.once()
					require.LessOrEqual(t, part.done(summary), 1)
					done += part.done(summary)
				}
				require.Equal(t, left, done, "each once")
			})
		})
	}
}

func TestABoundedPassReachesTheNewAndOneWithoutBoundDoesEverything(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.withoutAnswers()
		for i := range 3 {
			b.park(here, fmt.Sprintf("parked%d", i), teardown.ReasonHostUnreachable)
			b.terminate(here, fmt.Sprintf("new%d", i))
			b.holding(fmt.Sprintf("left%d", i))
		}
		b.exec("UPDATE leases SET released_at = acquired_at")
		b.StartFor = time.Nanosecond
		require.Equal(t, 1, b.once().Started)
		require.True(t, b.runs("new0"))

		b.StartFor = 0
		summary := b.once()
		require.Equal(t, 2, summary.Woken)
		require.Equal(t, 2, summary.Started)
		require.Equal(t, 2, summary.Converging)
		require.False(t, summary.More)
	})
}

// Thousands that end at once do not fill the queues: what there is no room for is
// left to a pass.
func TestListenLeavesABurstToThePasses(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.withoutAnswers()
		b.Window = 2
		told, poke := make(chan string, 10), make(chan struct{}, 1)
		for i := range 4 {
			id := fmt.Sprintf("s%d", i)
			b.terminate(here, id)
			told <- id
		}
		close(told)
		reconcile.Listen(t.Context(), b.Deps, told, poke)
		require.True(t, b.runs("s0"))
		require.True(t, b.runs("s1"))
		require.False(t, b.runs("s2"))
		require.False(t, b.runs("s3"))
		require.Len(t, poke, 1)
	})
}

// What is refused each time must not keep what comes after it from its turn, and
// what is new goes first.
func TestWhatIsRefusedHoldsUpNothingNew(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.terminate(here, "m1", "m2", "z")
		stand := b.answer(func(id string) error {
			if id[0] == 'm' {
				return errors.New("refused")
			}
			return nil
		})
		b.StartFor, b.Reached = time.Nanosecond, &reconcile.Reached{}
		for range 2 {
			summary, err := reconcile.Once(t.Context(), b.Deps)
			require.Error(t, err)
			require.True(t, summary.More)
		}
		b.terminate(here, "a")
		for range 2 {
			require.True(t, b.once().More)
		}
		require.Equal(t, []string{"m1", "m2", "a", "z", "a"}, stand.asked)
	})
}

// holding is a live session that holds a worktree, of which nothing is on disk.
func (b *bundle) holding(id string) {
	b.Helper()
	_, err := b.Store.AddSession(b.Context(), store.NewSession{ID: id, Host: here, ManifestHash: id,
		Worktrees: []store.NewWorktree{{ID: "w-" + id, Repository: "/src", Path: "/wt/" + id}}})
	require.NoError(b, err)
}

// keptNothing is a session parked on a worktree that somebody has removed since.
func (b *bundle) keptNothing(id string) {
	b.Helper()
	b.holding(id)
	_, _, err := b.Store.Terminate(b.Context(), id, "test")
	require.NoError(b, err)
	begun, err := b.Store.Begin(b.Context(), teardown.BeginInput{SessionID: id})
	require.NoError(b, err)
	_, err = b.Store.ReleaseLeases(b.Context(), begun.Step)
	require.NoError(b, err)
	_, err = b.Store.Preserved(b.Context(), begun.Step, "w-"+id, teardown.WorktreeResult{
		Disposition: teardown.DispositionPreserved, Code: teardown.CodeUntracked}, false)
	require.NoError(b, err)
	_, err = b.Store.Park(b.Context(), teardown.ParkInput{Step: begun.Step, Reason: teardown.ReasonPreserved})
	require.NoError(b, err)
	b.exec("UPDATE worktrees SET state = 'removed' WHERE id = 'w-" + id + "'")
}

// mute is a client whose runs do not say what they are doing.
type mute struct{ client.Client }

func (mute) QueryWorkflow(context.Context, string, string, string, ...any) (converter.EncodedValue, error) {
	return nil, errors.New("no worker is there to answer")
}

// withoutAnswers spares the wait for a worker that is not there.
func (b *bundle) withoutAnswers() {
	through := *b.Temporal
	through.Client = mute{b.Temporal.Client}
	b.Temporal = &through
}
