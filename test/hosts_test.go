package test

import (
	"testing"

	"github.com/stretchr/testify/require"

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
