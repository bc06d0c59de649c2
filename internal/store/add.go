package store

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"unwind/teardown"
)

// NewSession is a session with all that it holds. Ids that are left empty are
// made. A worktree's ParentID names a registered worktree or another one here;
// its path must contain the worktree's.
type NewSession struct {
	ID, Host     string
	TaskID       string // "" outside of a task; one that is not known is opened
	ManifestHash string // the same again is a no-op, another one a conflict
	Runtimes     []NewRuntime
	Worktrees    []NewWorktree
	Resources    []NewResource
	// Starting: nothing of it is there yet, so its worktrees and runtimes are
	// creating.
	Starting bool
	Links    []Link // SessionID is filled in
	// TerminatedBy, if set, registers the session as terminated, with this source.
	TerminatedBy string
	// Retire lists worktrees of earlier sessions that are in the way; see
	// RetireWorktree. The caller holds their path locks.
	Retire []string
	// Lease lists registered worktrees that the session's task holds, and that the
	// session shares with it.
	Lease []string

	generation int64
}

// NewRuntime is a runtime to register, with its identity pinned.
type NewRuntime struct {
	ID     string
	Handle teardown.Runtime // Role "" means agent
}

// NewWorktree is a worktree to register. Paths are canonical.
type NewWorktree struct {
	ID, Repository, Path, Branch, ParentID, Nonce string
	// Remotes are those of its repository, as host/owner/name.
	Remotes []string
}

// NewResource is a resource to register.
type NewResource struct{ ID, Kind, Path string }

// AddSession registers a session, live unless TerminatedBy says otherwise, of
// generation 1 unless its id was used before, and leases its worktrees, for itself and for its task, all or nothing.
// Added is false if the session is known with the same hash.
// The caller holds the path locks of the worktrees. Codes: conflict (the id or
// a path is taken, or a resource and a worktree that is registered are not
// apart, or a runtime is another session's; the message names the holder), task_closed, invalid_id,
// invalid_manifest, path_not_utf8, and what makes an ancestor unusable
// (worktree_deleting, worktree_removed, worktree_missing).
func (s *Store) AddSession(ctx context.Context, n NewSession) (added bool, err error) {
	if err := n.check(); err != nil {
		return false, err
	}
	if err := teardown.ValidateID(n.ID); err != nil {
		return false, err
	}
	n.complete()
	err = s.write(ctx, func(tx queries) error {
		added, err = addSession(ctx, tx, n)
		return err
	})
	return added && err == nil, err
}

func addSession(ctx context.Context, tx queries, n NewSession) (added bool, err error) {
	if known, err := knownAlready(ctx, tx, n); err != nil || known {
		return false, err
	}
	var task []Holder
	if n.TaskID != "" {
		t, _, err := enterTask(ctx, tx, n.TaskID)
		if err != nil {
			return false, err
		}
		task = append(task, t.Holder())
	}
	session, added, err := insertSession(ctx, tx, n)
	if err != nil || !added {
		return false, err
	}
	n.generation = session.Generation
	if err := addLinks(ctx, tx, n); err != nil {
		return false, err
	}
	return true, addHoldings(ctx, tx, n, append([]Holder{session.holder()}, task...))
}

func addLinks(ctx context.Context, tx queries, n NewSession) error {
	for _, l := range n.Links {
		_, err := tx.exec(ctx, "INSERT INTO session_links (session_id, kind, repository, number) VALUES (?, ?, ?, ?)",
			n.ID, l.Kind, strings.ToLower(l.Repository), l.Number)
		if err != nil {
			return err
		}
	}
	return nil
}

