package store

import (
	"context"
	"encoding/json"
	"slices"

	"unwind/teardown"
)

// Attached counts what an Attach has added.
type Attached struct {
	Session                        Session
	Runtimes, Worktrees, Resources int
}

// Attach gives a live session more runtimes, worktrees and resources, all or
// nothing, with the checks of AddSession. What it has already is left as it is.
// Only ID, Host, Retire and the lists of n are read. The caller holds the
// session's lock and the path locks of the worktrees. Codes: those of
// AddSession, session_not_found, session_terminated, and foreign_host.
func (s *Store) Attach(ctx context.Context, n NewSession) (attached Attached, err error) {
	if err := n.check(); err != nil {
		return Attached{}, err
	}
	n.complete()
	err = s.write(ctx, func(tx queries) error {
		attached, err = attach(ctx, tx, n)
		return err
	})
	return attached, err
}

func attach(ctx context.Context, tx queries, n NewSession) (Attached, error) {
	session, err := lockLiveSession(ctx, tx, n.ID)
	if err != nil {
		return Attached{}, err
	}
	if session.Host != n.Host {
		return Attached{}, &teardown.Error{Code: teardown.CodeForeignHost,
			Message: "Session " + n.ID + " belongs to host " + session.Host + "; attach to it there"}
	}
	n.generation = session.Generation
	if err := n.leaveOutWhatIsAttached(ctx, tx); err != nil {
		return Attached{}, err
	}
	holders := []Holder{session.holder()}
	if session.TaskID != "" {
		t, _, err := lockTask(ctx, tx, session.TaskID)
		if err != nil {
			return Attached{}, err
		}
		holders = append(holders, t.Holder())
	}
	if err := addHoldings(ctx, tx, n, holders); err != nil {
		return Attached{}, err
	}
	if _, err := tx.exec(ctx, "UPDATE sessions SET updated_at = ? WHERE id = ?", now(), n.ID); err != nil {
		return Attached{}, err
	}
	return Attached{Session: session, Runtimes: len(n.Runtimes), Worktrees: len(n.Worktrees), Resources: len(n.Resources)}, nil
}

// leaveOutWhatIsAttached makes a second call with the same content a no-op.
func (n *NewSession) leaveOutWhatIsAttached(ctx context.Context, tx queries) error {
	holder := Holder{Kind: HolderSession, ID: n.ID, Generation: n.generation}
	held, err := heldBy(ctx, tx, holder)
	if err != nil {
		return err
	}
	n.Worktrees = slices.DeleteFunc(n.Worktrees, func(w NewWorktree) bool {
		return slices.ContainsFunc(held, func(known Worktree) bool { return known.Path == w.Path && known.Nonce == w.Nonce })
	})
	runtimes, err := runtimesLeft(ctx, tx, n.ID)
	if err != nil {
		return err
	}
	n.Runtimes = slices.DeleteFunc(n.Runtimes, func(r NewRuntime) bool {
		return slices.ContainsFunc(runtimes, func(known Runtime) bool { return sameHandle(known.Handle.V, r.Handle) })
	})
	resources, err := resourcesLeft(ctx, tx, n.ID, n.generation)
	if err != nil {
		return err
	}
	n.Resources = slices.DeleteFunc(n.Resources, func(r NewResource) bool {
		return slices.ContainsFunc(resources, func(known Resource) bool { return known.Path == r.Path && known.Kind == r.Kind })
	})
	return nil
}

func sameHandle(a, b teardown.Runtime) bool {
	first, errA := json.Marshal(a)
	second, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(first) == string(second)
}
