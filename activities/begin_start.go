package activities

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"go.temporal.io/sdk/activity"

	"unwind/internal/fault"
	"unwind/internal/forge"
	"unwind/internal/lock"
	"unwind/internal/runtime"
	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
)

// maxStarted bounds each list of what a session is started with.
const maxStarted = 100

// BeginStart looks whether all that a session is to have can be made, and
// records that it is about to be: the session, its worktrees and its runtimes,
// all or nothing. Again answers what is recorded. Nothing is made here.
func (h *Host) BeginStart(ctx context.Context, in teardown.StartSessionInput) (teardown.BeginStartResult, error) {
	work, a := begin(ctx, "Looking whether the session can be started")
	defer a.stop()
	result, err := h.beginStart(work, a, in)
	return result, failure(err)
}

func (h *Host) beginStart(ctx context.Context, a *attempt, in teardown.StartSessionInput) (teardown.BeginStartResult, error) {
	var nothing teardown.BeginStartResult
	if err := checkStart(in); err != nil {
		return nothing, err
	}
	held, err := h.Locks.Session(ctx, in.ID, a.lockWait(h.LockWait))
	if err != nil {
		return nothing, err
	}
	defer held.Release()
	known, found, err := h.knownStart(ctx, in)
	if err != nil {
		return nothing, err
	}
	if !found {
		if err := h.recordStart(ctx, a, in); err != nil {
			return nothing, err
		}
		fault.Point("start recorded")
		if known, _, err = h.knownStart(ctx, in); err != nil {
			return nothing, err
		}
	}
	return h.recordedStart(ctx, in, known)
}

func checkStart(in teardown.StartSessionInput) error {
	for _, id := range []string{in.ID, in.Host} {
		if err := teardown.ValidateID(id); err != nil {
			return err
		}
	}
	if max(len(in.Worktrees), len(in.Runtimes), len(in.Resources), len(in.Links)) > maxStarted {
		return unfit("A session is started with at most %d worktrees, runtimes, resources and links each", maxStarted)
	}
	if err := forge.CheckLinks(in.Links); err != nil {
		return err
	}
	if len(in.Worktrees)+len(in.Runtimes) == 0 {
		return unfit("A session is started with at least one worktree or runtime")
	}
	for i, rt := range in.Runtimes {
		if err := (runtime.Launch{Command: rt.Command, Directory: cmp.Or(rt.Directory, "/")}).CheckCommand(); err != nil {
			return err
		}
		switch rt.Role {
		case "", teardown.RoleAgent, teardown.RoleAuxiliary:
		default:
			return unfit("The role %q of runtime %d is not known; use agent or auxiliary", rt.Role, i)
		}
	}
	return nil
}

func unfit(format string, args ...any) error {
	return &teardown.Error{Code: teardown.CodeInvalidManifest, Message: fmt.Sprintf(format, args...)}
}

// startHash is equal for two inputs that say the same, and for no manifest.
func startHash(in teardown.StartSessionInput) string {
	normal, err := json.Marshal(in)
	if err != nil {
		panic(err) // strings only
	}
	sum := sha256.Sum256(append([]byte("start "), normal...))
	return hex.EncodeToString(sum[:])
}

func (h *Host) knownStart(ctx context.Context, in teardown.StartSessionInput) (store.Detail, bool, error) {
	detail, err := h.Store.SessionDetail(ctx, in.ID)
	switch {
	case teardown.CodeOf(err) == teardown.CodeSessionNotFound:
		return store.Detail{}, false, nil
	case err != nil:
		return store.Detail{}, false, err
	case detail.Session.ManifestHash != startHash(in):
		return store.Detail{}, false, &teardown.Error{Code: teardown.CodeConflict,
			Message: "Session " + in.ID + " is registered with other content; choose another id"}
	case detail.Session.TerminatedAt != nil:
		return store.Detail{}, false, &teardown.Error{Code: teardown.CodeSessionTerminated,
			Message: "Session " + in.ID + " was started with this content before and is terminated; a new run needs another id"}
	}
	return detail, true, nil
}

func (h *Host) recordStart(ctx context.Context, a *attempt, in teardown.StartSessionInput) error {
	n := store.NewSession{ID: in.ID, Host: in.Host, TaskID: in.TaskID, ManifestHash: startHash(in), Links: store.LinksOf(in.Links), Starting: true}
	if err := h.checkNewResources(in); err != nil {
		return err
	}
	trees, err := h.planWorktrees(ctx, in)
	if err != nil {
		return err
	}
	for _, tree := range trees {
		held, err := h.Locks.Path(ctx, tree.Path, a.lockWait(h.LockWait))
		if err != nil {
			return err
		}
		defer held.Release()
		if err := h.addTree(ctx, &n, tree); err != nil {
			return err
		}
	}
	if err := h.planRuntimes(in, &n); err != nil {
		return err
	}
	_, err = h.Store.AddSession(ctx, n)
	return err
}

