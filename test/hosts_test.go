package test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"unwind/internal/store"
	"unwind/teardown"
)

// elsewhere is the same installation on another machine: another host id and
// state directory, the same database and queues.
func (i *installation) elsewhere(host string) *installation {
	other := *i
	other.host = host
	return &other
}

func TestTwoHostsOnOneTemporal(t *testing.T) {
	t.Parallel()
	one := installOnPostgres(t)
	two := one.elsewhere("h2")
	here, there := one.agent("here"), two.agent("there")
	one.add(here)
	two.add(there)
	refused := two.unwindWith(one.manifestOf(here, "h1"), "session", "add", "-f", "-")
	require.Equal(t, 65, refused.code, "a session is registered on its own host: %s", refused.errors)

	// Only one host has a worker: the other's session waits, whoever asks.
	first := one.worker()
	require.Equal(t, teardown.OutcomeFinalized, one.result(0, "terminate", here.id, "--wait").Outcome)
	one.requireReleased(here)
	one.must("terminate", there.id)
	s := one.store()
	one.until("the other host's session begun", func() bool { return finalization(t, s, there.id).StartedAt != nil })
	require.DirExists(t, there.worktree)
	require.Nil(t, one.runtimeReleased(s, there.id), "work goes to its host only")

	// The workflow's worker is on one machine or the other, the steps on theirs.
	second := two.worker()
	two.untilFinished(s, there.id)
	two.requireReleased(there)
	first.stop()
	second.stop()
}

func TestHostThatIsAwayParksAndIsWokenWhenItIsBack(t *testing.T) {
	t.Parallel()
	one := installOnPostgres(t)
	one.env = []string{"UNWIND_HOST_TIMEOUT=2s"}
	two := one.elsewhere("h2")
	there := two.agent("there")
	two.add(there)
	one.worker()
	one.must("terminate", there.id)
	s := one.store()
	one.untilParked(s, there.id, teardown.ReasonHostUnreachable)
	require.DirExists(t, there.worktree)
	two.worker()
	two.untilFinished(s, there.id)
	two.requireReleased(there)
}

func TestRenamedMachineKeepsItsHostID(t *testing.T) {
	t.Parallel()
	i := install(t)
	const before = "old-name-3fa92c"
	i.env = []string{"UNWIND_HOST="}
	write(t, filepath.Join(i.dir, "state-"+i.host, "host-id"), before+"\n")
	a := i.agent("s1")
	i.add(a)
	i.worker()
	i.must("terminate", a.id, "--wait")
	i.requireReleased(a)
	s := i.store()
	session, err := s.Session(t.Context(), a.id)
	require.NoError(t, err)
	require.Equal(t, before, session.Host)
	host, seen, err := s.Host(t.Context(), before)
	require.NoError(t, err)
	require.True(t, seen)
	name, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, name, host.Name, "the name that people see is the new one")
}

// A host whose worker is there is busy, however many steps wait for it.
func TestBusyHostIsNotAwayWithAThousandStepsWaiting(t *testing.T) {
	t.Parallel()
	const waiting = 1000
	i := installOnPostgres(t)
	i.env = []string{"UNWIND_CONCURRENCY=1", "UNWIND_HOST_TIMEOUT=8s", "UNWIND_START_RATE=200"}
	a := i.agent("s1")
	i.add(a)
	hold, mark := filepath.Join(i.dir, "hold"), filepath.Join(i.dir, "fault")
	write(t, hold, "")
	i.worker("UNWIND_FAULT_POINT=runtime destroyed", "UNWIND_FAULT_MARK="+mark, "UNWIND_FAULT_HOLD="+hold)
	i.must("terminate", a.id)
	i.until("the only slot taken", func() bool { return exists(mark) })
	many := strings.TrimPrefix(filepath.Base(i.dir), directoryPrefix) + "-' || n"
	// Terminated last: a finalization that began before its runtime was there would
	// have nothing to wait for.
	i.sql(`INSERT INTO sessions (id, host, created_at, updated_at)
			SELECT '`+many+`, 'h1', '2026-01-02', now() FROM generate_series(1, `+strconv.Itoa(waiting)+`) n`,
		`INSERT INTO runtimes (id, session_id, generation, kind, role, state, handle)
			SELECT '`+many+`, '`+many+`, 1, 'process', 'agent', 'running',
				'{"kind":"process","role":"agent","pid":4194304,"start_time":1,"gone":true}' FROM generate_series(1, `+strconv.Itoa(waiting)+`) n`,
		"UPDATE sessions SET terminated_at = now() WHERE terminated_at IS NULL")
	last := teardown.FinalizeSessionID(strings.TrimPrefix(filepath.Base(i.dir), directoryPrefix) + "-" + strconv.Itoa(waiting))
	i.until("the last one has waited longer than allowed", func() bool { return i.timeouts(last) > 0 })
	loads, err := i.store().HostLoads(t.Context())
	require.NoError(t, err)
	require.Equal(t, []store.HostLoad{{Host: "h1", UnderWay: waiting + 1}}, loads, "nothing is parked")
}

// timeouts counts the steps of a workflow that nobody took in time.
func (i *installation) timeouts(workflowID string) (count int) {
	i.t.Helper()
	history := i.client.GetWorkflowHistory(i.t.Context(), workflowID, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		if err != nil {
			return 0 // not started yet
		}
		if event.GetEventType() == enumspb.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT {
			count++
		}
	}
	return count
}
