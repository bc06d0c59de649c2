//go:build linux

package tmux

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unwind/internal/runtime"
	"unwind/internal/runtime/runtimetest"
	"unwind/teardown"
)

func TestStarter(t *testing.T) {
	t.Parallel()
	runtimetest.RunStarter(t, Kind{}, func(s *runtimetest.Stage) teardown.Runtime {
		return teardown.Runtime{Kind: teardown.KindTmux, Role: teardown.RoleAgent, Socket: filepath.Join(s.Dir, "own", "s"), Session: "agent",
			Identity: &teardown.RuntimeIdentity{Worktree: s.Worktree}}
	})
}

func TestPlanRefusesWhatWouldMeanSomethingToTmux(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "#(touch x)", "a b", "a:b", "a.b", "=a", "$1", strings.Repeat("a", 65), "ä"} {
		if _, err := (Kind{}).Plan(teardown.Runtime{Kind: teardown.KindTmux, Socket: "/tmp/s", Session: name}); teardown.CodeOf(err) != teardown.CodeInvalidManifest {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, socket := range []string{"", "relative", "/tmp/" + strings.Repeat("s", 100)} {
		if _, err := (Kind{}).Plan(teardown.Runtime{Kind: teardown.KindTmux, Socket: socket, Session: "a"}); teardown.CodeOf(err) == "" {
			t.Errorf("%q is accepted", socket)
		}
	}
}

func TestStartLeavesASessionOfThatNameAlone(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	planned, err := Kind{}.Plan(teardown.Runtime{Kind: teardown.KindTmux, Socket: b.socket, Session: "agent"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Kind{}.Start(t.Context(), planned, runtime.Launch{Command: []string{"sleep", "900"}})
	if teardown.CodeOf(err) != teardown.CodeConflict {
		t.Errorf("%v", err)
	}
	if _, there, err := (Kind{}).Find(t.Context(), planned); there || err != nil {
		t.Errorf("%v %v", there, err)
	}
	if state, err := (Kind{}).Probe(t.Context(), b.rt); state != runtime.Alive || err != nil {
		t.Errorf("%v %v", state, err)
	}
}

// A renamed session is found: its tag is its name.
func TestFindARenamedSession(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	planned, err := Kind{}.Plan(teardown.Runtime{Kind: teardown.KindTmux, Socket: b.socket, Session: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	started, err := Kind{}.Start(t.Context(), planned, runtime.Launch{Command: []string{"sleep", "900"}})
	if err != nil {
		t.Fatal(err)
	}
	b.tmux(t, "rename-session", "-t", "=mine:", "other name")
	found, there, err := Kind{}.Find(t.Context(), planned)
	if !there || err != nil || found.Identity.SessionID != started.Identity.SessionID {
		t.Errorf("%+v %v %v", found, there, err)
	}
}

func TestFindAtAServerThatDoesNotAnswer(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	planned, err := Kind{}.Plan(teardown.Runtime{Kind: teardown.KindTmux, Socket: b.socket, Session: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	server := runtimetest.Ref(t, b.rt.Identity.ServerPID)
	runtimetest.Signal(server, unix.SIGSTOP)
	defer runtimetest.Signal(server, unix.SIGCONT)
	_, there, err := Kind{}.Find(t.Context(), planned)
	if there || teardown.CodeOf(err) != teardown.CodeRuntimeUnreachable || !runtime.Retryable(err) {
		t.Errorf("%v %v", there, err)
	}
}
