package activities

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"unwind/internal/lock"
	"unwind/internal/runtime"
	"unwind/internal/runtime/kinds"
	"unwind/internal/runtime/proctable"
	"unwind/internal/store"
	"unwind/teardown"
	"unwind/test/interleave"
)

// An interleaving is of a start, the end and the restore of one session, and of
// another start under the same name. One in tmuxOneOf is with a terminal: those
// cost far more than those with a process, and only they have a name to share.
// If the races are what is run, there are as many of the one as of the other.
const (
	tmuxOneOf         = 50
	interleavedAtOnce = 8
)

// A start, the end and the restore of the same session exclude each other, and
// neither what was restored nor a session that is made again under the old name
// is ever harmed.
func TestStartAgainstFinalizeAgainstRestoreAgainstTheSameNameAgain(t *testing.T) {
	t.Parallel()
	// In memory, where that can be had: what takes the time would be the disk.
	// Short, for the socket.
	dir, err := os.MkdirTemp("/dev/shm", "unwind-race-")
	if err != nil {
		dir, err = os.MkdirTemp("", "unwind-race-")
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	facts, err := store.Open(t.Context(), "sqlite://"+filepath.Join(dir, "unwind.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = facts.Close() })
	h := &Host{Store: facts, Locks: lock.Dir(filepath.Join(dir, "locks")), Runtimes: kinds.All(),
		TmuxSocket: filepath.Join(dir, "s"), LockWait: time.Minute}
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", h.TmuxSocket, "kill-server").Run() })

	turns := make(chan int)
	var adopted atomic.Int64
	var tags sync.Map
	var all sync.WaitGroup
	for range interleavedAtOnce {
		all.Go(func() {
			for turn := range turns {
				r := &race{T: t, Host: h, turn: turn, kind: teardown.KindProcess, ended: make(chan struct{}), adopted: &adopted, tags: &tags}
				if turn%tmuxOneOf == 0 || interleave.Asked() && turn%4 < 2 {
					r.kind = teardown.KindTmux
				}
				r.run()
			}
		})
	}
	const usual = 100
	times := interleave.Times(usual)
	if interleave.Asked() {
		times *= 2
	}
	for turn := range times {
		turns <- turn
	}
	close(turns)
	all.Wait()
	requireNoneCarries(t, &tags)
	t.Logf("%d restores came before the end of the runtime", adopted.Load())
	require.Positive(t, adopted.Load(), "each restore came after the end of the runtime")
}

// requireNoneCarries looks once, at the end, for what any interleaving has left:
// each environment is read for all of them.
func requireNoneCarries(t *testing.T, tags *sync.Map) {
	table, err := proctable.Scan()
	require.NoError(t, err)
	for pid, p := range table {
		environment, err := proctable.Environ(pid)
		if p.Dead || err != nil {
			continue
		}
		if tag, tagged := environment.Lookup(runtime.RunVariable); tagged {
			_, ours := tags.Load(runtime.RunVariable + "=" + tag)
			assert.False(t, ours, "%+v is left", p)
		}
	}
}

// race is one interleaving.
type race struct {
	*testing.T
	*Host
	turn    int
	kind    string
	ended   chan struct{} // closed when nothing of the old session is to be left
	adopted *atomic.Int64 // runtimes that restores found alive
	tags    *sync.Map     // what all that was started carries
}

// run lets the start run beside the rest in every second interleaving, and has
// it done before in the others, so that there is something to restore.
func (r *race) run() {
	old := r.record("old")
	var all, ends sync.WaitGroup
	started := func() { _ = r.start(old) }
	if r.turn%2 == 0 {
		all.Go(started)
	} else {
		started()
	}
	terminated := make(chan struct{})
	ends.Go(func() {
		r.terminate(old)
		close(terminated)
		r.finalize(old)
	})
	ends.Go(func() {
		<-terminated
		r.restoreAndEnd(old)
	})
	if r.kind == teardown.KindTmux {
		all.Go(r.again)
	}
	ends.Wait()
	close(r.ended)
	all.Wait()
	r.requireEnded(old)
}

// restoreAndEnd restores the session, and ends it again when what was adopted was
// seen to live.
func (r *race) restoreAndEnd(s teardown.StartStep) {
	restored, err := r.restore(context.Background(), r.attempt(), teardown.RestoreSessionInput{
		SessionID: s.SessionID, Generation: s.Generation, RequestedBy: "test"})
	r.noError(err)
	for _, rt := range restored.Runtimes {
		r.adopted.Add(1)
		state, err := r.Runtimes[r.kind].Probe(context.Background(), rt.Handle.V)
		r.noError(err)
		assert.Equal(r, runtime.Alive, state, "the end of the old generation does not harm the new one")
	}
	r.terminate(s)
	r.finalize(s)
}

// again makes a session under the name that the old one has, or had, and ends
// it when it was seen to live.
func (r *race) again() {
	next := r.record("new")
	r.until(func() bool { return r.start(next) == nil })
	row, err := r.Store.Runtime(context.Background(), next.SessionID)
	r.noError(err)
	<-r.ended
	state, err := r.Runtimes[r.kind].Probe(context.Background(), row.Handle.V)
	r.noError(err)
	assert.Equal(r, runtime.Alive, state, "the end of the old one does not harm it")
	r.terminate(next)
	r.finalize(next)
	r.requireEnded(next)
}

// noError fails the test from a goroutine that is not the test's own.
func (r *race) noError(err error) bool {
	if err != nil {
		r.Errorf("turn %d: %v", r.turn, err)
	}
	return err == nil
}

func (r *race) until(condition func() bool) {
	for try := 0; !condition(); try++ {
		if !assert.Less(r, try, 30000) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (r *race) terminate(s teardown.StartStep) {
	_, _, err := r.Store.Terminate(context.Background(), s.SessionID, "test")
	r.noError(err)
}

func (r *race) requireEnded(s teardown.StartStep) {
	detail, err := r.Store.SessionDetail(context.Background(), s.SessionID)
	r.noError(err)
	for _, row := range detail.Runtimes {
		assert.Equal(r, store.RuntimeReleased, row.State)
	}
}

// record is the intent of a session; old and new ask for the same name.
func (r *race) record(which string) teardown.StartStep {
	id := fmt.Sprintf("%s-%d", which, r.turn)
	rt := teardown.Runtime{Kind: r.kind, Role: teardown.RoleAgent}
	if r.kind == teardown.KindTmux {
		rt.Socket, rt.Session = r.TmuxSocket, fmt.Sprintf("name-%d", r.turn)
	}
	planned, err := r.Runtimes[r.kind].(runtime.Starter).Plan(rt)
	r.noError(err)
	r.tags.Store(planned.Identity.EnvTag, true)
	_, err = r.Store.AddSession(context.Background(), store.NewSession{ID: id, Host: "h1", ManifestHash: id, Starting: true,
		Runtimes: []store.NewRuntime{{ID: id, Handle: planned}}})
	r.noError(err)
	return teardown.StartStep{SessionID: id, Generation: 1}
}

func (r *race) attempt() *attempt {
	return &attempt{info: activity.Info{Deadline: time.Now().Add(time.Minute)}}
}

func (r *race) start(s teardown.StartStep) error {
	_, err := r.startRuntime(context.Background(), r.attempt(), teardown.StartRuntimeInput{Start: s, RuntimeID: s.SessionID,
		Launch: teardown.NewRuntime{Command: []string{"sleep", "900"}}})
	return err
}

// finalize ends what the session has, unless it is restored meanwhile.
func (r *race) finalize(s teardown.StartStep) {
	ctx := context.Background()
	begun, err := r.Store.Begin(ctx, teardown.BeginInput{SessionID: s.SessionID})
	if teardown.CodeOf(err) == teardown.CodeSessionLive {
		return
	}
	r.noError(err)
	for _, left := range begun.Runtimes {
		r.until(func() bool {
			result, err := r.destroyRuntime(ctx, r.attempt(), teardown.DestroyRuntimeInput{Step: begun.Step, RuntimeID: left.ID})
			if err != nil {
				return !assert.True(r, coded(err).Retryable, "%v", err)
			}
			outcome := result.Runtime.Outcome
			return assert.True(r, outcome.Released() || outcome == teardown.RuntimeSuperseded, "%+v", result)
		})
	}
}
