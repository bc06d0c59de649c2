//go:build linux

package tmux

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unwind/internal/runtime"
	"unwind/internal/runtime/runtimetest"
	"unwind/teardown"
)

func TestOtherSessionsOfTheServerLive(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, b.agent)
	b.wantSessions(t, "keep")
}

func TestSessionKilledBefore(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.tmux(t, "kill-session", "-t", b.rt.Identity.SessionID)
	b.awaitDead(t, b.agent)
	b.wantOutcome(t, teardown.RuntimeAlreadyGone)
	b.wantSessions(t, "keep")
}

func TestServerGoesWithItsOnlySession(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.tmux(t, "kill-session", "-t", "=keep:")
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, b.agent, b.rt.Identity.ServerPID)
	b.wantOutcome(t, teardown.RuntimeAlreadyGone)
}

func TestServerWithoutSessionsIsAnAnswer(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.tmux(t, "set-option", "-g", "exit-empty", "off")
	b.tmux(t, "kill-session", "-a", "-t", "=keep:")
	b.tmux(t, "kill-session", "-t", "=keep:")
	b.awaitDead(t, b.agent)
	b.wantOutcome(t, teardown.RuntimeAlreadyGone)
	b.wantAlive(t, b.rt.Identity.ServerPID)
}

// "no server running" says nothing about panes that ignore SIGHUP.
func TestPaneThatOutlivedItsServer(t *testing.T) {
	b := setup(t, runtimetest.Deaf)
	runtimetest.Kill(t, b.rt.Identity.ServerPID)
	b.wantAlive(t, b.agent)
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, b.agent)
}

func TestSocketRemovedWhileTheServerLives(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.remove(t, b.socket)
	if _, err := (Kind{}).Probe(t.Context(), b.rt); teardown.CodeOf(err) != teardown.CodeRuntimeUnreachable {
		t.Errorf("Probe: %v", err)
	}
	if _, err := os.Lstat(b.socket); err == nil {
		t.Error("the probe had the socket made again")
	}
	outcome := b.wantOutcome(t, teardown.RuntimeReleased)
	if len(outcome.Notes) == 0 {
		t.Error("that the socket was made again was not noted")
	}
	b.wantDead(t, b.agent)
	b.wantSessions(t, "keep")
}

// tmux would replace what is at the path; that is not ours to decide.
func TestSomethingElseAtTheSocketsPath(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(*testing.T, *bench){
		"a file":      func(t *testing.T, b *bench) { b.check(t, os.WriteFile(b.socket, nil, 0o600)) },
		"a directory": func(t *testing.T, b *bench) { b.check(t, os.Mkdir(b.socket, 0o700)) },
		"a stale socket": func(t *testing.T, b *bench) {
			listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: b.socket})
			b.check(t, err)
			listener.SetUnlinkOnClose(false)
			listener.Close()
		},
		"another server": func(t *testing.T, b *bench) { b.bystander(t) },
		"another server without sessions": func(t *testing.T, b *bench) {
			b.bystander(t)
			b.tmux(t, "set-option", "-g", "exit-empty", "off")
			b.tmux(t, "kill-session", "-t", "=keep:")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, runtimetest.Plain)
			old := b.keep
			b.remove(t, b.socket)
			put(t, b)
			before, _ := os.Lstat(b.socket)
			b.wantError(t, teardown.CodeRuntimeUnreachable)
			b.wantAlive(t, b.agent, old, b.rt.Identity.ServerPID)
			if after, _ := os.Lstat(b.socket); after == nil || !os.SameFile(before, after) {
				t.Error("what was at the socket's path was replaced")
			}
		})
	}
}

func TestPartOfTheSocketsPathIsAFile(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.rt.Socket = filepath.Join(b.Dir, "agent", "s")
	b.wantError(t, teardown.CodeRuntimeUnreachable)
	b.wantAlive(t, b.agent)
}

func TestSocketPathTooLong(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.rt.Socket = filepath.Join(b.Dir, strings.Repeat("long", 40))
	b.wantError(t, teardown.CodeRuntimeUnreachable)
	b.wantAlive(t, b.agent)
}

func TestNameOfAnotherSessionBeginsWithOurs(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.tmux(t, "kill-session", "-t", b.rt.Identity.SessionID)
	b.awaitDead(t, b.agent)
	b.tmux(t, "new-session", "-d", "-s", "agent-2", "exec sleep 900")
	b.wantOutcome(t, teardown.RuntimeAlreadyGone)
	b.wantSessions(t, "agent-2", "keep")
}

