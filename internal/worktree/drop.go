package worktree

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"unwind/internal/lock"
	"unwind/teardown"
)

// droppedMark begins the names, in the common directory, of registrations that
// were taken out of the registry and wait to be deleted.
const droppedMark = "unwind-dropped-"

// locked does work on the repository's shared parts under its lock, which git
// inherits.
func (e *Engine) locked(ctx context.Context, repo repository, hooks Hooks, work func(Hooks) error) error {
	held, err := e.Locks.Repository(ctx, repo.common, lock.Wait{Limit: e.lockWait(), Each: func() {
		hooks.report(teardown.Progress{Step: "waiting for the repository"})
	}})
	if err != nil {
		return err
	}
	defer held.Release()
	hooks.Inherit = append(slices.Clone(hooks.Inherit), held.File())
	return work(hooks)
}

// keepCommits makes rescue refs for what only this worktree reaches.
func (e *Engine) keepCommits(ctx context.Context, p place, name string, hooks Hooks) (rescued []string, err error) {
	err = e.locked(ctx, p.repo, hooks, func(hooks Hooks) error {
		rescued, err = e.keepCommitsLocked(ctx, p, name, hooks)
		return err
	})
	return rescued, err
}

func (e *Engine) keepCommitsLocked(ctx context.Context, p place, name string, hooks Hooks) ([]string, error) {
	c := commits{git: e.gitFor(p.admin, hooks), admin: p.admin, repo: p.repo, branch: p.branch}
	lost, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	return c.rescue(ctx, name, lost.all())
}

// drop takes our own registration out of the registry, and no other: by one
// rename, so that git sees it whole or not at all. It answers the rescue refs
// for commits that were made since the last look.
func (e *Engine) drop(ctx context.Context, p place, name string, hooks Hooks) (rescued []string, err error) {
	if p.repo.common == "" {
		return nil, nil
	}
	err = e.locked(ctx, p.repo, hooks, func(hooks Hooks) error {
		if p.admin != "" && p.stillRegistered() {
			rescued, err = e.unregister(ctx, p, name, hooks)
			if err != nil {
				return err
			}
		}
		return e.sweep(ctx, p.repo)
	})
	return rescued, err
}

func (e *Engine) unregister(ctx context.Context, p place, name string, hooks Hooks) ([]string, error) {
	rescued, err := e.keepCommitsLocked(ctx, p, name, hooks)
	if err != nil {
		return nil, err
	}
	before, err := pointers(p.admin)
	if err != nil {
		return rescued, err
	}
	// One of the same name is what a crash left of an earlier drop.
	if err := e.sweep(ctx, p.repo); err != nil {
		return rescued, err
	}
	e.reach("dropping")
	dropped := filepath.Join(p.repo.common, droppedMark+name)
	if err := renameNoReplace(p.admin, dropped); err != nil {
		return rescued, err
	}
	if !isInstance(dropped, p.entry) {
		// It was registered anew since it was compared.
		return rescued, renameNoReplace(dropped, p.admin)
	}
	e.reach("entry moved")
	late, err := e.keepLate(ctx, p, dropped, before, name, hooks)
	rescued = append(rescued, late...)
	if err != nil {
		return rescued, errors.Join(err, renameNoReplace(dropped, p.admin))
	}
	return rescued, nil
}

// stillRegistered: the entry is there and is the one we looked at, and nothing
// at the path belongs to it.
func (p place) stillRegistered() bool {
	nonce, err := readNonce(p.admin)
	return err == nil && nonce == p.nonce && isInstance(p.admin, p.entry) && !claimedAt(p.path, p.admin) && p.isRegisteredAs(registeredPath(p.admin))
}

// isRegisteredAs: path is the worktree's own, or since it was condemned that of
// its quarantine.
func (p place) isRegisteredAs(path string) bool {
	return path != "" && (path == p.path || path == p.aside)
}

// keepLate rescues what was written into the entry between the last look and
// the rename.
func (e *Engine) keepLate(ctx context.Context, p place, dropped string, before []string, name string, hooks Hooks) ([]string, error) {
	after, err := pointers(dropped)
	if err != nil {
		return nil, err
	}
	late := slices.DeleteFunc(after, func(oid string) bool { return slices.Contains(before, oid) })
	if len(late) == 0 {
		return nil, nil
	}
	c := commits{git: e.gitFor(p.repo.common, hooks), repo: p.repo}
	lost, err := c.unreached(ctx, late, nil)
	if err != nil {
		return nil, err
	}
	return c.rescue(ctx, name, lost)
}

// pointers are the object ids in an entry's HEAD, refs and reflogs.
func pointers(admin string) ([]string, error) {
	oids, err := reflogsBelow(filepath.Join(admin, "logs"), nil)
	if err != nil {
		return nil, err
	}
	files := []string{filepath.Join(admin, "HEAD")}
	err = filepath.WalkDir(filepath.Join(admin, "refs"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files = append(files, path)
		}
		return ignoreAbsent(err)
	})
	for _, path := range files {
		if text, readErr := readSmall(path); readErr == nil && isOID(text) {
			oids = append(oids, text)
		}
	}
	return oids, err
}

// sweep deletes registrations that were taken out of the registry, also those
// that an earlier run did not come to delete. The repository lock is held.
func (e *Engine) sweep(ctx context.Context, repo repository) error {
	entries, err := os.ReadDir(repo.common)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() && strings.HasPrefix(entry.Name(), droppedMark) {
			err = errors.Join(err, deleteDirectory(ctx, filepath.Join(repo.common, entry.Name()), e.unobserved()))
		}
	}
	// Git removes the registry too when it is empty.
	_ = os.Remove(filepath.Join(repo.common, "worktrees"))
	return err
}
