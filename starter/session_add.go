package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"unwind/internal/config"
	"unwind/internal/forge"
	"unwind/internal/lock"
	"unwind/internal/resource"
	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
)

type sessionAddOptions struct {
	*program
	File string
}

func newSessionAddCommand(p *program) *cobra.Command {
	o := &sessionAddOptions{program: p}
	command := &cobra.Command{
		Use:   "add -f FILE",
		Short: "Register a session from a JSON manifest",
		Long: `Register a session: what it runs in, its git worktrees and its agent's files.

A session of a task shares its worktrees with the task, which keeps them when the
session ends; one that the task holds already is leased as it is.

Everything is looked at on this machine and pinned: a worktree by a mark in its
administrative directory, a tmux session by its id, its server's process and a
tag, a process by its start time. Later, only exactly these are touched.

The same manifest again is a no-op, also of a session that is finished: a new run
needs another id. Another manifest for the same id is a conflict. On any error
nothing is registered. docs/manifest.md describes the manifest.`,
		Example: `  unwind session add -f s1.json
  make-manifest s1 | unwind session add -f -`,
		Args: noArgs,
		RunE: runs(o.run),
	}
	command.Flags().StringVarP(&o.File, "file", "f", "", "manifest to read, - for standard input")
	return command
}

// addedSession is what session add prints with --json.
type addedSession struct {
	SessionID  string `json:"session_id"`
	Host       string `json:"host"`
	Generation int64  `json:"generation"`
	// Added is false if it was registered before with the same content.
	Added     bool               `json:"added"`
	State     store.SessionState `json:"state"`
	Runtimes  int                `json:"runtimes"`
	Worktrees int                `json:"worktrees"`
	Resources int                `json:"resources"`
}

func (o *sessionAddOptions) run(ctx context.Context) error {
	content, err := o.read(o.File)
	if err != nil {
		return err
	}
	c, err := o.config()
	if err != nil {
		return err
	}
	m, err := parseManifest(content, c.Host)
	if err != nil {
		return err
	}
	if err := atHome(m, c.Host); err != nil {
		return err
	}
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	a := addition{program: o.program, facts: f, manifest: m, hash: manifestHash(m)}
	// Before anything is looked at: of a session that was added before, parts may
	// be gone by now.
	if known, err := a.known(ctx); err != nil || known {
		return err
	}
	return a.add(ctx)
}

// addition is one session on its way into the database.
type addition struct {
	*program
	facts    *facts
	manifest teardown.Manifest
	hash     string
	// attachTo is the live session that gets all this, "" for a new one; home is
	// the first worktree that it holds already.
	attachTo, home string

	session store.NewSession
	// worktrees are the canonical forms of the manifest's, sorted by path, so that
	// one that contains another comes first.
	worktrees []addedPath
}

type addedPath struct {
	teardown.WorktreeSpec
	parent string // canonical, as given
	id     string
	// shared is the row of one that the task holds already; ID "" if it is new.
	shared store.Worktree
}

func (a *addition) known(ctx context.Context) (bool, error) {
	seen, err := a.facts.look(ctx, a.manifest.ID)
	switch {
	case teardown.CodeOf(err) == teardown.CodeSessionNotFound:
		return false, nil
	case err != nil:
		return false, err
	case seen.Session.ManifestHash != a.hash:
		return false, &teardown.Error{Code: teardown.CodeConflict, Message: fmt.Sprintf(
			"session %s is already registered with another manifest; choose another id, or see `%s status %s`",
			a.manifest.ID, name, a.manifest.ID)}
	}
	a.done(seen.Session.Generation, seen.state, false)
	return true, nil
}

func (a *addition) add(ctx context.Context) error {
	locks, err := a.begin(ctx)
	defer release(locks)
	if err != nil {
		return err
	}
	// Once more: the same manifest may have been added while we waited.
	if known, err := a.known(ctx); err != nil || known {
		return err
	}
	if err := a.look(ctx); err != nil {
		return err
	}
	added, err := a.facts.AddSession(ctx, a.session)
	if err != nil {
		return err
	}
	session, err := a.facts.Session(ctx, a.manifest.ID)
	if err != nil {
		return err
	}
	a.done(session.Generation, store.StateLive, added)
	return nil
}