func TestNameUsedAgainOnTheSameServer(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.tmux(t, "kill-session", "-t", b.rt.Identity.SessionID)
	b.awaitDead(t, b.agent)
	b.tmux(t, "new-session", "-d", "-s", "agent", "exec sleep 900")
	b.wantOutcome(t, teardown.RuntimeAlreadyGone)
	b.wantSessions(t, "agent", "keep")
}

func TestNameIDAndTagUsedAgainOnANewServer(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	runtimetest.Kill(t, b.rt.Identity.ServerPID)
	b.awaitDead(t, b.agent)
	b.bystander(t)
	b.tmux(t, "new-session", "-d", "-s", "agent", "exec sleep 900")
	b.tmux(t, "set-option", "-t", b.rt.Identity.SessionID, TagOption, b.rt.Identity.Tag)
	b.wantOutcome(t, teardown.RuntimeAlreadyGone)
	b.wantSessions(t, "agent", "keep")
}

func TestNumberOfTheServerUsedAgain(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.rt.Identity.ServerStartTime -= 777
	b.rt.Identity.Panes = nil
	b.rt.Identity.EnvTag = ""
	b.rt.Identity.Worktree = ""
	b.wantOutcome(t, teardown.RuntimeAlreadyGone)
	b.wantAlive(t, b.agent)
}

func TestNumberOfAPaneUsedAgain(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	other := b.Start(t, "/", "exec sleep 900")
	ref := runtimetest.Ref(t, other)
	b.rt.Identity.Panes = append(b.rt.Identity.Panes, teardown.Pane{PID: other, StartTime: ref.Start - 777})
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, b.agent)
	b.wantAlive(t, other)
}

func TestRecreatedByAHook(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.tmux(t, "set-hook", "-g", "session-closed", "if-shell -F '#{==:#{hook_session_name},agent}' 'new-session -d -s agent \"exec sleep 900\"'")
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, b.agent)
	b.wantSessions(t, "agent", "keep")
}

func TestNamesThatTmuxWouldMisread(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"aufgabe-größe-日本", "a.b", "c:d", "$0", "=keep", "%0", "@0", "~", "{last}", "ke*", "k??p", "-dash", "two words", "it's \"quoted\"", "a|b", `back\slash`, "🙂"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bench{Stage: runtimetest.NewStage(t)}
			b.socket = filepath.Join(b.Dir, "s")
			b.bystander(t)
			b.register(t, b.session(t, name, runtimetest.Plain))
			b.wantOutcome(t, teardown.RuntimeReleased)
			b.wantDead(t, b.agent)
			b.wantSessions(t, "keep")
		})
	}
}

func TestTagOfSomebodyElse(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][]string{
		"another":          {"set-option", "-t", "$1", TagOption, "another-run"},
		"none":             {"set-option", "-u", "-t", "$1", TagOption},
		"ours and more":    {"set-option", "-a", "-t", "$1", TagOption, "x"},
		"a line of a list": {"set-option", "-t", "$1", TagOption, "x\n$1|1|1|x|agent"},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, runtimetest.Plain)
			b.tmux(t, change...)
			outcome, err := b.destroy(t, runtime.Options{})
			if err != nil || outcome.Runtime.Outcome != teardown.RuntimeRefused || outcome.Runtime.Code != teardown.CodeRuntimeIdentity {
				t.Errorf("%+v %v", outcome, err)
			}
			b.wantAlive(t, b.agent)
			b.wantSessions(t, "agent", "keep")
		})
	}
}

// A global option shows in every session; the id tells them apart.
func TestTagSetForAllSessions(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.tmux(t, "set-option", "-g", TagOption, b.rt.Identity.Tag)
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantSessions(t, "keep")
}

