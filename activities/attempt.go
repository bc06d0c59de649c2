package activities

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"unwind/internal/lock"
	"unwind/teardown"
)

// attempt is one attempt of a step that touches a machine: it heartbeats by
// itself, carries the newest progress, and lends the step a context that
// outlives the workflow's cancellation.
type attempt struct {
	info     activity.Info
	progress atomic.Pointer[teardown.Progress]
	stop     func()
}

// begin starts the heartbeats. The context that it answers ends when the
// attempt's time is up, when the worker stops, or when Temporal no longer knows
// the attempt; not when the workflow is cancelled or the activity is reset,
// because a step that runs is always let finish.
func begin(ctx context.Context, doing string) (context.Context, *attempt) {
	a := &attempt{info: activity.GetInfo(ctx)}
	a.report(teardown.Progress{Step: doing})
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	work, cancelDeadline := context.WithDeadline(work, a.info.Deadline)
	unhook := context.AfterFunc(ctx, func() {
		if !goesOn(context.Cause(ctx)) {
			cancel(context.Cause(ctx))
		}
	})
	done := make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() {
		a.heartbeat(context.WithoutCancel(ctx), done)
	})
	a.stop = func() {
		close(done)
		beating.Wait()
		unhook()
		cancelDeadline()
		cancel(nil)
	}
	return work, a
}

// goesOn reports whether a step goes on although its activity context ended for
// this cause.
func goesOn(cause error) bool {
	var cancelled *temporal.CanceledError
	return errors.As(cause, &cancelled) ||
		errors.Is(cause, activity.ErrActivityReset) || errors.Is(cause, activity.ErrActivityPaused)
}

func (a *attempt) heartbeat(ctx context.Context, done <-chan struct{}) {
	interval := a.info.HeartbeatTimeout / 4
	if interval <= 0 {
		interval = time.Second
	}
	ticker := time.NewTicker(min(interval, time.Second))
	defer ticker.Stop()
	activity.RecordHeartbeat(ctx, *a.progress.Load())
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			activity.RecordHeartbeat(ctx, *a.progress.Load())
		}
	}
}

func (a *attempt) report(p teardown.Progress) { a.progress.Store(&p) }

func (a *attempt) doing(step string) { a.report(teardown.Progress{Step: step}) }

// lockWait waits for less than the attempt's own time, so that a lock that is
// held answers busy rather than a time-out.
func (a *attempt) lockWait(configured time.Duration) lock.Wait {
	limit := configured
	if left := time.Until(a.info.Deadline) / 2; limit <= 0 || limit > left {
		limit = left
	}
	return lock.Wait{Limit: limit, Each: func() {}}
}

// next is when Temporal will try again, or nil if this was the last attempt.
func (a *attempt) next(now time.Time, retryable bool) *time.Time {
	policy := a.info.RetryPolicy
	if !retryable || policy == nil || (policy.MaximumAttempts > 0 && a.info.Attempt >= policy.MaximumAttempts) {
		return nil
	}
	backoff := float64(policy.InitialInterval) * math.Pow(policy.BackoffCoefficient, float64(a.info.Attempt-1))
	if policy.MaximumInterval > 0 {
		backoff = min(backoff, float64(policy.MaximumInterval))
	}
	at := now.Add(time.Duration(backoff))
	return &at
}
