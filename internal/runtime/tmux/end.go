package tmux

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"unwind/internal/runtime"
	"unwind/internal/runtime/proctable"
)

const (
	// verifyLimit is how long a session may take to go after it was killed.
	verifyLimit = 4 * time.Second
	// exitLimit is how long a server without sessions may take to exit; with
	// exit-empty off it stays.
	exitLimit = time.Second
	pollEvery = 50 * time.Millisecond
)

// end asks the session's processes, kills the session and returns when it is
// confirmed gone.
func (t *target) end(ctx context.Context, reaper *proctable.Reaper) error {
	reaper.Ask(ctx)
	return t.verify(ctx, t.kill(ctx))
}

// kill has the server compare the identity and kill in one command, so that
// nothing can come between; also if the command is carried out late, by a server
// that was stopped. In the same call it asks for the sessions, before and after,
// for a session whose processes have ended is gone without a kill; and for the
// panes that are there at that moment. If that is not answered it does not matter
// why: the session is looked for again.
func (t *target) kill(ctx context.Context) *listing {
	same := fmt.Sprintf("#{&&:#{==:#{pid},%d},#{&&:#{==:#{session_id},%s},#{==:#{%s},%s}}}",
		t.recorded.PID, t.id, t.option, t.tag)
	list := listCommands(t.option)
	r, truncated := t.server.run(ctx, listLimit, slices.Concat(list, []string{";"}, paneCommand(t.id),
		[]string{";", "if-shell", "-F", "-t", t.id + ":", same, "kill-session -t '" + t.id + "'", "display-message -p MISMATCH", ";"}, list)...)
	if truncated || r.answer != answered && r.answer != noSession {
		return nil
	}
	printed := string(r.stdout)
	last := lastListing(printed)
	if before, err := parseListing(strings.TrimSuffix(printed, last)); err == nil {
		t.claimPanes(before, parsePanes(printed, t.recorded.PID, t.id))
	}
	left, err := parseListing(last)
	if err != nil {
		return nil
	}
	return &left
}

// verify returns when the session is confirmed gone. What it saw last decides
// what is wrong when its time is over. What is left after the kill is nil if that
// is not known.
func (t *target) verify(ctx context.Context, left *listing) error {
	if left != nil && left.serverPID == t.recorded.PID && len(left.sessions) > 0 {
		if _, there := left.byID(t.id); !there {
			return nil
		}
	}
	var doubt error
	for end := time.Now().Add(verifyLimit); ; {
		state, l, err := t.view(ctx)
		if err == nil && state == runtime.Gone {
			t.letServerExit(ctx, l)
			return nil
		}
		if err != nil && !runtime.Retryable(err) {
			return err
		}
		if ctx.Err() == nil {
			doubt = err
		}
		if ctx.Err() == nil && time.Now().Before(end) {
			time.Sleep(pollEvery)
			continue
		}
		if doubt != nil {
			return doubt
		}
		return runtime.StillAlive(nil, "tmux session %s is still there after it was killed; look at it, then try again.", t.id)
	}
}

// letServerExit waits for a server that has lost its last session, so that
// "gone" includes the server if it goes.
func (t *target) letServerExit(ctx context.Context, l listing) {
	if l.serverPID == 0 || len(l.sessions) > 0 {
		return
	}
	handle, err := proctable.Open(t.recorded)
	if err != nil {
		return
	}
	defer handle.Close()
	proctable.Await(ctx, []*proctable.Handle{handle}, exitLimit)
}