func TestIncompleteRecords(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*teardown.Runtime){
		"no socket":         func(rt *teardown.Runtime) { rt.Socket = "" },
		"relative socket":   func(rt *teardown.Runtime) { rt.Socket = "s" },
		"no session id":     func(rt *teardown.Runtime) { rt.Identity.SessionID = "" },
		"name for an id":    func(rt *teardown.Runtime) { rt.Identity.SessionID = "agent" },
		"no server":         func(rt *teardown.Runtime) { rt.Identity.ServerPID = 0 },
		"init as server":    func(rt *teardown.Runtime) { rt.Identity.ServerPID = 1 },
		"no server's start": func(rt *teardown.Runtime) { rt.Identity.ServerStartTime = 0 },
		"no tag":            func(rt *teardown.Runtime) { rt.Identity.Tag = "" },
		"a format as tag":   func(rt *teardown.Runtime) { rt.Identity.Tag = "#{@unwind_run}" },
		"odd option":        func(rt *teardown.Runtime) { rt.Identity.TagOption = "@a},1" },
		"pane without start": func(rt *teardown.Runtime) {
			rt.Identity.Panes = []teardown.Pane{{PID: rt.Identity.Panes[0].PID}}
		},
		"env_tag without a name": func(rt *teardown.Runtime) { rt.Identity.EnvTag = "=x" },
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, runtimetest.Plain)
			change(&b.rt)
			outcome, err := b.destroy(t, runtime.Options{})
			if err != nil || outcome.Runtime.Outcome != teardown.RuntimeRefused || outcome.Runtime.Code != teardown.CodeRuntimeUnroutable {
				t.Errorf("%+v %v", outcome, err)
			}
			b.wantAlive(t, b.agent)
		})
	}
}

func TestStoppedServerIsLeftAlone(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	server := runtimetest.Ref(t, b.rt.Identity.ServerPID)
	runtimetest.Signal(server, unix.SIGSTOP)
	b.wantError(t, teardown.CodeRuntimeUnreachable)
	b.wantAlive(t, b.agent, b.keep, server.PID)
	runtimetest.Signal(server, unix.SIGCONT)
	b.wantSessions(t, "agent", "keep")
	b.wantOutcome(t, teardown.RuntimeReleased)
}

// A server that accepts but never answers, as one that hangs does.
func TestServerThatNeverAnswers(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.remove(t, b.socket)
	listener, err := net.Listen("unix", b.socket)
	b.check(t, err)
	defer listener.Close()
	b.wantError(t, teardown.CodeRuntimeUnreachable)
	b.wantAlive(t, b.agent)
}

// A client that waits in connect hears no SIGTERM.
func TestServerThatDoesNotEvenAccept(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.remove(t, b.socket)
	b.fullSocket(t)
	b.wantErrorInTime(t, Kind{}, runtime.Options{}, teardown.CodeRuntimeUnreachable)
	b.wantErrorInTime(t, Kind{}, runtime.Options{Limit: time.Second}, teardown.CodeRuntimeUnreachable)
	b.wantAlive(t, b.agent)
}

// fullSocket listens at the socket's path and takes no connection, until nobody
// can connect any more without waiting.
func (b *bench) fullSocket(t *testing.T) {
	t.Helper()
	address := &unix.SockaddrUnix{Name: b.socket}
	open := func(flags int) int {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|flags, 0)
		b.check(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	listener := open(0)
	b.check(t, errors.Join(unix.Bind(listener, address), unix.Listen(listener, 0)))
	for range 100 {
		err := unix.Connect(open(unix.SOCK_NONBLOCK), address)
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		b.check(t, err)
	}
	t.Fatal("the socket takes connections without end")
}

func TestTmuxThatAnswersLate(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	var outcome runtime.Outcome
	var err error
	runtimetest.InTime(t, runtime.Options{}, func() {
		outcome, err = b.instead(t, `sleep 1; exec tmux "$@"`).Destroy(t.Context(), b.rt, runtime.Options{})
	})
	if err != nil || outcome.Runtime.Outcome != teardown.RuntimeReleased {
		t.Errorf("%+v %v", outcome, err)
	}
	b.wantDead(t, b.agent)
	b.wantSessions(t, "keep")
}

func TestTmuxThatNeverAnswers(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	kind := b.instead(t, `exec sleep 900`)
	b.wantErrorInTime(t, kind, runtime.Options{}, teardown.CodeRuntimeUnreachable)
	b.wantErrorInTime(t, kind, runtime.Options{Limit: time.Second}, teardown.CodeRuntimeUnreachable)
	b.wantAlive(t, b.agent)
	b.wantSessions(t, "agent", "keep")
}

// instead is the kind with a shell script in the place of tmux.
func (b *bench) instead(t *testing.T, script string) Kind {
	t.Helper()
	path := filepath.Join(b.Dir, "tmux")
	// A child that another test forks meanwhile would hold the file open for
	// writing, and what is open for writing cannot be run.
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700)
	syscall.ForkLock.RUnlock()
	b.check(t, err)
	return Kind{Binary: path}
}

