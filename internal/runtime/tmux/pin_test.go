//go:build linux

package tmux

import (
	"path/filepath"
	"regexp"
	"testing"

	"unwind/internal/runtime/runtimetest"
	"unwind/teardown"
)

func TestPinLooksUpTheSession(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	identity := *b.rt.Identity
	server := runtimetest.Ref(t, b.number(t, "=agent:", "#{pid}"))
	agent := runtimetest.Ref(t, b.agent)
	if identity.SessionID != b.tmux(t, "display-message", "-p", "-t", "=agent:", "#{session_id}") ||
		identity.SessionCreated != int64(b.number(t, "=agent:", "#{session_created}")) ||
		identity.ServerPID != server.PID || identity.ServerStartTime != server.Start ||
		len(identity.Panes) != 1 || identity.Panes[0] != (teardown.Pane{PID: agent.PID, StartTime: agent.Start}) {
		t.Errorf("%+v", identity)
	}
}

func TestPinTagsTheSession(t *testing.T) {
	b := setup(t, runtimetest.Plain)
	tag := b.rt.Identity.Tag
	if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(tag) || b.rt.Identity.TagOption != TagOption ||
		b.tmux(t, "show-options", "-t", b.rt.Identity.SessionID, "-v", TagOption) != tag {
		t.Errorf("%+v", b.rt.Identity)
	}
	if other := b.tmux(t, "show-options", "-q", "-t", "=keep:", "-v", TagOption); other != "" {
		t.Errorf("the other session is tagged too: %q", other)
	}
}

func TestPinTakesOverTheTagThatIsThere(t *testing.T) {
	t.Parallel()
	for name, given := range map[string]*teardown.RuntimeIdentity{
		"found": {TagOption: "@mine"},
		"given": {TagOption: "@mine", Tag: "run-1"},
	} {
		t.Run(name, func(t *testing.T) {
			b := unregistered(t)
			b.tmux(t, "set-option", "-t", "=agent:", "@mine", "run-1")
			rt, err := Kind{}.Pin(t.Context(), teardown.Runtime{Kind: teardown.KindTmux, Socket: b.socket, Session: "agent", Identity: given})
			if err != nil || rt.Identity.Tag != "run-1" || rt.Identity.TagOption != "@mine" {
				t.Errorf("%+v %v", rt.Identity, err)
			}
		})
	}
}

func TestPinByIDAlone(t *testing.T) {
	b := unregistered(t)
	rt, err := Kind{}.Pin(t.Context(), teardown.Runtime{Kind: teardown.KindTmux, Socket: b.socket,
		Identity: &teardown.RuntimeIdentity{SessionID: "$1"}})
	if err != nil || rt.Identity.SessionID != "$1" {
		t.Errorf("%+v %v", rt.Identity, err)
	}
}

func TestPinRefuses(t *testing.T) {
	t.Parallel()
	with := func(identity teardown.RuntimeIdentity) func(*teardown.Runtime) {
		return func(rt *teardown.Runtime) { rt.Identity = &identity }
	}
	for name, c := range map[string]struct {
		change func(*teardown.Runtime)
		want   teardown.Code
	}{
		"a prefix of the name":      {func(rt *teardown.Runtime) { rt.Session = "age" }, teardown.CodeRuntimeUnroutable},
		"a pattern":                 {func(rt *teardown.Runtime) { rt.Session = "age*" }, teardown.CodeRuntimeUnroutable},
		"an id as a name":           {func(rt *teardown.Runtime) { rt.Session = "$1" }, teardown.CodeRuntimeUnroutable},
		"no name":                   {func(rt *teardown.Runtime) { rt.Session = "" }, teardown.CodeRuntimeUnroutable},
		"no socket":                 {func(rt *teardown.Runtime) { rt.Socket = "" }, teardown.CodeRuntimeUnroutable},
		"no server":                 {func(rt *teardown.Runtime) { rt.Socket += "x" }, teardown.CodeRuntimeUnroutable},
		"no such id":                {with(teardown.RuntimeIdentity{SessionID: "$9"}), teardown.CodeRuntimeUnroutable},
		"another session's id":      {with(teardown.RuntimeIdentity{SessionID: "$0"}), teardown.CodeRuntimeIdentity},
		"another time":              {with(teardown.RuntimeIdentity{SessionCreated: 1}), teardown.CodeRuntimeIdentity},
		"another server":            {with(teardown.RuntimeIdentity{ServerPID: 4711}), teardown.CodeRuntimeIdentity},
		"another start":             {with(teardown.RuntimeIdentity{ServerStartTime: 4711}), teardown.CodeRuntimeIdentity},
		"a tag that is not there":   {with(teardown.RuntimeIdentity{Tag: "run-1"}), teardown.CodeRuntimeIdentity},
		"a tag with a format in it": {with(teardown.RuntimeIdentity{Tag: "#{pid}"}), teardown.CodeRuntimeUnroutable},
		"an option of tmux's own":   {with(teardown.RuntimeIdentity{TagOption: "status"}), teardown.CodeRuntimeUnroutable},
		"another env_tag":           {with(teardown.RuntimeIdentity{EnvTag: "UNWIND_RUN_ID=another-run"}), teardown.CodeRuntimeIdentity},
		"a process in no pane":      {with(teardown.RuntimeIdentity{Panes: []teardown.Pane{{PID: 4711}}}), teardown.CodeRuntimeIdentity},
	} {
		t.Run(name, func(t *testing.T) {
			b := unregistered(t)
			rt := teardown.Runtime{Kind: teardown.KindTmux, Socket: b.socket, Session: "agent"}
			c.change(&rt)
			pinned, err := Kind{}.Pin(t.Context(), rt)
			if teardown.CodeOf(err) != c.want {
				t.Errorf("%+v %v, want %s", pinned.Identity, err, c.want)
			}
			if tag := b.tmux(t, "show-options", "-q", "-t", "=agent:", "-v", TagOption); tag != "" {
				t.Errorf("the session was tagged %s", tag)
			}
		})
	}
}

func TestPinDoesNotWriteIntoTheCallersRecord(t *testing.T) {
	b := unregistered(t)
	pid := b.number(t, "=agent:", "#{pane_pid}")
	given := &teardown.RuntimeIdentity{Panes: []teardown.Pane{{PID: pid}}}
	rt, err := Kind{}.Pin(t.Context(), teardown.Runtime{Kind: teardown.KindTmux, Socket: b.socket, Session: "agent", Identity: given})
	if err != nil || rt.Identity.Panes[0].StartTime == 0 {
		t.Fatalf("%+v %v", rt.Identity, err)
	}
	if given.Tag != "" || given.Panes[0].StartTime != 0 {
		t.Errorf("the given record became %+v", given)
	}
}

// unregistered starts a bystander's session ($0) and one to be pinned ($1).
func unregistered(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	b := &bench{Stage: runtimetest.NewStage(t)}
	b.socket = filepath.Join(b.Dir, "s")
	b.bystander(t)
	b.session(t, "agent", runtimetest.Plain)
	b.agent = b.PID(t, "agent")
	return b
}