// begin checks what can be told without a look at the worktrees, and takes the
// locks, which it answers also beside an error.
func (a *addition) begin(ctx context.Context) ([]*lock.Held, error) {
	m := a.manifest
	a.session = store.NewSession{ID: m.ID, Host: m.Host, TaskID: m.TaskID, ManifestHash: a.hash, Links: store.LinksOf(m.Links)}
	if err := a.checkResources(); err != nil {
		return nil, err
	}
	if err := a.canonical(); err != nil {
		return nil, err
	}
	return a.lock(ctx)
}

// look finds and pins everything. The caller holds the locks.
func (a *addition) look(ctx context.Context) error {
	if err := a.worktreesOf(ctx); err != nil {
		return err
	}
	// Last, because it leaves a tag on a tmux session.
	return a.pin(ctx)
}

func (a *addition) checkResources() error {
	cleaner := cleaner(a.facts.config)
	for i, spec := range a.manifest.Resources {
		if err := cleaner.Check(spec); err != nil {
			return within(fmt.Sprintf("resources[%d]", i), err)
		}
		a.session.Resources = append(a.session.Resources, store.NewResource{Kind: spec.Kind, Path: spec.Path})
	}
	return nil
}

func cleaner(c config.Config) resource.Cleaner {
	return resource.Cleaner{Roots: c.Roots, Home: c.Home, Protected: c.Protected()}
}

// canonical resolves the links above each worktree, by which two names of one
// directory become one.
func (a *addition) canonical() error {
	seen := map[string]int{}
	for i, spec := range a.manifest.Worktrees {
		at := fmt.Sprintf("worktrees[%d]", i)
		wt := addedPath{WorktreeSpec: spec, id: store.NewID()}
		var err error
		if wt.Path, err = worktree.CanonicalPath(spec.Path); err != nil {
			return within(at, err)
		}
		if spec.Parent != "" {
			if wt.parent, err = worktree.CanonicalPath(spec.Parent); err != nil {
				return within(at+".parent", err)
			}
		}
		if first, twice := seen[wt.Path]; twice {
			return invalid("%s is the same directory as worktrees[%d], %s; list it once", at, first, shown(wt.Path))
		}
		seen[wt.Path] = i
		a.worktrees = append(a.worktrees, wt)
	}
	slices.SortStableFunc(a.worktrees, func(x, y addedPath) int { return strings.Compare(x.Path, y.Path) })
	return nil
}