func (b *bench) wantErrorInTime(t *testing.T, kind Kind, options runtime.Options, code teardown.Code) {
	t.Helper()
	runtimetest.InTime(t, options, func() {
		outcome, err := kind.Destroy(t.Context(), b.rt, options)
		if teardown.CodeOf(err) != code || !runtime.Retryable(err) {
			t.Errorf("%+v %v, want retryable %s", outcome, err, code)
		}
	})
}

func TestPanesOpenedLaterAreEnded(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.tmux(t, "split-window", "-t", b.rt.Identity.SessionID+":", "sh", "-c", `env -i sh -c "trap '' HUP TERM; echo \$\$ >$STAGE/later; while :; do sleep .1; done"; :`)
	later := b.PID(t, "later")
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, b.agent, later)
}

// A worker may die between the kill of the session and the end of what outlives
// it: what proves whose that is has to be on record by then.
func TestPanesOpenedLaterAreRecordedBeforeTheEnd(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.tmux(t, "split-window", "-t", b.rt.Identity.SessionID+":", "sh", "-c", `cd /; exec env -i sh -c "trap '' HUP TERM; echo \$\$ >$STAGE/later; while :; do sleep .1; done"`)
	later := b.PID(t, "later")
	died := errors.New("the worker died")
	_, err := b.destroy(t, runtime.Options{Record: func(_ context.Context, known teardown.Runtime, _ string) error {
		b.wantAlive(t, b.agent, later)
		b.rt = known
		return died
	}})
	if !errors.Is(err, died) {
		t.Fatalf("%v", err)
	}
	b.tmux(t, "kill-session", "-t", b.rt.Identity.SessionID)
	b.awaitDead(t, b.agent)
	b.wantAlive(t, later)
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, later)
	b.wantSessions(t, "keep")
}

func TestSessionInAGroup(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.tmux(t, "new-session", "-d", "-s", "peer", "-t", "=agent")
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, b.agent)
	b.wantAlive(t, b.keep)
}

func TestOurWindowLinkedElsewhere(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.tmux(t, "link-window", "-s", "=agent:", "-t", "=keep:7")
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, b.agent)
	b.wantSessions(t, "keep")
}

func TestWindowOfAnotherSessionLinkedIntoOurs(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.tmux(t, "link-window", "-s", "=keep:", "-t", "=agent:7")
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantDead(t, b.agent)
	b.wantAlive(t, b.keep)
	b.wantSessions(t, "keep")
}

func TestDeadPaneThatRemains(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	b.tmux(t, "set-option", "-g", "remain-on-exit", "on")
	runtimetest.Kill(t, b.agent)
	runtimetest.Eventually(t, "dead pane", func() bool { return b.number(t, "=agent:", "#{pane_dead}") == 1 })
	if state, err := (Kind{}).Probe(t.Context(), b.rt); state != runtime.Alive || err != nil {
		t.Errorf("Probe: %v %v", state, err)
	}
	b.wantOutcome(t, teardown.RuntimeReleased)
	b.wantSessions(t, "keep")
}

func TestKillRedefinedOnTheServer(t *testing.T) {
	b := setup(t, `trap '' TERM; `+runtimetest.Plain)
	b.tmux(t, "set-option", "-s", "command-alias[77]", "kill-session=display-message -p no")
	b.wantError(t, teardown.CodeRuntimeStillAlive)
	b.wantSessions(t, "agent", "keep")
}

func TestAnotherServerInTheEnvironment(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	other := &bench{Stage: b.Stage, socket: filepath.Join(b.Dir, "o")}
	other.bystander(t)
	entry := fmt.Sprintf("TMUX=%s,%d,0", other.socket, other.number(t, "=keep:", "#{pid}"))
	answer := runtimetest.Elsewhere(t, b.rt, entry, "LC_ALL=C", "TMUX_TMPDIR="+b.Dir)
	if answer.Error != nil || answer.Outcome.Runtime.Outcome != teardown.RuntimeReleased {
		t.Errorf("%+v", answer)
	}
	b.wantDead(t, b.agent)
	other.wantSessions(t, "keep")
}