// insertSession writes the session's row. Its generation is the first that no
// finalization, lease, runtime or resource was ever about, for an id may be used
// again once its session was deleted or has vanished. Added is false if somebody
// else has added the same meanwhile.
func insertSession(ctx context.Context, tx queries, n NewSession) (session Session, added bool, err error) {
	at := now()
	var terminated *time.Time
	if n.TerminatedBy != "" {
		terminated = &at
	}
	rows, err := tx.exec(ctx, `INSERT INTO sessions (id, host, task_id, generation, manifest_hash, terminated_at, termination_source, created_at, updated_at)
		VALUES (?, ?, NULLIF(?, ''),
			(SELECT COALESCE(MAX(generation), 0) + 1 FROM (
				SELECT generation FROM finalizations WHERE holder_kind = 'session' AND holder_id = ?
				UNION ALL SELECT generation FROM leases WHERE holder_kind = 'session' AND holder_id = ?
				UNION ALL SELECT generation FROM runtimes WHERE session_id = ?
				UNION ALL SELECT generation FROM resources WHERE session_id = ?) AS known), ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO NOTHING`, n.ID, n.Host, n.TaskID, n.ID, n.ID, n.ID, n.ID, n.ManifestHash, terminated, n.TerminatedBy, at, at)
	if err != nil {
		return session, false, err
	}
	if rows == 0 {
		if _, err := knownAlready(ctx, tx, n); err != nil {
			return session, false, err
		}
	} else if err := refuseVanished(ctx, tx, n.ID); err != nil {
		return session, false, err
	}
	session, err = sessionOf(ctx, tx, n.ID)
	return session, rows == 1, err
}

// refuseVanished refuses the id of a session whose row somebody deleted while it
// held something: with a row of that id nobody would look for what it held.
func refuseVanished(ctx context.Context, tx queries, id string) error {
	var held int
	_, err := tx.one(ctx, &held, `SELECT COUNT(*) FROM (
		SELECT 1 AS one FROM leases WHERE holder_kind = 'session' AND holder_id = ? AND released_at IS NULL
		UNION ALL SELECT 1 FROM runtimes WHERE session_id = ? AND released_at IS NULL
		UNION ALL SELECT 1 FROM resources r WHERE r.session_id = ? AND r.cleared_at IS NULL AND`+mayGo+`) AS left_behind`, id, id, id)
	if err == nil && held > 0 {
		err = &teardown.Error{Code: teardown.CodeBusy, Retryable: true, Message: fmt.Sprintf(
			"A session %s was deleted from the database while it held something, which is not released yet; a worker's pass does that, and `unwind reconcile` says what is in the way. Then try again, or use another id", id)}
	}
	return err
}

// addHoldings registers the worktrees, for these holders, and the session's
// runtimes and resources, for its generation.
func addHoldings(ctx context.Context, tx queries, n NewSession, holders []Holder) error {
	if err := addWorktrees(ctx, tx, n, holders); err != nil {
		return err
	}
	if err := keepApart(ctx, tx, n); err != nil {
		return err
	}
	for _, r := range n.Resources {
		_, err := tx.exec(ctx, "INSERT INTO resources (id, session_id, generation, kind, path) VALUES (?, ?, ?, ?, ?)",
			r.ID, n.ID, n.generation, r.Kind, r.Path)
		if err != nil {
			return err
		}
	}
	return addRuntimes(ctx, tx, n)
}

func addRuntimes(ctx context.Context, tx queries, n NewSession) error {
	state := RuntimeCreating
	if !n.Starting {
		state = RuntimeRunning
		handles := make([]teardown.Runtime, len(n.Runtimes))
		for i, r := range n.Runtimes {
			handles[i] = r.Handle
		}
		if err := soleHolder(ctx, tx, n.Host, n.ID, handles); err != nil {
			return err
		}
	}
	for _, r := range n.Runtimes {
		_, err := tx.exec(ctx, `INSERT INTO runtimes (id, session_id, generation, kind, role, handle, state)
			VALUES (?, ?, ?, ?, ?, ?, ?)`, r.ID, n.ID, n.generation, r.Handle.Kind, r.Handle.Role, JSONOf(r.Handle), state)
		if err != nil {
			return err
		}
	}
	return nil
}

func knownAlready(ctx context.Context, tx queries, n NewSession) (bool, error) {
	var hash string
	found, err := tx.one(ctx, &hash, "SELECT manifest_hash FROM sessions WHERE id = ?", n.ID)
	if err != nil || !found {
		return false, err
	}
	if hash != n.ManifestHash {
		return false, conflict("Session %s is registered with another manifest; choose another id", n.ID)
	}
	return true, nil
}

