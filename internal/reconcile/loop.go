package reconcile

import (
	"context"
	"math/rand/v2"
	"time"
)

// jitter spreads the passes of many hosts: a pause is the interval plus or minus
// at most a fifth of it.
const jitter = 0.2

// Loop pauses and does a pass, over and over, until ctx ends. What comes from
// poke ends the pause, and there is none while a pass answers that there is more
// to do.
func Loop(ctx context.Context, interval time.Duration, poke <-chan struct{}, more bool, pass func(context.Context) (more bool)) {
	for {
		if !more {
			select {
			case <-ctx.Done():
			case <-poke:
			case <-time.After(pause(interval, rand.Float64())):
			}
		}
		if ctx.Err() != nil {
			return
		}
		more = pass(ctx)
	}
}

// Listen starts the finalization of every session that it is told of at once,
// however long a pass takes meanwhile. An empty id, a start that failed, or one for
// which there is no room is left to a pass, which poke asks for. It returns when
// told is closed.
func Listen(ctx context.Context, d Deps, told <-chan string, poke chan<- struct{}) {
	p, under := newPass(d), &window{}
	for id := range told {
		if id != "" && p.room(ctx, under) {
			started, err := start(ctx, d, p.starts, id)
			if started {
				under.add(id)
			}
			if err == nil || ctx.Err() != nil {
				continue
			}
			d.Logger.Warn("A session that was just terminated could not be started; the next pass tries again", "session", id, "error", err)
		}
		select {
		case poke <- struct{}{}:
		default: // asked for already
		}
	}
}

// pause is the interval with jitter; random lies between 0 and 1.
func pause(interval time.Duration, random float64) time.Duration {
	return time.Duration(float64(interval) * (1 - jitter + 2*jitter*random))
}

// Logged does one pass and logs it: what changed something as information, what
// failed as a warning.
//
// It answers whether there is more to start, which another pass goes on with.
func Logged(ctx context.Context, d Deps) (more bool) {
	summary, err := Once(ctx, d)
	logger := d.Logger.With("started", summary.Started, "under_way", summary.UnderWay, "woken", summary.Woken,
		"alive", summary.Alive, "terminated", summary.Terminated, "unprobed", summary.Unprobed,
		"converging", summary.Converging, "kept", summary.Kept, "unclaimed", summary.Unclaimed, "failed", summary.Failed)
	for _, note := range summary.Notes {
		d.Logger.Debug("Left alone", "session", note.SessionID, "worktree", note.WorktreeID, "doing", note.Doing, "why", note.Message)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		logger.Warn("Not everything could be reconciled; the next pass tries again", "error", err)
	case summary.Started+summary.Woken+summary.Terminated+summary.Converging > 0:
		logger.Info("Reconciled")
	default:
		logger.Debug("Reconciled")
	}
	return summary.More
}
