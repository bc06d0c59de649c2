package activities

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
)

// A host whose worker is gone is away, also if its clock was ahead when it was
// seen last: else what waits for it is never parked.
func TestAHostIsSeenLatelyOnlyAroundNow(t *testing.T) {
	t.Parallel()
	s, err := store.Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "unwind.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	f := &Facts{Store: s, SeenWithin: time.Minute}
	for id, host := range map[string]struct {
		seen   time.Duration // before now
		lately bool
	}{
		"here":            {0, true},
		"away":            {time.Hour, false},
		"slightly-ahead":  {-20 * time.Second, true},
		"clock-was-ahead": {-time.Hour, false},
	} {
		require.NoError(t, s.SeeHost(t.Context(), store.Host{ID: id, LastSeen: time.Now().Add(-host.seen)}))
		checked, err := f.CheckHost(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, host.lately, checked.SeenLately, id)
	}
	checked, err := f.CheckHost(t.Context(), "nobody")
	require.NoError(t, err)
	require.False(t, checked.SeenLately)
}
