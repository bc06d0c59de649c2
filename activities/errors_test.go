package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"unwind/teardown"
)

func TestNonRetryableErrorStaysSoThroughEveryWrapping(t *testing.T) {
	t.Parallel()
	refused := &teardown.Error{Code: teardown.CodeSessionLive, Message: "The session is live"}
	for name, err := range map[string]error{
		"bare":              refused,
		"wrapped":           fmt.Errorf("begin: %w", refused),
		"wrapped twice":     fmt.Errorf("step: %w", fmt.Errorf("begin: %w", refused)),
		"as a cause":        &teardown.Error{Code: teardown.CodeSessionLive, Message: "Not now", Cause: refused},
		"joined":            errors.Join(errors.New("something else"), refused),
		"converted already": failure(refused),
		"converted, then wrapped": fmt.Errorf("again: %w",
			temporal.NewNonRetryableApplicationError("no", string(teardown.CodeSessionLive), nil)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			application := topLevel(t, failure(err))
			require.True(t, application.NonRetryable())
			require.Equal(t, string(teardown.CodeSessionLive), application.Type())
		})
	}
}

// topLevel answers the error itself: the server does not look below it.
func topLevel(t *testing.T, err error) *temporal.ApplicationError {
	t.Helper()
	var application *temporal.ApplicationError
	require.ErrorAs(t, err, &application)
	require.Same(t, application, err)
	return application
}

// A step that a worker of another version may not do is left to those that may.
func TestAnotherSchemaVersionIsADatabaseThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	application := topLevel(t, failure(fmt.Errorf("claim: %w", &teardown.Error{Code: teardown.CodeSchemaVersion, Message: "Upgrade unwind"})))
	require.False(t, application.NonRetryable())
	require.Equal(t, string(teardown.CodeDatabaseUnavailable), application.Type())
	require.Contains(t, application.Message(), "Upgrade unwind")
}

func TestErrorsThatMayPassAreRetryable(t *testing.T) {
	t.Parallel()
	for code, err := range map[teardown.Code]error{
		teardown.CodeInUse:   &teardown.Error{Code: teardown.CodeInUse, Message: "Somebody stands in it", Retryable: true},
		teardown.CodeTimeout: fmt.Errorf("git: %w", context.DeadlineExceeded),
		teardown.CodeIOError: errors.New("an error without a code"),
	} {
		application := topLevel(t, failure(err))
		require.False(t, application.NonRetryable(), code)
		require.Equal(t, string(code), application.Type())
	}
	require.NoError(t, failure(nil))
}

func TestDetailsAreBounded(t *testing.T) {
	t.Parallel()
	err := failure(&teardown.Error{Code: teardown.CodeInUse, Retryable: true, Details: strings.Split(strings.Repeat("x ", 1000), " ")})
	var application *temporal.ApplicationError
	require.ErrorAs(t, err, &application)
	var details []string
	require.NoError(t, application.Details(&details))
	require.Len(t, details, teardown.MaxDetails)
}

func TestNextAttemptFollowsTheRetryPolicy(t *testing.T) {
	t.Parallel()
	now := time.Now()
	policy := &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second, MaximumAttempts: 6}
	for attempts, after := range map[int32]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second} {
		a := &attempt{info: activity.Info{Attempt: attempts, RetryPolicy: policy}}
		require.Equal(t, now.Add(after), *a.next(now, true), attempts)
	}
	last := &attempt{info: activity.Info{Attempt: 6, RetryPolicy: policy}}
	require.Nil(t, last.next(now, true), "no attempt follows the last")
	first := &attempt{info: activity.Info{Attempt: 1, RetryPolicy: policy}}
	require.Nil(t, first.next(now, false), "nor one that cannot help")
}
