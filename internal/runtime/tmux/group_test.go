//go:build linux

package tmux

import (
	"path/filepath"
	"slices"
	"testing"

	"unwind/internal/runtime"
	"unwind/internal/runtime/runtimetest"
	"unwind/teardown"
)

// hidden is a pane's program that shows neither a tag nor where it was opened.
const hidden = `exec env -i sh -c "trap '' HUP; cd /; echo \$\$ >$STAGE/later; exec sleep 900"`

// bare is one that shows no tag.
const bare = `cd /; unset UNWIND_RUN_ID; exec sh -c 'echo $$ >$STAGE/later; exec sleep 900'`

// prepared starts a bystander's session ($0) and the agent's ($1), has them
// arranged and then registers the agent's.
func prepared(t *testing.T, arrange func(b *bench)) *bench {
	t.Helper()
	t.Parallel()
	b := &bench{Stage: runtimetest.NewStage(t)}
	b.socket = filepath.Join(b.Dir, "s")
	b.bystander(t)
	rt := b.session(t, "agent", runtimetest.Plain)
	b.PID(t, "agent")
	arrange(b)
	b.register(t, rt)
	return b
}

func (b *bench) watch(t *testing.T) {
	t.Helper()
	b.tmux(t, "new-session", "-d", "-s", "peer", "-t", "=agent")
}

func (b *bench) wantPinned(t *testing.T, tag string, pids ...int) {
	t.Helper()
	var pinned []int
	for _, pane := range b.rt.Identity.Panes {
		pinned = append(pinned, pane.PID)
	}
	if !slices.Equal(pinned, pids) || b.rt.Identity.EnvTag != tag {
		t.Errorf("pinned panes %v, env_tag %q, want %v, %q", pinned, b.rt.Identity.EnvTag, pids, tag)
	}
}

// wantRefused is for what may be ours and may be somebody else's: nothing is
// ended, and asking again brings the same.
func (b *bench) wantRefused(t *testing.T, pids ...int) {
	t.Helper()
	for range 2 {
		outcome, err := b.destroy(t, runtime.Options{})
		if err != nil || outcome.Runtime.Outcome != teardown.RuntimeRefused ||
			outcome.Runtime.Code != teardown.CodeRuntimeIdentity || len(outcome.Runtime.Details) != len(pids) {
			t.Errorf("%+v %v, want a refusal that names %v", outcome, err, pids)
		}
		b.wantAlive(t, append(pids, b.agent, b.keep)...)
	}
}

func TestSessionThatWasInAGroupBeforeItWasRegistered(t *testing.T) {
	b := prepared(t, func(b *bench) { b.watch(t) })
	b.wantPinned(t, b.EnvTag(), b.agent)
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, b.agent)
	b.wantAlive(t, b.keep)
	b.wantSessions(t, "keep")
}

func TestSessionThatWasInAGroupBeforeAndHasNoTag(t *testing.T) {
	t.Parallel()
	b := &bench{Stage: runtimetest.NewStage(t)}
	b.socket = filepath.Join(b.Dir, "s")
	b.bystander(t)
	b.tmux(t, "new-session", "-d", "-s", "agent", "sh", "-c", runtimetest.Plain)
	b.watch(t)
	b.register(t, teardown.Runtime{Kind: teardown.KindTmux, Socket: b.socket, Session: "agent"})
	b.wantPinned(t, "", b.agent)
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, b.agent)
	b.wantAlive(t, b.keep)
}

func TestWindowOpenedInAGroup(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"tagged":      `exec sh -c 'echo $$ >$STAGE/later; cd /; exec sleep 900'`,
		"without tag": bare,
		"hidden":      hidden,
	} {
		for _, in := range []string{"agent", "peer"} {
			t.Run(name+" in "+in, func(t *testing.T) {
				b := setup(t, runtimetest.Plain)
				b.watch(t)
				b.tmux(t, "new-window", "-d", "-t", "="+in+":", "sh", "-c", script)
				later := b.PID(t, "later")
				b.wantOutcome(t, teardown.RuntimeReleased)
				b.wantDead(t, b.agent, later)
				b.wantAlive(t, b.keep)
				b.wantSessions(t, "keep")
			})
		}
	}
}

