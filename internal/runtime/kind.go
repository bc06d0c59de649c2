// Package runtime says what a runtime is to unwind: something that can be
// probed, pictured, ended and pinned. The kinds are in the packages below it,
// wired by package kinds; package runtimetest holds each of them to the
// sentences of Kind.
package runtime

import (
	"context"
	"time"

	"unwind/teardown"
)

// State is the answer of a probe. The zero value stands beside an error only.
type State int

const (
	// Alive: the registered runtime is there, proved by its recorded identity.
	Alive State = iota + 1
	// Gone: it was looked for, by its recorded identity, and was not there.
	Gone
)

func (s State) String() string {
	switch s {
	case Alive:
		return "alive"
	case Gone:
		return "gone"
	}
	return "unknown"
}

// Kind is one kind of runtime. All methods are safe for concurrent use; their
// errors are *teardown.Error. Calls that concern one runtime are serialized by
// the caller, under the session's lock.
//
// What answers to the name or number of a runtime but contradicts its recorded
// identity is somebody else's: no method touches it.
type Kind interface {
	// Probe reports whether the runtime itself is there; it changes nothing.
	//
	// Gone is confirmed, never assumed: what could not be told is an error with
	// CodeRuntimeUnreachable, retryable. A record that names nothing exactly is
	// an error with CodeRuntimeUnroutable, one that contradicts what is there an
	// error with CodeRuntimeIdentity; both need a person. Processes that outlived
	// the runtime do not make it alive; Destroy ends them. A runtime of an
	// earlier boot, or one marked gone, is Gone.
	Probe(ctx context.Context, rt teardown.Runtime) (State, error)

	// Snapshot writes what the runtime shows to a file in dir, which is made if
	// missing, and returns the file's path. The file is readable by its owner
	// only and at most MaxSnapshot bytes long; what is left out is the oldest.
	// The path is empty if there is nothing to show, as of a runtime that is gone.
	// What Probe answers with an error is the same error. A directory inside the
	// runtime's worktree is an error, as the file would go with it. Snapshot
	// never changes the runtime.
	Snapshot(ctx context.Context, rt teardown.Runtime, dir string) (path string, err error)

	// Destroy ends the runtime and every process that is provably its own, and
	// returns when it has seen that they are gone, or at the latest after
	// Options.Limit.
	//
	// Outcome released: something was there and is confirmed gone. Outcome
	// already_gone: nothing of it was there. In both cases two successive scans
	// found no process of the runtime's. Calling Destroy again is harmless and
	// answers already_gone.
	//
	// Outcome refused: a person has to decide; the code says why
	// (CodeRuntimeUnroutable and CodeRuntimeIdentity: nothing was touched;
	// CodeRuntimeOccupied: the runtime is gone but somebody stands in its
	// worktree). A refusal is not an error.
	//
	// An error is retryable, and the runtime counts as not gone:
	// CodeRuntimeUnreachable (could not tell), CodeRuntimeStillAlive,
	// CodeRuntimeSurvivors (its Details list pid and command).
	//
	// Processes are asked with SIGTERM and get time to save before they are
	// killed. The calling process, its ancestors, process 1 and the tmux server
	// that is recorded are never signalled; a process that merely stands in the
	// worktree is never signalled either.
	Destroy(ctx context.Context, rt teardown.Runtime, options Options) (Outcome, error)

	// Pin completes the record of a runtime that is about to be registered: what
	// is left out is looked up on this machine, what is given is checked, and a
	// tmux session without a tag gets one. Pinning a pinned runtime changes
	// nothing.
	//
	// A given value that contradicts what is there is an error with
	// CodeRuntimeIdentity. A runtime that is not there is an error with
	// CodeRuntimeUnroutable, unless it is marked gone: then it is returned as it
	// is. One that is marked gone and lives is an error with CodeRuntimeIdentity.
	Pin(ctx context.Context, rt teardown.Runtime) (teardown.Runtime, error)
}

// MaxSnapshot bounds the size of one snapshot, in bytes.
const MaxSnapshot = 4 << 20

// DefaultLimit bounds one call of Destroy.
const DefaultLimit = 15 * time.Second

// Options of one call of Destroy. The zero value is the careful choice.
type Options struct {
	// Snapshot is the directory for a picture of what the runtime shows, taken
	// before anything is ended; empty for none. That it fails is a note.
	Snapshot string
	// ConfirmedGoneBy is who said that the runtime is gone. It replaces the
	// probe, and the identity that a probe needs; survivors are looked for all
	// the same.
	ConfirmedGoneBy string
	// AllowOccupants: a process of somebody else that stands in the worktree is
	// noted in Outcome.Occupants instead of refused.
	AllowOccupants bool
	// Record is called before anything is ended if there is something that nobody
	// could find out after that: where the picture is, or more of what the runtime is
	// than rt says, which is then in known. Its error ends the call, with nothing
	// touched, and is returned as it is. It may be nil.
	Record func(ctx context.Context, known teardown.Runtime, snapshot string) error
	// Progress is told what is being done, also while waiting; it may be nil.
	Progress func(doing string)
	// Limit is the time that the call may take; 0 means DefaultLimit.
	Limit time.Duration
}

// Outcome is what a call of Destroy came to.
type Outcome struct {
	Runtime teardown.RuntimeResult
	// Occupants lists processes of others with their working directory in the
	// worktree, as "pid command", at most teardown.MaxDetails and a count.
	Occupants []string
	// Notes are for people: what went wrong without mattering.
	Notes []string
	// Message is a sentence for a person that says what to do; set with a
	// refusal.
	Message string
}
