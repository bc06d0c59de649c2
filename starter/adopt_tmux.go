package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"unwind/internal/runtime/tmux"
	"unwind/internal/store"
	"unwind/teardown"
)

// tmuxOwners knows the tmux sessions that are registered on this host and not
// released.
type tmuxOwners struct {
	by      map[tmuxKey]string // the session that has registered it
	sockets []string
}

// tmuxKey names a tmux session by the id or by the tag, the other one is "": of
// one that is being started only the tag is known.
type tmuxKey struct{ socket, id, tag string }

func (f *facts) tmuxOwners(ctx context.Context) (owners tmuxOwners, err error) {
	owners.by = map[tmuxKey]string{}
	if f == nil {
		return owners, nil
	}
	err = f.eachRuntime(ctx, store.RuntimeFilter{Host: f.config.Host, Left: true}, func(rt store.Runtime) {
		handle := rt.Handle.V
		if handle.Kind != teardown.KindTmux {
			return
		}
		owners.sockets = append(owners.sockets, handle.Socket)
		if identity := handle.Identity; identity != nil {
			if identity.SessionID != "" && identity.ServerPID != 0 {
				owners.by[tmuxKey{socket: handle.Socket, id: fmt.Sprint(identity.ServerPID, identity.SessionID)}] = rt.SessionID
			}
			if identity.Tag != "" {
				owners.by[tmuxKey{socket: handle.Socket, tag: identity.Tag}] = rt.SessionID
			}
		}
	})
	slices.Sort(owners.sockets)
	owners.sockets = slices.Compact(owners.sockets)
	return owners, err
}

func (o tmuxOwners) of(socket string, listed tmux.Listed) (sessionID string, owned bool) {
	if sessionID, owned = o.by[tmuxKey{socket: socket, id: fmt.Sprint(listed.ServerPID, listed.ID)}]; !owned && listed.Tag != "" {
		sessionID, owned = o.by[tmuxKey{socket: socket, tag: listed.Tag}]
	}
	return sessionID, owned
}

// foundTmux is a tmux session that was named, with what runs in it.
type foundTmux struct {
	socket string
	tmux.Listed
	content tmux.Content
}

func (s foundTmux) what() string { return "tmux session " + shown(s.Name) + " at " + shown(s.socket) }

// planTmux shows what would be ended, and answers what may be taken.
func (o *adoptOptions) planTmux(ctx context.Context, f *facts) (taken []foundTmux, refused bool, err error) {
	owners, err := f.tmuxOwners(ctx)
	if err != nil {
		return nil, false, err
	}
	names := slices.Clone(o.Tmux)
	slices.Sort(names)
	for _, wanted := range slices.Compact(names) {
		session, err := o.findTmux(ctx, owners, wanted)
		if err == nil {
			err = o.mayAdopt(owners, session)
		}
		if err != nil && ctx.Err() != nil {
			return nil, refused, ctx.Err()
		}
		if err != nil {
			refused = true
			o.refuseTmux(cmpTmux(session, wanted), err)
			continue
		}
		o.printTmux(session)
		taken = append(taken, session)
	}
	return taken, refused, nil
}

func cmpTmux(session foundTmux, wanted string) foundTmux {
	if session.Name == "" {
		session.Name = wanted
	}
	return session
}

// findTmux looks for the one session with this exact name or id.
func (o *adoptOptions) findTmux(ctx context.Context, owners tmuxOwners, wanted string) (found foundTmux, err error) {
	sockets := owners.sockets
	if o.Socket != "" {
		sockets = []string{o.absolute(o.Socket)}
	}
	var places []string
	for _, socket := range sockets {
		listed, err := tmux.Kind{}.List(ctx, socket)
		if err != nil {
			return found, err
		}
		for _, s := range listed {
			if s.Name == wanted || s.ID == wanted {
				found = foundTmux{socket: socket, Listed: s}
				places = append(places, shown(socket))
			}
		}
	}
	switch len(places) {
	case 1:
	case 0:
		return found, &teardown.Error{Code: teardown.CodeRuntimeUnroutable, Message: fmt.Sprintf(
			"no tmux session is named %s; `%s scan --socket SOCKET` lists them, and --socket names the server", shown(wanted), name)}
	default:
		return foundTmux{}, &teardown.Error{Code: teardown.CodeRuntimeUnroutable, Message: fmt.Sprintf(
			"several tmux servers have a session named %s (%s); name one with --socket", shown(wanted), strings.Join(places, ", "))}
	}
	found.content, err = tmux.Kind{}.Content(ctx, found.socket, found.ServerPID, found.ID)
	return found, err
}