// worktreesOf looks at the worktrees, whose path locks are held, and fills them
// into the session.
func (a *addition) worktreesOf(ctx context.Context) error {
	for _, step := range []func(context.Context) error{a.share, a.nest, a.register} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// share finds the worktrees that the task holds: they are leased as they are,
// with whatever an earlier session has left in them.
func (a *addition) share(ctx context.Context) error {
	if a.manifest.TaskID == "" {
		return nil
	}
	for i := range a.worktrees {
		wt := &a.worktrees[i]
		row, held, found, err := a.facts.WorktreeAt(ctx, a.facts.config.Host, wt.Path)
		if err != nil {
			return err
		}
		if found && slices.ContainsFunc(held, func(l store.Lease) bool { return l.Kind == store.HolderTask && l.ID == a.manifest.TaskID }) {
			wt.id, wt.shared = row.ID, row
		}
	}
	return nil
}

// lock takes the session's lock, so that a manifest is added once at a time, and
// the path lock of each worktree, in the order that everybody uses.
func (a *addition) lock(ctx context.Context) ([]*lock.Held, error) {
	session, err := a.facts.config.Locks().Session(ctx, a.manifest.ID, a.lockWait(a.facts.config, "session "+a.manifest.ID))
	if err != nil {
		return nil, err
	}
	held, err := a.lockPaths(ctx)
	return append(held, session), err
}

func (a *addition) lockPaths(ctx context.Context) (held []*lock.Held, err error) {
	for _, wt := range a.worktrees {
		one, err := a.facts.config.Locks().Path(ctx, wt.Path, a.lockWait(a.facts.config, shown(wt.Path)))
		if err != nil {
			return held, err
		}
		held = append(held, one)
	}
	return held, nil
}

func release(locks []*lock.Held) {
	for _, held := range locks {
		held.Release()
	}
}

// nest finds the worktree that directly contains each of these, registered
// before or in this manifest, and holds the manifest's own word against it.
func (a *addition) nest(ctx context.Context) error {
	for _, wt := range a.worktrees {
		parentPath, parentID, err := a.container(ctx, wt.Path)
		if err != nil {
			return err
		}
		if wt.parent != "" && wt.parent != parentPath {
			reason := "is no registered worktree and none of this manifest"
			if parentPath != "" {
				reason = "is not the nearest worktree around it, which is " + shown(parentPath)
			}
			return invalid("worktree %s: parent %s %s; correct \"parent\" or leave it out", shown(wt.Path), shown(wt.parent), reason)
		}
		if wt.shared.ID != "" {
			continue
		}
		a.session.Worktrees = append(a.session.Worktrees, store.NewWorktree{
			ID: wt.id, Repository: wt.Repository, Path: wt.Path, Branch: wt.Branch, ParentID: parentID})
	}
	return nil
}

func (a *addition) container(ctx context.Context, path string) (parentPath, parentID string, err error) {
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		row, held, found, err := a.facts.WorktreeAt(ctx, a.facts.config.Host, dir)
		if err != nil {
			return "", "", err
		}
		if found && a.holds(held) {
			return dir, row.ID, nil
		}
		for _, other := range a.worktrees {
			if other.Path == dir {
				return dir, other.id, nil
			}
		}
		if found {
			return dir, row.ID, nil
		}
	}
	return "", "", nil
}

// register marks each worktree as the instance that is registered. A row that is
// left over at the same path is retired if it was about something else.
func (a *addition) register(ctx context.Context) error {
	git := engine(a.facts.config)
	for _, wt := range a.worktrees {
		if wt.shared.ID == "" {
			continue
		}
		registered, err := git.Register(ctx, worktree.Target{Repository: wt.Repository, Path: wt.Path})
		if err != nil {
			return within(shown(wt.Path)+" of "+shown(wt.Repository), err)
		}
		if registered.Nonce != wt.shared.Nonce {
			return taken(wt.Path, wt.shared, "is another one than task "+a.manifest.TaskID+" holds there")
		}
		a.session.Lease = append(a.session.Lease, wt.id)
	}
	for i := range a.session.Worktrees {
		wt := &a.session.Worktrees[i]
		old, held, found, err := a.facts.WorktreeAt(ctx, a.facts.config.Host, wt.Path)
		if err != nil {
			return err
		}
		attached := found && a.holds(held)
		if found && len(held) > 0 && !attached {
			return taken(wt.Path, old, fmt.Sprintf("is held by %s %s", held[0].Kind, held[0].ID))
		}
		if found && old.QuarantinePath != "" {
			return taken(wt.Path, old, "is being removed: what was there is at "+shown(old.QuarantinePath))
		}
		registered, err := git.Register(ctx, worktree.Target{Repository: wt.Repository, Path: wt.Path})
		if err != nil {
			return within(shown(wt.Path)+" of "+shown(wt.Repository), err)
		}
		if found && old.Nonce == registered.Nonce && !attached {
			return taken(wt.Path, old, "is still registered, in state "+old.State)
		}
		if found && !attached {
			a.session.Retire = append(a.session.Retire, old.ID)
		}
		wt.Repository, wt.Nonce = registered.CommonDir, registered.Nonce
		wt.Remotes = a.remotes(ctx, git, registered.CommonDir)
		if wt.Branch == "" {
			wt.Branch = registered.Branch
		}
	}
	return nil
}

