package reconcile

import (
	"context"
	"errors"
	"fmt"
	"os"
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

// watchAll looks at the agents of this host's live sessions, a page at a time:
// one listing of each tmux server for all of them.
func (p *pass) watchAll(ctx context.Context) {
	if p.Runtimes == nil {
		return
	}
	for after := ""; ; {
		page, err := p.Store.Watched(ctx, p.Host.ID, after, pageSize, time.Now())
		if err != nil {
			p.failed(Finding{Doing: "list the live sessions of this host"}, err)
			return
		}
		for _, row := range page.Unreadable {
			p.failed(Finding{SessionID: row.ID, Doing: "watch"}, row.Err)
		}
		for _, gone := range p.probe(ctx, page.Rows) {
			if ctx.Err() != nil {
				return
			}
			if err := p.recordGone(ctx, gone); err != nil {
				p.failed(Finding{SessionID: gone.SessionID, Doing: "record that the agent is gone"}, err)
			}
		}
		if after = page.Next; after == "" {
			return
		}
		if p.Serving {
			p.see(ctx)
		}
	}
}

// probe counts the sessions that live or cannot be told, and answers those whose
// agents all look gone.
func (p *pass) probe(ctx context.Context, sessions []store.Watched) (gone []store.Watched) {
	var handles []teardown.Runtime
	for _, session := range sessions {
		for _, agent := range session.Agents {
			handles = append(handles, agent.Handle)
		}
	}
	answers := p.Runtimes.ProbeAll(ctx, handles)
	for _, session := range sessions {
		own := answers[:len(session.Agents)]
		answers = answers[len(session.Agents):]
		state, err := together(session, own)
		switch {
		case err != nil:
			p.done.Unprobed++
			p.noted(Finding{SessionID: session.SessionID, Doing: "watch"}, err)
		case state == runtime.Gone:
			gone = append(gone, session)
		default:
			p.done.Alive++
		}
	}
	return gone
}

// together is alive if one agent is; gone needs all of them.
func together(session store.Watched, answers []runtime.Probed) (runtime.State, error) {
	var first error
	for i, agent := range session.Agents {
		err := agent.Err
		if err == nil && answers[i].State == runtime.Alive {
			return runtime.Alive, nil
		}
		if err == nil {
			err = answers[i].Err
		}
		if first == nil {
			first = err
		}
	}
	return runtime.Gone, first
}

// recordGone confirms under the session's lock that the agents are gone, saves
// what is not committed, and records that the session has ended.
func (p *pass) recordGone(ctx context.Context, listed store.Watched) error {
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
	handles := make([]teardown.Runtime, len(session.Agents))
	for i, agent := range session.Agents {
		handles[i] = agent.Handle
	}
	if state, err := together(session, p.Runtimes.ProbeAll(ctx, handles)); err != nil || state != runtime.Gone {
		return nil // started meanwhile, or not to be told: the next pass looks again
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