// checkNewResources refuses early; what lies in a directory that is made with
// it is looked at when that is there.
func (h *Host) checkNewResources(in teardown.StartSessionInput) error {
	for i, r := range in.Resources {
		inside := slices.ContainsFunc(in.Resources[:i], func(other teardown.NewResource) bool {
			return other.Kind == teardown.ResourceDir && strings.HasPrefix(r.Path, other.Path+"/")
		})
		if inside {
			continue
		}
		if err := h.Resources.Absent(teardown.ResourceSpec{Kind: r.Kind, Path: r.Path}); err != nil {
			return err
		}
	}
	return nil
}

// planWorktrees answers the worktrees with canonical paths, parents first.
func (h *Host) planWorktrees(ctx context.Context, in teardown.StartSessionInput) ([]worktree.NewTree, error) {
	paths := make([]string, len(in.Worktrees))
	for i, w := range in.Worktrees {
		path, err := worktree.CanonicalPath(w.Path)
		if err != nil {
			return nil, err
		}
		if slices.Contains(paths, path) {
			return nil, unfit("The worktree %s is listed twice", path)
		}
		paths[i] = path
	}
	trees := make([]worktree.NewTree, len(in.Worktrees))
	branches := map[string]bool{}
	for i, w := range in.Worktrees {
		tree, err := h.Worktrees.Plan(ctx, worktree.NewTree{Repository: w.Repository, Path: paths[i], Branch: w.Branch, Base: w.Base,
			Nonce: worktree.NewNonce()}, paths)
		if err != nil {
			return nil, err
		}
		if branch := tree.Repository + "\x00" + tree.Branch; tree.Branch != "" {
			if branches[branch] {
				return nil, unfit("The branch %s of %s is to be checked out twice; give each worktree its own", tree.Branch, w.Repository)
			}
			branches[branch] = true
		}
		trees[i] = tree
	}
	slices.SortFunc(trees, func(x, y worktree.NewTree) int { return cmp.Compare(x.Path, y.Path) })
	return trees, nil
}

// addTree adds a worktree to what is to be recorded. The caller holds its path
// lock.
func (h *Host) addTree(ctx context.Context, n *store.NewSession, tree worktree.NewTree) error {
	// It was planned without the lock: what a removal had moved aside may be back.
	if err := worktree.Free(tree.Path); err != nil {
		return err
	}
	old, held, found, err := h.Store.WorktreeAt(ctx, n.Host, tree.Path)
	if err != nil {
		return err
	}
	if found && len(held) == 0 && old.QuarantinePath == "" {
		n.Retire = append(n.Retire, old.ID) // nothing is there any more
	}
	row := store.NewWorktree{ID: store.NewID(), Repository: tree.Repository, Path: tree.Path, Branch: tree.Branch, Nonce: tree.Nonce,
		Remotes: h.remotes(ctx, tree.Repository)}
	for dir := filepath.Dir(tree.Path); dir != "/" && row.ParentID == ""; dir = filepath.Dir(dir) {
		if at := slices.IndexFunc(n.Worktrees, func(other store.NewWorktree) bool { return other.Path == dir }); at >= 0 {
			row.ParentID = n.Worktrees[at].ID
			continue
		}
		around, _, found, err := h.Store.WorktreeAt(ctx, n.Host, dir)
		if err != nil {
			return err
		}
		if found {
			row.ParentID = around.ID
		}
	}
	n.Worktrees = append(n.Worktrees, row)
	return nil
}

// remotes says under which names forges know the repository. Without them only
// the webhooks' way from a branch to the session is missing.
func (h *Host) remotes(ctx context.Context, repository string) []string {
	urls, err := h.Worktrees.Remotes(ctx, repository)
	if err != nil {
		activity.GetLogger(ctx).Warn("The remotes of a repository could not be read", "repository", repository, "error", err)
	}
	return forge.Remotes(urls)
}

