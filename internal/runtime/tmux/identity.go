package tmux

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"

	"unwind/internal/runtime"
	"unwind/internal/runtime/proctable"
	"unwind/teardown"
)

// TagOption is the user option of a tmux session that holds the tag that unwind
// gave it.
const TagOption = "@unwind_run"

// tagAlphabet is, as in a regular expression, what tags are made of: nothing
// that means anything in a tmux format or command.
const tagAlphabet = "A-Za-z0-9._-"

var (
	sessionIDPattern = regexp.MustCompile(`^\$[0-9]+$`)
	tagPattern       = regexp.MustCompile(`^[` + tagAlphabet + `]{1,128}$`)
	optionPattern    = regexp.MustCompile(`^@[A-Za-z0-9_-]{1,64}$`)
)

// check refuses a record that does not name one session of one server exactly.
func check(rt teardown.Runtime) error {
	identity := rt.Identity
	if identity == nil {
		return runtime.Unroutable("The record has no identity, and a name alone is none; end session %q by hand and confirm that it is gone.", rt.Session)
	}
	if err := checkSocket(rt.Socket); err != nil {
		return err
	}
	missing := func(what string) error {
		return runtime.Unroutable("The record of tmux session %q has no usable %s, so no session is proved to be it; end it by hand and confirm that it is gone.", rt.Session, what)
	}
	switch {
	case !sessionIDPattern.MatchString(identity.SessionID):
		return missing("session_id")
	case !serverOf(identity).Valid():
		return missing("server_pid and server_start_time")
	case !tagPattern.MatchString(identity.Tag):
		return missing("tag")
	case !optionPattern.MatchString(optionOf(identity)):
		return missing("tag_option")
	}
	for _, pane := range identity.Panes {
		if !(proctable.Ref{PID: pane.PID, Start: pane.StartTime}).Valid() {
			return missing("pid and start_time of a pane")
		}
	}
	if err := runtime.CheckEnvTag(identity.EnvTag); err != nil {
		return err
	}
	return runtime.CheckBoot(identity)
}

func checkSocket(socket string) error {
	if filepath.IsAbs(socket) && !strings.ContainsRune(socket, 0) {
		return nil
	}
	return runtime.Unroutable("The tmux socket %q is not an absolute path; register the session with the path that `tmux display-message -p '#{socket_path}'` prints.", socket)
}

func serverOf(identity *teardown.RuntimeIdentity) proctable.Ref {
	return proctable.Ref{PID: identity.ServerPID, Start: identity.ServerStartTime}
}

func optionOf(identity *teardown.RuntimeIdentity) string {
	if identity == nil || identity.TagOption == "" {
		return TagOption
	}
	return identity.TagOption
}

// target is one recorded session during one call.
type target struct {
	server    server
	recorded  proctable.Ref // the server's process
	id        string
	tag       string
	option    string
	identity  *teardown.RuntimeIdentity
	claim     *proctable.Claim
	list      func(context.Context) (listing, error)
	mayRevive bool
	// listed, panes and handed are what the last survey has told: the server's
	// sessions, the recorded one's panes, and whether the server hands the recorded
	// env_tag to every session; nil if that was not told.
	listed listing
	panes  []pane
	handed *bool
	// untold are processes of panes that may be the session's or another one's.
	untold []proctable.Ref
	// shared is the recorded env_tag if all sessions of the server have it.
	shared string
	notes  []string
}

// target reads a record as far as it goes; check says whether that suffices.
func (k Kind) target(rt teardown.Runtime) *target {
	t := &target{server: server{k.Binary, rt.Socket}, claim: &proctable.Claim{}}
	if rt.Identity == nil {
		return t
	}
	t.identity = rt.Identity
	t.recorded = serverOf(rt.Identity)
	t.id, t.tag, t.option = rt.Identity.SessionID, rt.Identity.Tag, optionOf(rt.Identity)
	var roots []proctable.Root
	for _, pane := range rt.Identity.Panes {
		roots = append(roots, proctable.Root{Ref: proctable.Ref{PID: pane.PID, Start: pane.StartTime}, LeadsSession: true})
	}
	t.claim = runtime.Evidence(rt.Identity, roots)
	t.claim.Exempt = []proctable.Ref{t.recorded}
	t.list = func(ctx context.Context) (listing, error) { return t.server.list(ctx, t.option) }
	return t
}