// lockOpenTask locks the task's row and refuses once its barrier is set.
func lockOpenTask(ctx context.Context, tx queries, id string) error {
	t, found, err := lockTask(ctx, tx, id)
	if err != nil {
		return err
	}
	if !found || t.Closed() {
		return taskClosed(id)
	}
	return nil
}

// addWorktrees registers the worktrees, and gives each holder a lease on them and
// on those of n.Lease.
func addWorktrees(ctx context.Context, tx queries, n NewSession, holders []Holder) error {
	if len(n.Worktrees) == 0 && len(n.Retire) == 0 && len(n.Lease) == 0 {
		return nil
	}
	if err := lockTrees(ctx, tx, n.Host); err != nil {
		return err
	}
	toLock := slices.Clone(n.Retire)
	above := map[string][]string{}
	for _, w := range n.Worktrees {
		parent := w.ParentID
		if n.declares(parent) {
			parent = ""
		}
		list, err := ancestors(ctx, tx, n.Host, w.Path, parent)
		if err != nil {
			return err
		}
		above[w.ID] = list
		toLock = append(toLock, list...)
	}
	for _, id := range n.Lease {
		_, list, err := registeredWith(ctx, tx, id)
		if err != nil {
			return err
		}
		above[id] = list
		toLock = append(append(toLock, list...), id)
	}
	locked, err := lockWorktrees(ctx, tx, toLock...)
	if err != nil {
		return err
	}
	for _, id := range n.Retire {
		if err := retire(ctx, tx, locked[id]); err != nil {
			return err
		}
	}
	for _, id := range n.Lease {
		if err := share(ctx, tx, n, locked[id], above[id], locked, holders); err != nil {
			return err
		}
	}
	for _, w := range n.Worktrees {
		if w.ParentID != "" && !n.declares(w.ParentID) {
			if err := usableParent(locked[w.ParentID], n.Host, w.Path); err != nil {
				return err
			}
		}
		for _, id := range above[w.ID] {
			if slices.Contains(n.Retire, id) {
				continue
			}
			if err := usableAncestor(locked[id], w.Path); err != nil {
				return err
			}
		}
		if err := addWorktree(ctx, tx, n, w, holders); err != nil {
			return err
		}
	}
	return nil
}

// share leases a worktree that the task holds already.
func share(ctx context.Context, tx queries, n NewSession, w Worktree, above []string, locked map[string]Worktree, holders []Holder) error {
	if err := usable(w, above, locked); err != nil {
		return err
	}
	task := holders[len(holders)-1]
	lease, found, err := leaseOf(ctx, tx, w.ID, task)
	if err != nil {
		return err
	}
	if task.Kind != HolderTask || !found || lease.ReleasedAt != nil || w.Host != n.Host {
		return conflict("The worktree %s is registered already, and not held by the session's task on this host; choose another path", w.Path)
	}
	for _, holder := range holders {
		if holder == task {
			continue
		}
		if err := grant(ctx, tx, holder, w); err != nil {
			return err
		}
	}
	return nil
}

// lockTrees lets one transaction at a time add worktrees on a host. A parent
// and a child added at once would not see each other, and the parent's claim
// could move the child. SQLite has one writer anyway.
func lockTrees(ctx context.Context, tx queries, host string) error {
	if tx.on.DriverName() != string(Postgres) {
		return nil
	}
	_, err := tx.exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('unwind worktrees of ' || ?, 0))", host)
	return err
}

func addWorktree(ctx context.Context, tx queries, n NewSession, w NewWorktree, holders []Holder) error {
	state := WorktreeActive
	if n.Starting {
		state = WorktreeCreating
	}
	if err := registerWorktree(ctx, tx, n.Host, w, state); err != nil {
		return err
	}
	at := now()
	for _, holder := range holders {
		if _, err := tx.exec(ctx, "INSERT INTO leases (worktree_id, holder_kind, holder_id, generation, acquired_at) VALUES (?, ?, ?, ?, ?)",
			w.ID, holder.Kind, holder.ID, holder.Generation, at); err != nil {
			return err
		}
	}
	return nil
}

