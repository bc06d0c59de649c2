package main

import (
	"time"

	"unwind/internal/store"
	"unwind/teardown"
)

// stateOf derives a session's state from the facts.
func stateOf(session store.Session, finalization *store.Finalization, at time.Time) store.SessionState {
	switch {
	case session.TerminatedAt == nil:
		return store.StateLive
	case finalization != nil && finalization.FinishedAt != nil:
		return store.StateFinished
	case session.Held(at):
		return store.StateHeld
	case finalization != nil && finalization.ParkedAt != nil:
		return store.StateParked
	}
	return store.StateTerminated
}

// stateWords says a state the way a person would; kept counts the worktrees that
// stay. Nothing but what is shown to a person depends on it.
func stateWords(state store.SessionState, parkedReason string, kept int) (words string, as style) {
	switch state {
	case store.StateLive:
		return "Live", green
	case store.StateFinished:
		return "Finalized", faint
	case store.StateHeld:
		return "Held", yellow
	case store.StateParked:
		return parkedWords(parkedReason, kept), yellow
	}
	return "Cleaning up", plain
}

func parkedWords(reason string, kept int) string {
	switch reason {
	case teardown.ReasonRefused:
		if kept == 0 {
			return "Resource refused"
		}
		return "Worktree kept"
	case teardown.ReasonPreserved:
		return "Worktree kept"
	case teardown.ReasonRuntimeRefused:
		return "Runtime kept"
	case teardown.ReasonHostUnreachable:
		return "Waits for its host"
	}
	return "Retry available"
}

// whatNext says how a person gets a parked finalization to go on.
func whatNext(id, reason string) string {
	retry := "`" + name + " retry " + id + "`"
	switch reason {
	case teardown.ReasonPreserved:
		return "Commit, move or delete what is listed, then run " + retry + ". With --save-changes it saves uncommitted work to a ref itself."
	case teardown.ReasonRefused:
		return "What is listed is never removed by " + name + "; settle it by hand, then run " + retry + "."
	case teardown.ReasonRuntimeRefused:
		return "End the runtime by hand if it is the session's, then run " + retry + " --runtime-confirmed-gone."
	case teardown.ReasonHostUnreachable:
		return "It goes on by itself when unwind-worker runs on that host again."
	case teardown.ReasonCancelled:
		return "Its workflow was cancelled; run " + retry + " to go on."
	}
	return "Run " + retry + " when the cause is gone."
}

// dispositionStyle: green is gone, yellow is kept, red has failed.
func dispositionStyle(disposition teardown.Disposition) style {
	switch disposition {
	case teardown.DispositionRemoved, teardown.DispositionAlreadyGone:
		return green
	case teardown.DispositionPreserved, teardown.DispositionRefused, teardown.DispositionRetained:
		return yellow
	case teardown.DispositionFailed:
		return red
	}
	return plain
}

func runtimeStyle(outcome teardown.RuntimeOutcome) style {
	switch outcome {
	case teardown.RuntimeReleased, teardown.RuntimeAlreadyGone:
		return green
	case teardown.RuntimeRefused:
		return yellow
	case teardown.RuntimeFailed:
		return red
	}
	return plain
}

// runtimeName is what a person knows a runtime by.
func runtimeName(rt teardown.Runtime) string {
	switch {
	case rt.Kind != teardown.KindProcess:
		return rt.Session
	case rt.PID == 0: // it is being started
		return "without a pid"
	}
	return "pid " + itoa(rt.PID)
}
