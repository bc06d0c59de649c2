package reconcile_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/runtime"
	"unwind/internal/store"
	"unwind/teardown"
)

// blinking is a kind whose first looks find nothing: what is there now started
// right after them.
type blinking struct {
	runtime.Kind
	blind     int
	meanwhile func(look int)
	looks     int
}

func (k *blinking) Probe(ctx context.Context, rt teardown.Runtime) (runtime.State, error) {
	k.looks++
	look := k.looks
	defer k.meanwhile(look)
	if look <= k.blind {
		return runtime.Gone, nil
	}
	return k.Kind.Probe(ctx, rt)
}

func TestFault10WhatStartsOrIsRestoredBetweenProbeAndWriteStaysLive(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		blind, restoredAt, looks int
		generation               int64
	}{
		"its runtime starts before the lock is taken": {blind: 1, looks: 2, generation: 1},
		"it is restored before the lock is taken":     {blind: 1, restoredAt: 1, looks: 1, generation: 2},
		"it is restored before the write":             {blind: 2, restoredAt: 2, looks: 2, generation: 2},
	} {
		t.Run(name, func(t *testing.T) {
			onBothDatabases(t, func(t *testing.T, b *bundle) {
				b.machine()
				b.agent("s1")
				kind := &blinking{Kind: b.Runtimes[teardown.KindProcess], blind: c.blind}
				kind.meanwhile = func(look int) {
					if look == c.restoredAt {
						b.restore("s1")
					}
				}
				b.Runtimes[teardown.KindProcess] = kind
				require.Zero(t, b.once().Terminated)
				require.Equal(t, c.looks, kind.looks)
				session := b.session("s1")
				require.Nil(t, session.TerminatedAt)
				require.Equal(t, c.generation, session.Generation)
				require.Equal(t, 1, b.once().Alive)
			})
		})
	}
}

// restore ends a session and makes it live again, with the runtimes that it has
// and those of its worktrees that are intact.
func (b *bundle) restore(id string, intact ...string) {
	b.Helper()
	session, _, err := b.Store.Terminate(b.Context(), id, "test")
	require.NoError(b, err)
	runtimes, _, err := b.Store.Restorable(b.Context(), id, session.Generation)
	require.NoError(b, err)
	r := store.Restoration{SessionID: id, Generation: session.Generation, Intact: intact}
	for _, lives := range runtimes {
		r.Alive = append(r.Alive, lives.ID)
	}
	_, err = b.Store.Restore(b.Context(), r)
	require.NoError(b, err)
}

func TestFault8ACondemnedRowThatARestoreLeftIsFinished(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.machine()
		b.Policy = teardown.Policy{InitialIntervalMS: 50, MaximumIntervalMS: 100, MaximumAttempts: 3, StepTimeoutMS: 20_000, HeartbeatMS: 5000, HostTimeoutMS: 60_000}
		b.steps()
		condemned, intact := b.worktree("condemned"), b.worktree("intact")
		require.NoError(t, os.WriteFile(filepath.Join(condemned.Path, "half"), []byte("left\n"), 0o600))
		_, err := b.Store.AddSession(t.Context(), store.NewSession{ID: "s1", Host: here, ManifestHash: "s1",
			Worktrees: []store.NewWorktree{condemned, intact}})
		require.NoError(t, err)

		// An attempt is killed in the midst of deleting.
		_, _, err = b.Store.Terminate(t.Context(), "s1", "test")
		require.NoError(t, err)
		begun, err := b.Store.Begin(t.Context(), teardown.BeginInput{SessionID: "s1"})
		require.NoError(t, err)
		_, err = b.Store.ReleaseLeases(t.Context(), begun.Step)
		require.NoError(t, err)
		claim, err := b.Store.Claim(t.Context(), begun.Step, condemned.ID)
		require.NoError(t, err)
		require.True(t, claim.Go)
		aside := filepath.Join(filepath.Dir(condemned.Path), ".condemned.unwind-"+condemned.ID)
		require.NoError(t, b.Store.MovingAside(t.Context(), begun.Step, condemned.ID, aside))
		require.NoError(t, os.Rename(condemned.Path, aside))
		require.NoError(t, b.Store.Condemned(t.Context(), condemned.ID))

		b.restore("s1", intact.ID)
		require.Nil(t, b.session("s1").TerminatedAt)
		require.Equal(t, 1, b.once().Converging)
		b.untilState(condemned.ID, store.WorktreeRemoved)
		require.NoDirExists(t, aside)
		require.NoDirExists(t, condemned.Path)
		require.NotContains(t, b.git(condemned.Repository, "worktree", "list"), condemned.Path)
		require.DirExists(t, intact.Path)
		w, err := b.Store.Worktree(t.Context(), intact.ID)
		require.NoError(t, err)
		require.Equal(t, store.WorktreeActive, w.State)
		require.Nil(t, b.session("s1").TerminatedAt)
		require.Zero(t, b.once().Converging)
	})
}
