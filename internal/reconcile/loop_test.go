package reconcile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPauseIsTheIntervalGiveOrTakeAFifth(t *testing.T) {
	t.Parallel()
	require.Equal(t, 24*time.Second, pause(30*time.Second, 0))
	require.Equal(t, 30*time.Second, pause(30*time.Second, 0.5))
	require.Equal(t, 36*time.Second, pause(30*time.Second, 1).Round(time.Microsecond))
}
