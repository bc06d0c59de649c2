package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
)

func TestAHintSaysWhoMayBeAway(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for seen, hint := range map[time.Duration]string{
		0:                 "",
		-30 * time.Second: "",
		30 * time.Second:  "",
		-3 * time.Hour:    "The worker of host h1 was last seen 3 h ago; start unwind-worker there.",
		3 * time.Hour:     "The worker of host h1 was last seen by a clock that was 3 h ahead; start unwind-worker there.",
	} {
		s := sight{state: store.StateTerminated, at: at, host: store.Host{ID: "h1", LastSeen: at.Add(seen)}}
		s.Session.Host = "h1"
		require.Equal(t, hint, s.hostHint())
	}
}