func TestCallerInsideTheSession(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	executable, err := os.Executable()
	b.check(t, err)
	b.tmux(t, "new-window", "-d", "-t", "=agent:", "-e", runtimetest.DestroyEntry(t, b.rt), "-e", "SELF="+executable,
		"sh", "-c", `"$SELF" >$STAGE/answer.new; mv $STAGE/answer.new $STAGE/answer; exec sleep 900`)
	runtimetest.Eventually(t, "answer", func() bool { return b.Has("answer") })
	if answer, _ := os.ReadFile(filepath.Join(b.Dir, "answer")); !strings.Contains(string(answer), string(teardown.CodeRuntimeStillAlive)) {
		t.Errorf("answer %s", answer)
	}
	b.wantAlive(t, b.agent)
}

func TestTagThatAllSessionsInherit(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) *bench {
		b := &bench{Stage: runtimetest.NewStage(t)}
		b.socket = filepath.Join(b.Dir, "s")
		b.bystander(t)
		name, value, _ := strings.Cut(b.EnvTag(), "=")
		b.tmux(t, "set-environment", "-g", name, value)
		b.tmux(t, "new-session", "-d", "-s", "other", "setsid sh -c 'echo $$ >$STAGE/other; exec sleep 900' & exec sleep 900")
		b.register(t, b.session(t, "agent", runtimetest.Plain))
		return b
	}
	t.Run("is not pinned", func(t *testing.T) {
		t.Parallel()
		b := start(t)
		if b.rt.Identity.EnvTag != "" {
			t.Errorf("pinned %q", b.rt.Identity.EnvTag)
		}
	})
	t.Run("is no proof", func(t *testing.T) {
		t.Parallel()
		b := start(t)
		other := b.PID(t, "other")
		b.rt.Identity.EnvTag = b.EnvTag()
		b.wantOutcome(t, teardown.RuntimeReleased)
		b.wantDead(t, b.agent)
		b.wantAlive(t, other)
		b.wantSessions(t, "keep", "other")
	})
	t.Run("is no proof when the server cannot be asked", func(t *testing.T) {
		t.Parallel()
		b := start(t)
		other := b.PID(t, "other")
		b.rt.Identity.EnvTag = b.EnvTag()
		server := runtimetest.Ref(t, b.rt.Identity.ServerPID)
		runtimetest.Signal(server, unix.SIGSTOP)
		outcome, err := b.destroy(t, runtime.Options{ConfirmedGoneBy: "somebody"})
		if err != nil || outcome.Runtime.Outcome != teardown.RuntimeReleased {
			t.Errorf("%+v %v", outcome, err)
		}
		b.wantDead(t, b.agent)
		b.wantAlive(t, other, server.PID)
	})
	t.Run("leaves orphans to a person", func(t *testing.T) {
		t.Parallel()
		b := start(t)
		other := b.PID(t, "other")
		b.rt.Identity.EnvTag = b.EnvTag()
		b.tmux(t, "kill-session", "-t", "=other:")
		outcome, err := b.destroy(t, runtime.Options{})
		if err != nil || outcome.Runtime.Code != teardown.CodeRuntimeIdentity || len(outcome.Runtime.Details) != 1 {
			t.Errorf("%+v %v", outcome, err)
		}
		b.wantDead(t, b.agent)
		b.wantAlive(t, other)
	})
}