func (h *Host) planRuntimes(in teardown.StartSessionInput, n *store.NewSession) error {
	// Rows are read in the order of their ids.
	base := store.NewID()
	for i, asked := range in.Runtimes {
		rt := teardown.Runtime{Kind: cmp.Or(asked.Kind, teardown.KindTmux), Role: asked.Role,
			Identity: &teardown.RuntimeIdentity{Worktree: worktreeAround(n.Worktrees, directoryOf(in, asked))}}
		if rt.Kind == teardown.KindTmux {
			rt.Socket = cmp.Or(asked.Socket, h.TmuxSocket)
			rt.Session = cmp.Or(asked.Session, nameFor(in.ID, i))
		}
		kind, err := h.Runtimes.For(rt)
		if err != nil {
			return err
		}
		starter, ok := kind.(runtime.Starter)
		if !ok {
			return unfit("A runtime of kind %q cannot be started; use tmux or process", rt.Kind)
		}
		if rt, err = starter.Plan(rt); err != nil {
			return err
		}
		n.Runtimes = append(n.Runtimes, store.NewRuntime{ID: fmt.Sprintf("%s-%03d", base, i), Handle: rt})
	}
	return nil
}

// nameFor is a tmux session's name that is made from the session's id.
func nameFor(id string, i int) string {
	suffix := ""
	if i > 0 {
		suffix = fmt.Sprintf("-%d", i+1)
	}
	return id[:min(len(id), 64-len(suffix))] + suffix
}

// directoryOf is where a runtime begins.
func directoryOf(in teardown.StartSessionInput, rt teardown.NewRuntime) string {
	if rt.Directory == "" && len(in.Worktrees) > 0 {
		return in.Worktrees[0].Path
	}
	return cmp.Or(rt.Directory, "/")
}

// worktreeAround is the innermost worktree that a directory is in, or "".
func worktreeAround(worktrees []store.NewWorktree, directory string) string {
	if canonical, err := worktree.CanonicalPath(directory); err == nil {
		directory = canonical
	}
	around := ""
	for _, w := range worktrees {
		if (directory == w.Path || strings.HasPrefix(directory, w.Path+"/")) && len(w.Path) > len(around) {
			around = w.Path
		}
	}
	return around
}

// recordedStart answers the intent as it is recorded. What the session had at an
// earlier generation, or another one of its id, is not of this start.
func (h *Host) recordedStart(ctx context.Context, in teardown.StartSessionInput, detail store.Detail) (teardown.BeginStartResult, error) {
	begun := teardown.BeginStartResult{
		Start: teardown.StartStep{SessionID: in.ID, Generation: detail.Session.Generation},
		Done:  true,
		Result: teardown.StartSessionResult{SessionID: in.ID, Host: in.Host, Generation: detail.Session.Generation,
			Resources: len(in.Resources)},
	}
	for _, leased := range detail.Worktrees {
		if leased.Lease.Generation != detail.Session.Generation {
			continue
		}
		row := leased.Worktree
		planned := teardown.PlannedWorktree{ID: row.ID, Path: row.Path, Base: baseFor(in, row.Path)}
		begun.Done = begun.Done && row.State == store.WorktreeActive
		if row.State == store.WorktreeCreating {
			commit, err := h.Worktrees.PlanCommit(ctx, worktree.NewTree{Repository: row.Repository, Branch: row.Branch, Base: planned.Base})
			if err != nil {
				return teardown.BeginStartResult{}, err
			}
			planned.Commit = commit
		}
		begun.Worktrees = append(begun.Worktrees, planned)
		begun.Result.Worktrees = append(begun.Result.Worktrees, teardown.StartedWorktree{ID: row.ID, Path: row.Path, Branch: row.Branch})
	}
	for _, row := range detail.Runtimes {
		if row.Generation != detail.Session.Generation {
			continue
		}
		begun.Done = begun.Done && row.State != store.RuntimeCreating
		begun.Runtimes = append(begun.Runtimes, startedRuntime(row.ID, row.Handle.V))
	}
	begun.Result.Runtimes = slices.Clone(begun.Runtimes)
	return begun, nil
}

func startedRuntime(id string, rt teardown.Runtime) teardown.StartedRuntime {
	return teardown.StartedRuntime{ID: id, Kind: rt.Kind, Role: rt.Role, Socket: rt.Socket, Session: rt.Session, PID: rt.PID}
}

func baseFor(in teardown.StartSessionInput, path string) string {
	for _, w := range in.Worktrees {
		if canonical, err := worktree.CanonicalPath(w.Path); err == nil && canonical == path {
			return w.Base
		}
	}
	return ""
}

// starting takes the session's lock and reads again that the session is still
// being started.
func (h *Host) starting(ctx context.Context, a *attempt, start teardown.StartStep) (*lock.Held, error) {
	held, err := h.Locks.Session(ctx, start.SessionID, a.lockWait(h.LockWait))
	if err != nil {
		return nil, err
	}
	if err := h.Store.Starting(ctx, start); err != nil {
		held.Release()
		return nil, err
	}
	return held, nil
}