// The windows of the session that ours joined are that session's.
func TestSessionThatJoinedAGroup(t *testing.T) {
	t.Parallel()
	join := func(t *testing.T, script string) *bench {
		b := &bench{Stage: runtimetest.NewStage(t)}
		b.socket = filepath.Join(b.Dir, "s")
		b.bystander(t)
		b.tmux(t, "new-session", "-d", "-s", "agent", "-t", "=keep")
		b.tmux(t, "new-window", "-d", "-t", "=agent:", "-e", b.EnvTag(), "sh", "-c", runtimetest.Plain)
		b.tmux(t, "new-window", "-d", "-t", "=agent:", "sh", "-c", script)
		b.register(t, teardown.Runtime{Kind: teardown.KindTmux, Socket: b.socket, Session: "agent"})
		return b
	}
	t.Run("is released without them", func(t *testing.T) {
		t.Parallel()
		b := join(t, bare)
		later := b.PID(t, "later")
		b.wantPinned(t, b.EnvTag(), b.agent, later)
		b.wantOutcome(t, teardown.RuntimeReleased)
		b.wantDead(t, b.agent, later)
		b.wantAlive(t, b.keep)
		b.wantSessions(t, "keep")
	})
	t.Run("is refused if it cannot be told which they are", func(t *testing.T) {
		t.Parallel()
		b := join(t, hidden)
		later := b.PID(t, "later")
		b.wantPinned(t, b.EnvTag(), b.agent)
		b.wantRefused(t, later)
	})
}

func TestOurWindowLinkedElsewhereBeforeItWasRegistered(t *testing.T) {
	b := prepared(t, func(b *bench) { b.tmux(t, "link-window", "-s", "=agent:", "-t", "=keep:7") })
	b.wantPinned(t, b.EnvTag(), b.agent)
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, b.agent)
	b.wantSessions(t, "keep")
}

// A window that is in our session twice is not another session's.
func TestOurWindowLinkedIntoOursAgain(t *testing.T) {
	b := prepared(t, func(b *bench) {
		b.tmux(t, "link-window", "-s", "=agent:", "-t", "=agent:7")
		b.watch(t)
	})
	b.wantPinned(t, b.EnvTag(), b.agent)
	b.tmux(t, "new-window", "-d", "-t", "=agent:8", "sh", "-c", hidden)
	later := b.PID(t, "later")
	b.tmux(t, "link-window", "-s", "=agent:8", "-t", "=agent:9")
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, b.agent, later)
	b.wantSessions(t, "keep")
}

func TestWindowOfAnotherSessionLinkedIntoOurGroup(t *testing.T) {
	b := prepared(t, func(b *bench) {
		b.watch(t)
		b.tmux(t, "link-window", "-s", "=keep:", "-t", "=agent:7")
	})
	b.wantPinned(t, b.EnvTag(), b.agent)
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, b.agent)
	b.wantAlive(t, b.keep)
	b.wantSessions(t, "keep", "peer") // which shows the linked window still
}

