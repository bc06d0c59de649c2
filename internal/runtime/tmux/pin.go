package tmux

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"unwind/internal/runtime"
	"unwind/internal/runtime/proctable"
	"unwind/teardown"
)

// Pin implements runtime.Kind. The session is found by its id if one is given,
// else by its exact name, in a listing: a target like `-t name` would also
// match a prefix, a pattern or an id.
func (k Kind) Pin(ctx context.Context, rt teardown.Runtime) (teardown.Runtime, error) {
	if rt.Gone {
		return rt, k.refuseIfAlive(ctx, rt)
	}
	pinned, err := k.pin(ctx, rt)
	if err != nil || pinned.Identity.Cgroup == "" || len(pinned.Identity.Panes) == 0 {
		return pinned, err
	}
	first := slices.MinFunc(pinned.Identity.Panes, func(a, b teardown.Pane) int { return cmp.Compare(a.StartTime, b.StartTime) })
	server := proctable.Ref{PID: pinned.Identity.ServerPID, Start: pinned.Identity.ServerStartTime}
	return pinned, runtime.CheckGiven("", pinned.Identity.Cgroup, proctable.Ref{PID: first.PID, Start: first.StartTime}, server)
}

// pin believes the control group that is given.
func (k Kind) pin(ctx context.Context, rt teardown.Runtime) (teardown.Runtime, error) {
	if err := checkSocket(rt.Socket); err != nil {
		return rt, err
	}
	identity := teardown.RuntimeIdentity{}
	if rt.Identity != nil {
		identity = *rt.Identity
		identity.Panes = slices.Clone(identity.Panes)
	}
	rt.Identity = &identity
	if identity.TagOption = optionOf(&identity); !optionPattern.MatchString(identity.TagOption) {
		return rt, runtime.Unroutable("The tag_option %q is no user option of tmux; use one like %s.", identity.TagOption, TagOption)
	}
	if err := runtime.CheckEnvTag(identity.EnvTag); err != nil {
		return rt, err
	}
	p := &pinning{server: server{k.Binary, rt.Socket}, name: rt.Session, identity: &identity}
	for _, step := range []func(context.Context) error{p.boot, p.session, p.process, p.panes, p.environment, p.mark} {
		if err := step(ctx); err != nil {
			return rt, err
		}
	}
	identity.Worktree = runtime.Canonical(identity.Worktree)
	return rt, check(rt)
}

// refuseIfAlive looks for a session that answers to a record which says that it
// is gone. What cannot be told is the caller's word.
func (k Kind) refuseIfAlive(ctx context.Context, rt teardown.Runtime) error {
	if checkSocket(rt.Socket) != nil {
		return nil
	}
	identity := teardown.RuntimeIdentity{}
	if rt.Identity != nil {
		identity = *rt.Identity
	}
	if identity.TagOption = optionOf(&identity); !optionPattern.MatchString(identity.TagOption) {
		return nil
	}
	p := &pinning{server: server{k.Binary, rt.Socket}, name: rt.Session, identity: &identity}
	for _, step := range []func(context.Context) error{p.boot, p.session, p.process} {
		if step(ctx) != nil {
			return nil
		}
	}
	return runtime.Contradiction("tmux session %q is marked gone but lives; register it without gone, or give the identity of the one that is gone.", p.found.name)
}

// pinning fills an identity step by step.
type pinning struct {
	server   server
	name     string
	identity *teardown.RuntimeIdentity
	listing  listing
	found    session
	leaders  []leader
}

// leader is the process of one pane.
type leader struct {
	proctable.Ref
	pane string
}

func (p *pinning) boot(context.Context) error {
	return runtime.PinBoot(p.identity)
}

func (p *pinning) session(ctx context.Context) (err error) {
	if p.listing, err = p.server.list(ctx, p.identity.TagOption); err != nil {
		var said *refusal
		if errors.As(err, &said) && (said.answer == noSocket || said.answer == noServer || said.answer == noSessions) {
			return runtime.Unroutable("No tmux server answers at %s (%s); start the session before it is registered, or mark it gone.", p.server.socket, said.text)
		}
		return runtime.Unreachable(err, "The tmux server at %s could not be asked", p.server.socket)
	}
	if p.found, err = p.pick(); err != nil {
		return err
	}
	if given := p.identity.SessionCreated; given != 0 && given != p.found.created {
		return runtime.Contradiction("tmux session %q was created at %d, not at %d as the record says.", p.found.name, p.found.created, given)
	}
	p.identity.SessionID, p.identity.SessionCreated = p.found.id, p.found.created
	return nil
}

func (p *pinning) pick() (session, error) {
	if id := p.identity.SessionID; id != "" {
		found, ok := p.listing.byID(id)
		if !ok {
			return session{}, runtime.Unroutable("The tmux server at %s has no session %s; correct the record, or mark the runtime gone.", p.server.socket, id)
		}
		if p.name != "" && found.name != storedName(p.name) {
			return session{}, runtime.Contradiction("tmux session %s is named %q, not %q as the record says.", id, found.name, p.name)
		}
		return found, nil
	}
	if p.name == "" {
		return session{}, runtime.Unroutable("The record names no tmux session; give its name or its session_id.")
	}
	for _, s := range p.listing.sessions {
		if s.name == storedName(p.name) {
			return s, nil
		}
	}
	return session{}, runtime.Unroutable("The tmux server at %s has no session named %q; start it before it is registered, or mark it gone.", p.server.socket, p.name)
}

