package runtime

import (
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/runtime/proctable"
	"unwind/teardown"
)

// Where nobody can tell who stands in the worktree, a person has to look, unless
// the caller looks at the worktree by other means.
func TestOccupantsThatCannotBeToldAreRefused(t *testing.T) {
	unknown := func(err error, options Options) (*destruction, error) {
		d := &destruction{Plan: Plan{Runtime: teardown.Runtime{Identity: &teardown.RuntimeIdentity{Worktree: "/wt"}}}, options: options, outcome: &Outcome{}}
		return d, d.stand(nil, err)
	}
	_, err := unknown(proctable.ErrUnsupported, Options{})
	require.Equal(t, teardown.CodeRuntimeOccupied, teardown.CodeOf(err))
	require.False(t, Retryable(err))
	require.ErrorContains(t, err, "install lsof")
	_, err = unknown(errNoAnswer, Options{})
	require.Equal(t, teardown.CodeRuntimeUnreachable, teardown.CodeOf(err))
	require.True(t, Retryable(err))
	for _, cause := range []error{proctable.ErrUnsupported, errNoAnswer} {
		d, err := unknown(cause, Options{AllowOccupants: true})
		require.NoError(t, err)
		require.Len(t, d.outcome.Notes, 1)
	}
}