// holds reports whether one of the leases is that of the session that is
// attached to.
func (a *addition) holds(held []store.Lease) bool {
	return a.attachTo != "" && slices.ContainsFunc(held, func(l store.Lease) bool {
		return l.Kind == store.HolderSession && l.ID == a.attachTo
	})
}

// remotes says under which names forges know the repository. Without them only
// the webhooks' way from a branch to the session is missing.
func (a *addition) remotes(ctx context.Context, git *worktree.Engine, repository string) []string {
	urls, err := git.Remotes(ctx, repository)
	if err != nil {
		a.note("%s: %s: %s", name, shown(repository), brief(err))
	}
	return forge.Remotes(urls)
}

func taken(path string, old store.Worktree, why string) error {
	advice := "choose another path"
	switch old.RemoverKind {
	case store.HolderSession:
		advice = fmt.Sprintf("see `%s status %s`, or choose another path", name, old.RemoverID)
	case store.HolderTask:
		advice = fmt.Sprintf("see `%s task show %s`, or choose another path", name, old.RemoverID)
	}
	return &teardown.Error{Code: teardown.CodeConflict, Message: fmt.Sprintf("worktree %s %s; %s", shown(path), why, advice)}
}

// pin completes each runtime's identity from what is there now.
func (a *addition) pin(ctx context.Context) error {
	kinds := a.kinds()
	for i, rt := range a.manifest.Runtimes {
		at := fmt.Sprintf("runtimes[%d]", i)
		kind, err := kinds.For(rt)
		if err != nil {
			return within(at, err)
		}
		pinned, err := kind.Pin(ctx, a.inWorktree(rt))
		if err != nil {
			return within(at, err)
		}
		a.session.Runtimes = append(a.session.Runtimes, store.NewRuntime{Handle: pinned})
	}
	return nil
}

// inWorktree says where the runtime works, if the manifest leaves it open: in
// the first of its worktrees.
func (a *addition) inWorktree(rt teardown.Runtime) teardown.Runtime {
	home := a.home
	if home == "" && len(a.manifest.Worktrees) > 0 {
		// Its path was resolved before without an error.
		home, _ = worktree.CanonicalPath(a.manifest.Worktrees[0].Path)
	}
	if rt.Gone || home == "" {
		return rt
	}
	var identity teardown.RuntimeIdentity
	if rt.Identity != nil {
		identity = *rt.Identity
	}
	if identity.Worktree == "" {
		identity.Worktree = home
		rt.Identity = &identity
	}
	return rt
}

func (a *addition) done(generation int64, state store.SessionState, added bool) {
	m := a.manifest
	if a.json {
		a.printJSON(addedSession{SessionID: m.ID, Host: m.Host, Generation: generation, Added: added, State: state,
			Runtimes: len(m.Runtimes), Worktrees: len(m.Worktrees), Resources: len(m.Resources)})
		return
	}
	switch {
	case added:
	case state == store.StateFinished:
		a.say("Session %s is finished, so nothing is registered; a new run needs another id.", m.ID)
		return
	case state != store.StateLive:
		a.say("Session %s is registered with this content and was terminated; a new run needs another id, see `%s status %s`.", m.ID, name, m.ID)
		return
	default:
		a.say("Session %s is already registered with this content; nothing to do.", m.ID)
		return
	}
	a.say("Registered session %s on host %s: %s, %s, %s.", m.ID, m.Host, counted(len(m.Runtimes), "runtime", "runtimes"),
		counted(len(m.Worktrees), "worktree", "worktrees"), counted(len(m.Resources), "resource", "resources"))
}

// within says where in the input an error belongs. A name that this file system
// has no room for is there neither now nor later.
func within(where string, err error) error {
	if errors.Is(err, syscall.ENAMETOOLONG) {
		return invalid("%s: a name in the path is too long for the file system; correct it", where)
	}
	var own *teardown.Error
	if !errors.As(err, &own) {
		return fmt.Errorf("%s: %w", where, err)
	}
	wrapped := *own
	wrapped.Message = where + ": " + own.Message
	return &wrapped
}