func registerWorktree(ctx context.Context, tx queries, host string, w NewWorktree, state string) error {
	at := now()
	// A violation would abort the transaction, hence DO NOTHING.
	rows, err := tx.exec(ctx, `INSERT INTO worktrees (id, host, repository, path, branch, parent_id, nonce, state, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, NULLIF(?, ''), ?, ?, ?, ?)
		ON CONFLICT (host, path) WHERE state <> 'removed' DO NOTHING`,
		w.ID, host, w.Repository, w.Path, w.Branch, w.ParentID, w.Nonce, state, at, at)
	if err == nil && rows == 0 {
		err = pathTaken(ctx, tx, host, w.Path)
	}
	if err != nil {
		return err
	}
	for _, remote := range w.Remotes {
		if _, err := tx.exec(ctx, "INSERT INTO worktree_remotes (worktree_id, remote) VALUES (?, ?) ON CONFLICT (worktree_id, remote) DO NOTHING",
			w.ID, strings.ToLower(remote)); err != nil {
			return err
		}
	}
	return nil
}

// keepApart refuses a resource that is, holds or lies inside a worktree that was
// registered before: clearing it would take what is not this session's alone.
func keepApart(ctx context.Context, tx queries, n NewSession) error {
	if len(n.Resources) == 0 {
		return nil
	}
	if err := lockTrees(ctx, tx, n.Host); err != nil {
		return err
	}
	var worktrees []Worktree
	if err := tx.all(ctx, &worktrees, "SELECT "+worktreeColumns+" FROM worktrees WHERE host = ? AND state <> 'removed' ORDER BY path",
		n.Host); err != nil {
		return err
	}
	for _, w := range worktrees {
		if n.declares(w.ID) {
			continue
		}
		for _, r := range n.Resources {
			if overlap(r.Path, w.Path) || w.QuarantinePath != "" && overlap(r.Path, w.QuarantinePath) {
				return inTheWay(ctx, tx, r.Path, w)
			}
		}
	}
	return nil
}

func overlap(path, other string) bool {
	return path == other || within(path, other) || within(other, path)
}

func inTheWay(ctx context.Context, tx queries, path string, w Worktree) error {
	held, err := heldLeases(ctx, tx, w.ID)
	if err != nil {
		return err
	}
	by := "nobody"
	if len(held) > 0 {
		by = held[0].Kind + " " + held[0].ID
	}
	return conflict("The resource %s is, holds or lies inside the worktree %s, which is registered and held by %s; choose another path",
		path, w.Path, by)
}

func pathTaken(ctx context.Context, tx queries, host, path string) error {
	w, found, err := worktreeAt(ctx, tx, host, path)
	if err != nil {
		return err
	}
	if !found {
		return conflict("The worktree %s is registered under another id; try again", path)
	}
	held, err := heldLeases(ctx, tx, w.ID)
	if err != nil {
		return err
	}
	if len(held) == 0 {
		return conflict("The worktree %s is registered already and %s, held by nobody; run `unwind reconcile` or choose another path", path, w.State)
	}
	return conflict("The worktree %s is registered already and held by %s %s; choose another path", path, held[0].Kind, held[0].ID)
}

// usableParent refuses a parent that was named but is not one.
func usableParent(parent Worktree, host, path string) error {
	if parent.ID == "" || parent.State == WorktreeRemoved {
		return unusable(teardown.CodeWorktreeRemoved, "The worktree that is to contain %s was removed; register one anew first", path)
	}
	if parent.Host != host || !within(path, parent.Path) {
		return invalidManifest("The worktree %s is not inside its parent %s", path, parent.Path)
	}
	return nil
}