// storedName is what tmux makes of a name that it is asked for.
func storedName(requested string) string {
	return strings.NewReplacer(".", "_", ":", "_", `\`, `\\`).Replace(requested)
}

func (p *pinning) process(context.Context) error {
	process, err := proctable.Read(p.listing.serverPID)
	if err != nil {
		return runtime.Unroutable("The tmux server at %s says that it is process %d, which cannot be seen from here (%v); register the session on the machine that runs it.", p.server.socket, p.listing.serverPID, err)
	}
	given := serverOf(p.identity)
	if given.PID != 0 && given.PID != process.PID || given.Start != 0 && given.Start != process.Start {
		return runtime.Contradiction("The tmux server at %s is process %d, started at %d, not %d, started at %d, as the record says.",
			p.server.socket, process.PID, process.Start, given.PID, given.Start)
	}
	p.identity.ServerPID, p.identity.ServerStartTime = process.PID, process.Start
	return nil
}

// mark sees to it that the session has the tag of the record. It comes last, so
// that a record that is refused leaves no trace.
func (p *pinning) mark(ctx context.Context) error {
	given, option := p.identity.Tag, p.identity.TagOption
	switch {
	case given != "" && !tagPattern.MatchString(given):
		return runtime.Unroutable("The tag %q cannot be compared safely; use 1 to 128 of the characters %s.", given, tagAlphabet)
	case given != "" && p.found.tag != given:
		return runtime.Contradiction("The option %s of tmux session %q says %q, not %q as the record says.", option, p.found.name, p.found.tag, given)
	case p.found.tag == "":
		if err := p.setTag(ctx); err != nil {
			return err
		}
	}
	if !tagPattern.MatchString(p.found.tag) {
		return runtime.Contradiction("The option %s of tmux session %q holds a value that unwind did not set; unset it, or name another tag_option.", option, p.found.name)
	}
	p.identity.Tag = p.found.tag
	return nil
}

// setTag gives the session a fresh tag, unless somebody else was faster, and
// reads back which one it has.
func (p *pinning) setTag(ctx context.Context) error {
	fresh := make([]byte, 16)
	rand.Read(fresh) // never fails
	option := p.identity.TagOption
	untagged := fmt.Sprintf("#{&&:#{==:#{pid},%d},#{&&:#{==:#{session_id},%s},#{==:#{%s},}}}",
		p.listing.serverPID, p.found.id, option)
	r, _ := p.server.run(ctx, listLimit, "if-shell", "-F", "-t", p.found.id+":", untagged,
		fmt.Sprintf("set-option -t '%s' %s %s", p.found.id, option, hex.EncodeToString(fresh)))
	again, err := p.server.list(ctx, option)
	if err != nil {
		return runtime.Unreachable(err, "The tag of tmux session %q could not be read back", p.found.name)
	}
	found, ok := again.byID(p.found.id)
	if !ok || again.serverPID != p.listing.serverPID {
		return runtime.Unroutable("tmux session %q ended while it was registered; mark it gone if that is right.", p.found.name)
	}
	if found.tag == "" {
		return runtime.Unreachable(errors.New(r.text), "tmux session %q could not be given a tag", p.found.name)
	}
	p.found = found
	return nil
}

func (p *pinning) panes(ctx context.Context) error {
	panes, err := p.server.panes(ctx, p.identity.ServerPID, p.found.id)
	if err != nil {
		return runtime.Unreachable(err, "The panes of tmux session %q could not be listed", p.found.name)
	}
	for _, pane := range panes {
		root, ok := pane.leader(serverOf(p.identity))
		if ok && p.listing.ownerOf(pane, root.Ref, p.found.id) == ours {
			p.leaders = append(p.leaders, leader{root.Ref, pane.id})
		}
	}
	if len(p.identity.Panes) == 0 {
		for _, l := range p.leaders {
			p.identity.Panes = append(p.identity.Panes, teardown.Pane{PID: l.PID, StartTime: l.Start})
		}
		return nil
	}
	for i := range p.identity.Panes {
		if err := p.checkPane(&p.identity.Panes[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkPane holds a given pane against the session's. One that has ended is no
// contradiction; one without a start time must be there to be told it.
func (p *pinning) checkPane(given *teardown.Pane) error {
	for _, l := range p.leaders {
		if l.PID != given.PID {
			continue
		}
		if given.StartTime == 0 {
			given.StartTime = l.Start
		}
		if given.StartTime != l.Start {
			return runtime.Contradiction("Process %d of a pane of tmux session %q started at %d, not at %d as the record says.", l.PID, p.found.name, l.Start, given.StartTime)
		}
		return nil
	}
	if given.StartTime == 0 {
		return runtime.Contradiction("Process %d is in no pane of tmux session %q.", given.PID, p.found.name)
	}
	return nil
}

// environment looks for the tag that the session's processes carry. One that
// the server hands to every session proves nothing and is not recorded.
func (p *pinning) environment(ctx context.Context) error {
	for _, l := range p.leaders {
		environment, err := proctable.SettledEnviron(l.PID, tellsPane(l.pane))
		if err != nil {
			continue
		}
		if err := runtime.PinEnvTag(p.identity, environment, l.Ref); err != nil {
			return err
		}
	}
	if p.identity.EnvTag == "" {
		return nil
	}
	shared, err := p.server.shares(ctx, serverOf(p.identity), p.identity.EnvTag)
	if err != nil {
		return err
	}
	if shared {
		p.identity.EnvTag = ""
	}
	return nil
}