func TestWindowThatCannotBeToldWhoseItIs(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(t *testing.T, b *bench){
		"opened in ours": func(t *testing.T, b *bench) {
			b.tmux(t, "new-window", "-d", "-t", "=agent:7", "sh", "-c", hidden)
			b.tmux(t, "link-window", "-s", "=agent:7", "-t", "=keep:7")
		},
		"opened in another": func(t *testing.T, b *bench) {
			b.tmux(t, "new-window", "-d", "-t", "=keep:7", "sh", "-c", hidden)
			b.tmux(t, "link-window", "-s", "=keep:7", "-t", "=agent:7")
		},
		"opened in one that is gone": func(t *testing.T, b *bench) {
			b.watch(t)
			b.tmux(t, "new-window", "-d", "-t", "=peer:7", "sh", "-c", bare)
			b.tmux(t, "link-window", "-s", "=peer:7", "-t", "=keep:7")
			b.tmux(t, "kill-session", "-t", "=peer")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, runtimetest.Plain)
			arrange(t, b)
			later := b.PID(t, "later")
			b.wantRefused(t, later)
			b.tmux(t, "unlink-window", "-t", "=agent:7")
			b.wantOutcome(t, teardown.RuntimeReleased)
			b.wantDead(t, b.agent)
			b.wantAlive(t, b.keep, later)
		})
	}
}

// What is opened after the look is judged by the look of the kill itself.
func TestWindowThatCannotBeToldOpenedWhileTheAgentSaves(t *testing.T) {
	b := setup(t, `printf '%s\n' 'cd /' 'echo $$ >$STAGE/later' 'exec env -i sleep 900' >$STAGE/later.sh
		trap 'tmux -S $STAGE/s new-window -d -t =agent:7 "exec sh $STAGE/later.sh"; until [ -s $STAGE/later ]; do sleep .1; done
			tmux -S $STAGE/s link-window -s =agent:7 -t =keep:7; exit 0' TERM
		echo $$ >$STAGE/agent; while :; do sleep .1; done`)
	outcome, err := b.destroy(t, runtime.Options{})
	later := b.PID(t, "later")
	if err != nil || outcome.Runtime.Code != teardown.CodeRuntimeIdentity || len(outcome.Runtime.Details) != 1 {
		t.Errorf("%+v %v", outcome, err)
	}
	b.wantDead(t, b.agent)
	b.wantAlive(t, later, b.keep)
}

// A tmux without a format prints nothing for it.
func TestTmuxWithoutTheFormats(t *testing.T) {
	t.Parallel()
	without := func(formats string) string {
		return `for a; do shift; case $a in "#{pane_id}"*) a=$(echo "$a" | sed -E 's/#\{(` + formats + `)\}//g');; esac; set -- "$@" "$a"; done; exec tmux "$@"`
	}
	release := func(t *testing.T, b *bench, formats string) runtime.Outcome {
		outcome, err := b.instead(t, without(formats)).Destroy(t.Context(), b.rt, runtime.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return outcome
	}
	t.Run("a window of ours", func(t *testing.T) {
		b := setup(t, runtimetest.Plain)
		b.tmux(t, "new-window", "-d", "-t", "=agent:7", "sh", "-c", hidden)
		later := b.PID(t, "later")
		if outcome := release(t, b, "window_linked_sessions|session_group_size"); outcome.Runtime.Outcome != teardown.RuntimeReleased {
			t.Errorf("%+v", outcome)
		}
		b.wantDead(t, b.agent, later)
	})
	t.Run("a window of another session", func(t *testing.T) {
		b := setup(t, runtimetest.Plain)
		b.tmux(t, "link-window", "-s", "=keep:", "-t", "=agent:7")
		if outcome := release(t, b, "window_linked_sessions|session_group_size"); outcome.Runtime.Outcome != teardown.RuntimeReleased {
			t.Errorf("%+v", outcome)
		}
		b.wantDead(t, b.agent)
		b.wantAlive(t, b.keep)
	})
	t.Run("nothing is known", func(t *testing.T) {
		b := setup(t, runtimetest.Plain)
		b.tmux(t, "new-window", "-d", "-t", "=agent:7", "sh", "-c", hidden)
		later := b.PID(t, "later")
		if outcome := release(t, b, "window_linked|window_linked_sessions|session_group_size"); outcome.Runtime.Code != teardown.CodeRuntimeIdentity {
			t.Errorf("%+v", outcome)
		}
		b.wantAlive(t, b.agent, later)
	})
}