// usableAncestor refuses what is below a worktree that may go at any moment. One
// that is gone, and whose path another may have by now, contains nothing.
func usableAncestor(w Worktree, path string) error {
	switch {
	case w.State == WorktreeRemoved:
		return nil
	case w.State == WorktreeDeleting:
		return unusable(teardown.CodeWorktreeDeleting, "The worktree %s, which contains %s, is being removed; use one outside of it", w.Path, path)
	case w.QuarantinePath != "":
		return unusable(teardown.CodeWorktreeMissing, "The worktree %s, which contains %s, was moved aside by a removal that was not carried to its end; retry that first", w.Path, path)
	}
	return nil
}

// check refuses what the tables could not hold or the protocol not protect.
func (n *NewSession) check() error {
	if err := n.checkIDs(); err != nil {
		return err
	}
	for _, w := range n.Worktrees {
		if err := checkPath(w.Path); err != nil {
			return err
		}
		if !storable(w.Repository) || !storable(w.Branch) {
			return &teardown.Error{Code: teardown.CodePathNotUTF8,
				Message: "The repository and branch of " + w.Path + " must be UTF-8 without NUL"}
		}
	}
	for _, r := range n.Resources {
		if err := checkPath(r.Path); err != nil {
			return err
		}
	}
	for _, r := range n.Runtimes {
		switch r.Handle.Role {
		case "", teardown.RoleAgent, teardown.RoleAuxiliary:
		default:
			return invalidManifest("A runtime's role is %q; write agent or auxiliary", r.Handle.Role)
		}
	}
	return n.checkParents()
}

func (n *NewSession) checkIDs() error {
	ids := []string{n.Host}
	optional := []string{n.ID, n.TaskID}
	for _, r := range n.Runtimes {
		optional = append(optional, r.ID)
	}
	for _, w := range n.Worktrees { // their ids name refs and quarantines
		optional = append(optional, w.ID)
	}
	for _, r := range n.Resources {
		optional = append(optional, r.ID)
	}
	for _, id := range optional {
		if id != "" {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		if err := teardown.ValidateID(id); err != nil {
			return err
		}
	}
	return nil
}

func (n *NewSession) checkParents() error {
	seen := map[string]bool{}
	byID := map[string]string{}
	for _, w := range n.Worktrees {
		if seen[w.Path] {
			return invalidManifest("The worktree %s is listed twice", w.Path)
		}
		seen[w.Path] = true
		byID[w.ID] = w.Path
	}
	for _, w := range n.Worktrees {
		if parent, here := byID[w.ParentID]; w.ParentID != "" && here && !within(w.Path, parent) {
			return invalidManifest("The worktree %s is not inside its parent %s", w.Path, parent)
		}
	}
	return nil
}

// complete fills in what may be left out, and puts parents before children.
func (n *NewSession) complete() {
	n.Runtimes = slices.Clone(n.Runtimes)
	for i := range n.Runtimes {
		n.Runtimes[i].ID = cmp.Or(n.Runtimes[i].ID, NewID())
		n.Runtimes[i].Handle.Role = cmp.Or(n.Runtimes[i].Handle.Role, teardown.RoleAgent)
	}
	n.Resources = slices.Clone(n.Resources)
	for i := range n.Resources {
		n.Resources[i].ID = cmp.Or(n.Resources[i].ID, NewID())
	}
	n.Worktrees = slices.Clone(n.Worktrees)
	for i := range n.Worktrees {
		n.Worktrees[i].ID = cmp.Or(n.Worktrees[i].ID, NewID())
	}
	slices.SortStableFunc(n.Worktrees, func(a, b NewWorktree) int { return cmp.Compare(depth(a.Path), depth(b.Path)) })
}

func (n *NewSession) declares(worktreeID string) bool {
	return slices.ContainsFunc(n.Worktrees, func(w NewWorktree) bool { return w.ID == worktreeID })
}

func checkPath(path string) error {
	if !storable(path) {
		return &teardown.Error{Code: teardown.CodePathNotUTF8, Message: "A registered path must be UTF-8 without NUL; rename " + readable(path, maxText)}
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return invalidManifest("%q is not a clean absolute path", path)
	}
	return nil
}

func storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }
