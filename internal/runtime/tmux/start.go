package tmux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"unwind/internal/runtime"
	"unwind/internal/runtime/proctable"
	"unwind/teardown"
)

var _ runtime.Starter = Kind{}

// maxSocket is what fits into a socket's address on all systems, in bytes.
const maxSocket = 100

// Plan implements runtime.Starter.
func (Kind) Plan(rt teardown.Runtime) (teardown.Runtime, error) {
	if err := runtime.CheckName(rt.Session); err != nil {
		return rt, err
	}
	if err := checkSocket(rt.Socket); err != nil {
		return rt, err
	}
	if len(rt.Socket) > maxSocket {
		return rt, &teardown.Error{Code: teardown.CodeInvalidManifest, Message: fmt.Sprintf(
			"The tmux socket %s is too long for a socket's path (%d bytes, at most %d); give a shorter \"socket\", or a shorter UNWIND_STATE_DIR.", rt.Socket, len(rt.Socket), maxSocket)}
	}
	worktree := ""
	if rt.Identity != nil {
		worktree = rt.Identity.Worktree
	}
	identity, err := runtime.PlanIdentity(worktree)
	if err != nil {
		return rt, err
	}
	identity.TagOption = TagOption
	rt.Identity = identity
	return rt, nil
}

// harmless paths mean nothing to tmux, which expands formats in a directory.
var harmless = regexp.MustCompile(`^[A-Za-z0-9/._@+=:,-]+$`)

// Start implements runtime.Starter. The session gets its tag in the command that
// makes it, so that there is no moment in which it has none.
func (k Kind) Start(ctx context.Context, rt teardown.Runtime, launch runtime.Launch) (teardown.Runtime, error) {
	if err := launch.Check(); err != nil {
		return rt, err
	}
	if err := makePlaceOf(rt.Socket); err != nil {
		return rt, err
	}
	identity := *rt.Identity
	if identity.Cgroup != "" && proctable.MakeCgroup(identity.Cgroup) != nil {
		identity.Cgroup = ""
	}
	args := []string{"new-session", "-d", "-s", rt.Session, "-x", "200", "-y", "50", "-e", identity.EnvTag}
	if harmless.MatchString(launch.Directory) {
		args = append(args, "-c", launch.Directory) // for windows that are opened later
	}
	args = append(args, "--")
	for _, argument := range launch.Wrapped(identity.Cgroup) {
		args = append(args, literal(argument))
	}
	args = append(args, ";", "set-option", "-t", "="+rt.Session+":", identity.TagOption, identity.Tag)
	r, _ := server{k.Binary, rt.Socket}.starting(ctx, args...)
	switch {
	case r.answer == duplicate:
		dropGroup(identity)
		return rt, &teardown.Error{Code: teardown.CodeConflict, Message: fmt.Sprintf(
			"The tmux server at %s has a session %q already; choose another name.", rt.Socket, rt.Session)}
	case r.answer != answered && !begun(r):
		return rt, runtime.Unreachable(errors.New(r.text), "tmux session %q could not be started at %s", rt.Session, rt.Socket)
	}
	started := rt
	started.Identity = &identity
	pinned, err := k.pin(ctx, started)
	if teardown.CodeOf(err) == teardown.CodeRuntimeUnroutable {
		return rt, runtime.Exited("The program %q in tmux session %q ended as soon as it was started; run it by hand to see why.", launch.Command[0], rt.Session)
	}
	if err != nil {
		return rt, err
	}
	return settled(pinned), nil
}

// begun: the session may have been made, and have ended before the rest of the
// command was carried out.
func begun(r reply) bool {
	switch r.answer {
	case noSession, noSessions, noServer, exiting:
		return true
	}
	return false
}

// Find implements runtime.Starter.
func (k Kind) Find(ctx context.Context, rt teardown.Runtime) (teardown.Runtime, bool, error) {
	if earlier, err := runtime.EarlierBoot(rt.Identity); err != nil || earlier {
		return rt, false, err
	}
	l, err := server{k.Binary, rt.Socket}.list(ctx, rt.Identity.TagOption)
	var said *refusal
	if errors.As(err, &said) && (said.answer == noSocket || said.answer == noServer || said.answer == noSessions) {
		return rt, false, nil
	}
	if err != nil {
		return rt, false, runtime.Unreachable(err, "The tmux server at %s could not be asked", rt.Socket)
	}
	for _, s := range l.sessions {
		if s.tag != rt.Identity.Tag {
			continue
		}
		identity := *rt.Identity
		identity.SessionID = s.id
		found := rt
		found.Identity, found.Session = &identity, "" // it may have been renamed
		pinned, err := k.pin(ctx, found)
		if teardown.CodeOf(err) == teardown.CodeRuntimeUnroutable {
			return rt, false, nil
		}
		pinned.Session = rt.Session
		return settled(pinned), err == nil, err
	}
	return rt, false, nil
}

// settled leaves out a control group that the session did not come to be in.
func settled(rt teardown.Runtime) teardown.Runtime {
	identity := *rt.Identity
	if identity.Cgroup == "" {
		return rt
	}
	for _, pane := range identity.Panes {
		if runtime.Entered(pane.PID, identity.Cgroup) {
			return rt
		}
	}
	dropGroup(identity)
	identity.Cgroup = ""
	rt.Identity = &identity
	return rt
}

func dropGroup(identity teardown.RuntimeIdentity) {
	if identity.Cgroup != "" {
		proctable.RemoveCgroup(identity.Cgroup)
	}
}

// literal keeps tmux from reading an argument's last character as the end of a
// command.
func literal(argument string) string {
	if before, ok := strings.CutSuffix(argument, ";"); ok {
		return before + `\;`
	}
	return argument
}

// makePlaceOf makes the directory of a socket, for this user only.
func makePlaceOf(socket string) error {
	dir := filepath.Dir(socket)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &teardown.Error{Code: teardown.CodePermissionDenied, Cause: err,
			Message: "The directory of the tmux socket " + socket + " cannot be made; give another \"socket\""}
	}
	return nil
}
