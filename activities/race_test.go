package activities

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
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
)

// interleavings of a start, the end of the same session, and of another start
// under the same name. Those with a terminal cost far more than those with a
// process, and only they have a name to share.
const (
	processInterleavings = 940
	tmuxInterleavings    = 60
	interleavedAtOnce    = 16
)

// A start and the end of the same session exclude each other, and a session that
// is made again under the old name is never harmed.
func TestStartAgainstFinalizeAgainstTheSameNameAgain(t *testing.T) {
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
	var all sync.WaitGroup
	for range interleavedAtOnce {
		all.Go(func() {
			for turn := range turns {
				r := &race{T: t, Host: h, turn: turn, kind: teardown.KindProcess}
				if turn < tmuxInterleavings {
					r.kind = teardown.KindTmux
				}
				r.run()
			}
		})
	}
	for turn := range processInterleavings + tmuxInterleavings {
		turns <- turn
	}
	close(turns)
	all.Wait()
}

// race is one interleaving.
type race struct {
	*testing.T
	*Host
	turn int
	kind string
}

func (r *race) run() {
	old := r.record("old")
	var all sync.WaitGroup
	all.Go(func() { _ = r.start(old) })
	all.Go(func() { r.end(old) })
	if r.kind == teardown.KindTmux {
		all.Go(r.again)
	}
	all.Wait()
	r.requireEnded(old)
}

// again makes a session under the name that the old one has, or had, and ends
// it when it was seen to live.
func (r *race) again() {
	next := r.record("new")
	for try := 0; ; try++ {
		err := r.start(next)
		if err == nil {
			break
		}
		if !assert.Less(r, try, 1000, "%v", err) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	row, err := r.Store.Runtime(context.Background(), next.SessionID)
	assert.NoError(r, err)
	r.until(func() bool {
		old, err := r.Store.Runtime(context.Background(), fmt.Sprintf("old-%d", r.turn))
		return err == nil && old.State == store.RuntimeReleased
	})
	state, err := r.Runtimes[r.kind].Probe(context.Background(), row.Handle.V)
	assert.NoError(r, err)
	assert.Equal(r, runtime.Alive, state, "the end of the old one does not harm it")
	r.end(next)
	r.requireEnded(next)
}

func (r *race) until(condition func() bool) {
	for try := 0; !condition(); try++ {
		if !assert.Less(r, try, 30000) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (r *race) end(s teardown.StartStep) {
	_, _, err := r.Store.Terminate(context.Background(), s.SessionID, "test")
	assert.NoError(r, err)
	r.finalize(s)
}

func (r *race) requireEnded(s teardown.StartStep) {
	row, err := r.Store.Runtime(context.Background(), s.SessionID)
	assert.NoError(r, err)
	assert.Equal(r, store.RuntimeReleased, row.State)
	assert.Empty(r, r.carrying(row), "what was started is ended")
}

// record is the intent of a session; old and new ask for the same name.
func (r *race) record(which string) teardown.StartStep {
	id := fmt.Sprintf("%s-%d", which, r.turn)
	rt := teardown.Runtime{Kind: r.kind, Role: teardown.RoleAgent}
	if r.kind == teardown.KindTmux {
		rt.Socket, rt.Session = r.TmuxSocket, fmt.Sprintf("name-%d", r.turn)
	}
	planned, err := r.Runtimes[r.kind].(runtime.Starter).Plan(rt)
	assert.NoError(r, err)
	_, err = r.Store.AddSession(context.Background(), store.NewSession{ID: id, Host: "h1", ManifestHash: id, Starting: true,
		Runtimes: []store.NewRuntime{{ID: id, Handle: planned}}})
	assert.NoError(r, err)
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

func (r *race) finalize(s teardown.StartStep) {
	ctx := context.Background()
	begun, err := r.Store.Begin(ctx, teardown.BeginInput{SessionID: s.SessionID})
	if !assert.NoError(r, err) {
		return
	}
	for try := 0; ; try++ {
		result, err := r.destroyRuntime(ctx, r.attempt(), teardown.DestroyRuntimeInput{Step: begun.Step, RuntimeID: s.SessionID})
		if err == nil {
			assert.True(r, result.Runtime.Outcome.Released(), "%+v", result)
			return
		}
		if !assert.True(r, coded(err).Retryable && try < 100, "%v", err) {
			return
		}
	}
}

func (r *race) carrying(row store.Runtime) []proctable.Process {
	table, err := proctable.Scan()
	assert.NoError(r, err)
	processes, err := proctable.Leaders(table, row.Handle.V.Identity.EnvTag)
	assert.NoError(r, err)
	return processes
}