// mayAdopt refuses what is somebody's: a holder's, another installation's, that
// of a person who looks at it, or the one that this program runs in.
func (o *adoptOptions) mayAdopt(owners tmuxOwners, s foundTmux) error {
	refuse := func(code teardown.Code, format string, args ...any) error {
		return &teardown.Error{Code: code, Message: fmt.Sprintf(format, args...)}
	}
	if owner, owned := owners.of(s.socket, s.Listed); owned {
		return refuse(teardown.CodeConflict, "%s is registered here already, for session %s", s.what(), owner)
	}
	switch {
	case o.environment.get("TMUX") == fmt.Sprintf("%s,%d,%s", s.socket, s.ServerPID, strings.TrimPrefix(s.ID, "$")):
		return refuse(teardown.CodeInUse, "%s is the one that this command runs in", s.what())
	case s.content.Attached > 0:
		return refuse(teardown.CodeInUse, "%s is being looked at by %s; detach first", s.what(), counted(s.content.Attached, "client", "clients"))
	case s.Tag != "" && !o.Marked:
		return refuse(teardown.CodeConflict, "%s was marked by an installation of unwind that is not this one, or whose database is lost; "+
			"if nobody will release it, give --marked", s.what())
	}
	return nil
}

// printTmux is the plan for one of them: what runs in it goes with it.
func (o *adoptOptions) printTmux(s foundTmux) {
	if o.json {
		return
	}
	o.say("%s: %s", o.styled("tmux session "+shown(s.Name), bold), o.styled("would be ended", red))
	o.say("  made %s, on %s", ago(time.Unix(s.Created, 0), now()), shown(s.socket))
	for _, pane := range s.content.Panes {
		o.say("  runs %s (pid %d) in %s", shown(pane.Command), pane.PID, shown(pane.Path))
	}
}

// adoptTmux registers one of them as the agent of a terminated session, after one
// more look.
func (o *adoptOptions) adoptTmux(ctx context.Context, f *facts, s foundTmux) (string, error) {
	m := teardown.Manifest{ID: adoptedID(s.Name), Host: f.config.Host, Runtimes: []teardown.Runtime{{
		Kind: teardown.KindTmux, Role: teardown.RoleAgent, Socket: s.socket, Session: s.Name,
		Identity: &teardown.RuntimeIdentity{SessionID: s.ID, SessionCreated: s.Created, ServerPID: s.ServerPID},
	}}}
	if err := checkManifest(&m); err != nil {
		return "", err
	}
	a := addition{program: o.program, facts: f, manifest: m, hash: manifestHash(m)}
	a.session = store.NewSession{ID: m.ID, Host: m.Host, ManifestHash: a.hash, TerminatedBy: teardown.SourceAdopted}
	locks, err := a.lock(ctx)
	defer release(locks)
	if err != nil {
		return "", err
	}
	owners, err := f.tmuxOwners(ctx)
	if err != nil {
		return "", err
	}
	if s.content, err = (tmux.Kind{}).Content(ctx, s.socket, s.ServerPID, s.ID); err != nil {
		return "", err
	}
	if err := o.mayAdopt(owners, s); err != nil {
		return "", err
	}
	if err := a.pin(ctx); err != nil {
		return "", err
	}
	_, err = f.AddSession(ctx, a.session)
	return m.ID, err
}

func (o *adoptOptions) refuseTmux(s foundTmux, err error) {
	if o.json {
		o.printJSON(adopted{Kind: scannedTmux, Socket: s.socket, Session: s.Name, Code: codeOr(err), Message: brief(err)})
		return
	}
	o.note("tmux session %s: not adopted: %s", shown(s.Name), brief(err))
}
