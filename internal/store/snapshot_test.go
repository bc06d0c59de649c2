package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

var snapshotPromises = []promise{
	{"snapshots of a host are listed, with whether their session is finished, until they are forgotten", func(t *testing.T, b *bundle) {
		step := b.withRuntimes()
		for _, id := range []string{"r1", "r2"} {
			_, err := b.RuntimeReleased(ctx, step, id, "killed", "/snap/"+id, teardown.RuntimeResult{Outcome: teardown.RuntimeReleased})
			require.NoError(t, err)
		}
		other := b.manifest("s2")
		other.Host = "elsewhere"
		b.add(other)

		listed, err := b.Snapshots(ctx, host)
		require.NoError(t, err)
		require.Equal(t, []store.Snapshot{{RuntimeID: "r1", Path: "/snap/r1"}, {RuntimeID: "r2", Path: "/snap/r2"}}, listed)
		_, err = b.Finish(ctx, step)
		require.NoError(t, err)
		require.NoError(t, b.ForgetSnapshot(ctx, host, "/snap/r1"))
		require.NoError(t, b.ForgetSnapshot(ctx, "elsewhere", "/snap/r2"))
		listed, err = b.Snapshots(ctx, host)
		require.NoError(t, err)
		require.Equal(t, []store.Snapshot{{RuntimeID: "r2", Path: "/snap/r2", Finished: true}}, listed)
		elsewhere, err := b.Snapshots(ctx, "elsewhere")
		require.NoError(t, err)
		require.Empty(t, elsewhere)
	}},
}