// Who marks a session gone may know no more of it than its tag.
func TestTagOfARecordWithoutAServer(t *testing.T) {
	t.Parallel()
	release := func(t *testing.T, b *bench) runtime.Outcome {
		rt := teardown.Runtime{Kind: teardown.KindTmux, Gone: true, Identity: &teardown.RuntimeIdentity{EnvTag: b.EnvTag()}}
		outcome, err := Kind{}.Destroy(t.Context(), rt, runtime.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return outcome
	}
	t.Run("is proof if the server hands it to nobody", func(t *testing.T) {
		b := setup(t, runtimetest.Plain)
		if outcome := release(t, b); outcome.Runtime.Outcome != teardown.RuntimeReleased {
			t.Errorf("%+v", outcome)
		}
		b.wantDead(t, b.agent)
		b.wantAlive(t, b.keep)
	})
	t.Run("is none if the server hands it to all", func(t *testing.T) {
		b := setup(t, runtimetest.Plain)
		name, value, _ := strings.Cut(b.EnvTag(), "=")
		b.tmux(t, "set-environment", "-g", name, value)
		if outcome := release(t, b); outcome.Runtime.Code != teardown.CodeRuntimeIdentity || len(outcome.Runtime.Details) != 1 {
			t.Errorf("%+v", outcome)
		}
		b.wantAlive(t, b.agent)
	})
	t.Run("is none of what does not say where it is from", func(t *testing.T) {
		b := setup(t, "unset TMUX; exec sh -c '"+runtimetest.Plain+"'")
		if outcome := release(t, b); outcome.Runtime.Code != teardown.CodeRuntimeIdentity || len(outcome.Runtime.Details) != 1 {
			t.Errorf("%+v", outcome)
		}
		b.wantAlive(t, b.agent)
	})
	t.Run("is none if the server does not answer", func(t *testing.T) {
		b := setup(t, runtimetest.Plain)
		server := runtimetest.Ref(t, b.rt.Identity.ServerPID)
		runtimetest.Signal(server, unix.SIGSTOP)
		if outcome := release(t, b); outcome.Runtime.Code != teardown.CodeRuntimeIdentity {
			t.Errorf("%+v", outcome)
		}
		b.wantAlive(t, b.agent)
		runtimetest.Signal(server, unix.SIGCONT)
	})
}

func TestOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to act as somebody else")
	}
	for name, open := range map[string]bool{"socket closed to us": false, "server closed to us": true} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, runtimetest.Plain)
			if open {
				b.check(t, errors.Join(os.Chmod(b.Dir, 0o755), os.Chmod(b.socket, 0o777)))
			}
			answer := runtimetest.As(t, 65534, b.rt)
			if answer.Error == nil || answer.Error.Code != teardown.CodeRuntimeUnreachable || !answer.Error.Retryable {
				t.Errorf("%+v", answer)
			}
			b.wantAlive(t, b.agent)
			b.wantSessions(t, "agent", "keep")
		})
	}
}

func TestTmuxIsNotInstalled(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	_, err := Kind{Binary: filepath.Join(b.Dir, "none")}.Destroy(t.Context(), b.rt, runtime.Options{})
	if teardown.CodeOf(err) != teardown.CodeRuntimeUnreachable {
		t.Errorf("%v", err)
	}
	b.wantAlive(t, b.agent)
}

func (b *bench) wantOutcome(t *testing.T, want teardown.RuntimeOutcome) runtime.Outcome {
	t.Helper()
	outcome, err := b.destroy(t, runtime.Options{})
	if err != nil || outcome.Runtime.Outcome != want {
		t.Fatalf("%+v %v, want %s", outcome, err, want)
	}
	return outcome
}

func (b *bench) wantError(t *testing.T, code teardown.Code) {
	t.Helper()
	b.wantErrorInTime(t, Kind{}, runtime.Options{}, code)
}

func (b *bench) wantDead(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if runtimetest.Alive(pid) {
			t.Errorf("process %d lives", pid)
		}
	}
}

func (b *bench) wantAlive(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if !runtimetest.Alive(pid) {
			t.Errorf("process %d is dead", pid)
		}
	}
}

func (b *bench) awaitDead(t *testing.T, pid int) {
	t.Helper()
	runtimetest.Eventually(t, "death", func() bool { return !runtimetest.Alive(pid) })
}

func (b *bench) wantSessions(t *testing.T, want ...string) {
	t.Helper()
	if have := b.names(); !slices.Equal(have, want) {
		t.Errorf("sessions %q, want %q", have, want)
	}
}

func (b *bench) remove(t *testing.T, path string) {
	t.Helper()
	b.check(t, os.Remove(path))
}

func (b *bench) check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What an agent opens while it saves is the session's: here a pane of its own,
// with a process that hides from everything but the server.
func TestPaneThatIsOpenedWhileTheAgentSaves(t *testing.T) {
	b := setup(t, `printf '%s\n' 'echo $$ >$STAGE/late' 'trap "" HUP' 'cd /' 'exec env -i sleep 900' >$STAGE/late.sh
		trap 'tmux -S $STAGE/s split-window -d "exec sh $STAGE/late.sh"; until [ -s $STAGE/late ]; do sleep .1; done; exit 0' TERM
		echo $$ >$STAGE/agent; while :; do sleep .1; done`)
	b.wantOutcome(t, teardown.RuntimeReleased)
	content, err := os.ReadFile(filepath.Join(b.Dir, "late"))
	b.check(t, err)
	late, err := strconv.Atoi(strings.TrimSpace(string(content)))
	b.check(t, err)
	if runtimetest.Alive(late) {
		b.Keep(t, late) // for nothing else proves whose it is
	}
	b.wantDead(t, b.agent, late)
	b.wantSessions(t, "keep")
}
