package reconcile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"unwind/internal/fault"
	"unwind/internal/lock"
	"unwind/internal/runtime"
	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
)

const (
	// lockPatience is how long a pass waits for a lock that somebody holds: what
	// is being worked on is looked at by the next pass.
	lockPatience = time.Second
	// saveLimit bounds the saving of one session's uncommitted work.
	saveLimit = 2 * time.Minute
)

// watchAll looks at the agents of this host's live sessions, with one survey for
// all of them. Another one confirms those that look gone: the first may be older
// than what was recorded since.
func (p *pass) watchAll(ctx context.Context) {
	if p.Runtimes == nil {
		return
	}
	p.unanswered = 0
	var gone []store.Watched
	survey := p.Runtimes.Survey()
	each(ctx, p, part[store.Watched]{
		doing: "watch", id: func(session store.Watched) string { return session.SessionID },
		next: func(ctx context.Context, after string) (store.Page[store.Watched], error) {
			return p.Store.Watched(ctx, p.Host.ID, after, pageSize, time.Now())
		},
		act: func(ctx context.Context, session store.Watched) {
			switch state, err := together(ctx, session, survey); {
			case err != nil:
				p.done.Unprobed++
				p.noted(Finding{SessionID: session.SessionID, Doing: "watch"}, err)
			case state == runtime.Gone:
				gone = append(gone, session)
			default:
				p.done.Alive++
			}
		},
	})
	confirmed, until := p.Runtimes.Survey(), p.within(p.StartFor/2)
	for n, session := range gone {
		if ctx.Err() != nil {
			return
		}
		if n > 0 && !until.IsZero() && time.Now().After(until) { // saving their work takes its time
			p.done.More = true
			return
		}
		if err := p.recordGone(ctx, session, confirmed); err != nil {
			p.failed(Finding{SessionID: session.SessionID, Doing: "record that the agent is gone"}, err)
		}
	}
}

// together is alive if one agent is; gone needs all of them.
func together(ctx context.Context, session store.Watched, survey runtime.Survey) (runtime.State, error) {
	var first error
	for _, agent := range session.Agents {
		state, err := runtime.State(0), agent.Err
		if err == nil {
			state, err = survey(ctx, agent.Handle)
		}
		if err == nil && state == runtime.Alive {
			return runtime.Alive, nil
		}
		if first == nil {
			first = err
		}
	}
	return runtime.Gone, first
}

// recordGone confirms under the session's lock that the agents are gone, saves
// what is not committed, and records that the session has ended. The survey was
// begun after the session was listed: what is gone does not come back, under the
// identity that was listed.
func (p *pass) recordGone(ctx context.Context, listed store.Watched, survey runtime.Survey) error {
	held, err := p.Locks.Session(ctx, listed.SessionID, lock.Wait{Limit: lockPatience})
	if teardown.CodeOf(err) == teardown.CodeBusy {
		return nil // it is being started, restored or finalized
	}
	if err != nil {
		return err
	}
	defer held.Release()
	session, found, err := p.Store.WatchedSession(ctx, listed.SessionID, time.Now())
	if err != nil || !found {
		return err
	}
	if !reflect.DeepEqual(session, listed) {
		return nil // started anew meanwhile: the next pass looks
	}
	if state, err := together(ctx, session, survey); err != nil || state != runtime.Gone {
		return nil
	}
	p.saveAll(ctx, session)
	fault.Point("work saved")
	changed, err := p.Store.AgentGone(ctx, session)
	if changed {
		p.done.Terminated++
		p.Logger.Info("The agent is gone; its session is recorded as terminated", "session", session.SessionID, "generation", session.Generation)
	}
	return err
}

// saveAll saves the uncommitted work in each of the session's worktrees to a
// ref. That it fails is a note: nothing is removed for it, and the removal looks
// again.
func (p *pass) saveAll(ctx context.Context, session store.Watched) {
	if p.Worktrees == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, saveLimit)
	defer cancel()
	holder := store.Holder{Kind: store.HolderSession, ID: session.SessionID, Generation: session.Generation}
	worktrees, err := p.Store.HeldWorktrees(ctx, holder)
	if err != nil {
		p.unsaved(session, "", err)
	}
	for _, w := range worktrees {
		if err := p.save(ctx, holder, w); err != nil {
			p.unsaved(session, w.ID, err)
		}
	}
}

func (p *pass) unsaved(session store.Watched, worktreeID string, err error) {
	p.noted(Finding{SessionID: session.SessionID, WorktreeID: worktreeID, Doing: "save uncommitted work"}, err)
	p.Logger.Warn("Uncommitted work was not saved; the worktree is looked at all the same before it may be removed",
		"session", session.SessionID, "worktree", worktreeID, "error", err)
}

func (p *pass) save(ctx context.Context, holder store.Holder, w store.Worktree) error {
	held, err := p.Locks.Path(ctx, w.Path, lock.Wait{Limit: lockPatience})
	if err != nil {
		return err
	}
	defer held.Release()
	saved, err := p.Worktrees.Save(ctx, worktree.Target{Repository: w.Repository, Path: w.Path, Nonce: w.Nonce}, worktree.SaveOptions{
		Ref:     worktree.SavedRef(holder.ID, holder.Generation, w.ID),
		Partial: true,
		Hooks:   worktree.Hooks{Name: w.ID, Inherit: []*os.File{held.File()}},
	})
	if err != nil || saved.Ref == "" {
		return explained(err, w)
	}
	return p.Store.SavedBeforehand(ctx, holder, w.ID, saved.Ref)
}

func explained(err error, w store.Worktree) error {
	var known *teardown.Error
	if !errors.As(err, &known) {
		return err
	}
	note := *known
	note.Message = fmt.Sprintf("The uncommitted work in %s was not saved: %s", w.Path, known.Message)
	return &note
}
