package test

import (
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
	"unwind/test/pgtest"
)

// installOnPostgres is an installation whose database is on Postgres.
func installOnPostgres(t *testing.T) *installation {
	t.Helper()
	i := install(t)
	i.database = pgtest.Database(t)
	i.must("migrate")
	return i
}

// onBothDatabases runs a story of this package with the store on each.
func onBothDatabases(t *testing.T, story func(*testing.T, *installation)) {
	t.Helper()
	t.Parallel()
	for name, installOn := range map[string]func(*testing.T) *installation{"sqlite": install, "postgres": installOnPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, installOn(t))
		})
	}
}

func TestDatabaseThatIsAwayParksNothing(t *testing.T) {
	t.Parallel()
	i := installOnPostgres(t)
	direct := i.database
	wire := newWire(t, direct)
	i.env = []string{"UNWIND_RETRY_ATTEMPTS=2"}
	a := i.agent("s1")
	i.add(a)
	i.database = wire.url
	hold, mark := filepath.Join(i.dir, "hold"), filepath.Join(i.dir, "fault")
	write(t, hold, "")
	w := i.worker("UNWIND_FAULT_POINT=runtime destroyed", "UNWIND_FAULT_MARK="+mark, "UNWIND_FAULT_HOLD="+hold)
	i.must("terminate", a.id)
	i.until("the runtime destroyed", func() bool { return exists(mark) })
	wire.cut()
	require.NoError(t, os.Remove(hold))
	// More refusals than a step has attempts.
	i.until("the database asked in vain many times", func() bool { return wire.refusals() > 20 })
	select {
	case <-w.done:
		t.Fatal("the worker gave up")
	default:
	}
	wire.mend()
	i.database = direct
	s := i.store()
	i.untilFinished(s, a.id)
	require.Equal(t, int64(1), finalization(t, s, a.id).Round, "nothing was parked, nobody had to retry")
	i.requireReleased(a)
}

func TestTwoSessionsThatShareAWorktreeReleasedAtOnce(t *testing.T) {
	t.Parallel()
	i := installOnPostgres(t)
	i.worker()
	i.worker()
	s := i.store()
	first, second := i.agent("s1"), i.agent("s2")
	i.add(first)
	i.add(second)
	for _, shared := range i.worktreesOf(s, first.id) {
		require.NoError(t, s.Lease(t.Context(), store.Holder{Kind: store.HolderSession, ID: second.id, Generation: 1}, shared.ID))
	}
	var both sync.WaitGroup
	for _, id := range []string{first.id, second.id} {
		both.Go(func() { i.must("terminate", id) })
	}
	both.Wait()
	i.untilFinished(s, first.id)
	i.untilFinished(s, second.id)
	i.requireReleased(first)
	i.requireReleased(second)
	removed := map[string]int{}
	for _, id := range []string{first.id, second.id} {
		result, err := s.Result(t.Context(), id, 1)
		require.NoError(t, err)
		for _, w := range result.Worktrees {
			require.True(t, w.Disposition.Final(), "%+v", w)
			if w.Disposition == teardown.DispositionRemoved {
				removed[w.Path]++
			}
		}
	}
	require.Equal(t, map[string]int{first.worktree: 1, first.nested: 1, second.worktree: 1, second.nested: 1}, removed)
}

func (i *installation) worktreesOf(s *store.Store, session string) []store.Worktree {
	i.t.Helper()
	detail, err := s.SessionDetail(i.t.Context(), session)
	require.NoError(i.t, err)
	var worktrees []store.Worktree
	for _, leased := range detail.Worktrees {
		worktrees = append(worktrees, leased.Worktree)
	}
	return worktrees
}

// wire carries connections to a Postgres server and can be cut.
type wire struct {
	url      string
	target   string
	listener net.Listener

	mu      sync.Mutex
	away    bool
	refused int
	open    map[net.Conn]bool
}

func newWire(t *testing.T, database string) *wire {
	t.Helper()
	at, err := url.Parse(database)
	require.NoError(t, err)
	w := &wire{target: filepath.Join(at.Query().Get("host"), ".s.PGSQL.5432"), open: map[net.Conn]bool{}}
	w.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.listener.Close(); w.cut() })
	through := url.URL{Scheme: "postgres", User: at.User, Host: w.listener.Addr().String(), Path: at.Path,
		RawQuery: url.Values{"sslmode": {"disable"}}.Encode()}
	w.url = through.String()
	go w.serve()
	return w
}

func (w *wire) serve() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.DialTimeout("unix", w.target, 5*time.Second)
		w.mu.Lock()
		if w.away || err != nil {
			w.refused++
			w.mu.Unlock()
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
			continue
		}
		w.open[client], w.open[server] = true, true
		w.mu.Unlock()
		go w.carry(client, server)
		go w.carry(server, client)
	}
}

func (w *wire) carry(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
	w.mu.Lock()
	delete(w.open, to)
	delete(w.open, from)
	w.mu.Unlock()
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = true
	for connection := range w.open {
		_ = connection.Close()
	}
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = false
}

func (w *wire) refusals() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}
