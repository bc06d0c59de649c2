package worktree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"unwind/teardown"
)

// nonceFile lies in the admin directory, beside git's own files. It tells one
// worktree from a later one at the same path.
const nonceFile = "unwind-nonce"

// place is one worktree on which registry and directory agree.
type place struct {
	path  string // canonical, where it is registered
	repo  repository
	admin string
	// aside is the quarantine, at which a condemned worktree is registered.
	aside string
	// entry is the admin directory's instance.
	entry instance
	nonce string
	// branch is the one that is checked out, also once it is released; "" if there
	// is none or it is not known.
	branch string
	// info is the directory's, nil if nothing is at the path.
	info fs.FileInfo
	// registered are all entries of the registry.
	registered []registration
}

func (p place) missing() bool { return p.info == nil }

// identify is step 2 of the policy. The worktree is registered at path; dir is
// where its directory is looked for, which differs from path while it is in
// quarantine.
func identify(target Target, path, dir string) (place, *halt) {
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return identifyMissing(target, path)
	case err != nil:
		return place{}, fail(err, dir, "the directory cannot be looked at")
	case !info.IsDir():
		return place{}, keep(teardown.CodeIdentityMismatch, dir, "it is not a directory")
	}
	admin, stop := adminNamedBy(target, path, dir)
	if stop != nil {
		return place{}, stop
	}
	p := place{path: path, admin: admin, info: info}
	if stop := p.findRepository(target, dir); stop != nil {
		return place{}, stop
	}
	if stop := p.checkRegistration(target); stop != nil {
		return place{}, stop
	}
	return p, p.checkOwner(dir)
}

// withoutIt is what to do about a main working tree.
const withoutIt = "register the session without this worktree"

// adminNamedBy reads dir's .git file and answers the admin directory it names.
func adminNamedBy(target Target, path, dir string) (string, *halt) {
	link := filepath.Join(dir, ".git")
	info, err := os.Lstat(link)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", keep(teardown.CodeCannotInspect, link, "the .git file cannot be looked at: %v", err)
	}
	if err != nil || !info.Mode().IsRegular() {
		return "", withoutGitFile(target, path, dir, err == nil)
	}
	named, err := readGitFile(link)
	if err != nil {
		return "", keep(teardown.CodeIdentityMismatch, link, "the .git file does not name a git directory: %v", err)
	}
	admin, err := filepath.EvalSymlinks(named)
	if err != nil {
		return "", danglingGitFile(target, path, named)
	}
	if _, err := os.Lstat(filepath.Join(admin, "commondir")); err != nil {
		if filepath.Base(filepath.Dir(admin)) == "worktrees" && looksLikeRepository(filepath.Dir(filepath.Dir(admin))) {
			return "", keep(teardown.CodeCannotInspect, admin, "the worktree's administration is damaged: its file commondir cannot be looked at: %v", err)
		}
		if registeredAt(target, path) {
			return "", keep(teardown.CodeIdentityMismatch, link, "the registered worktree's .git file names another repository, %s", printable(named))
		}
		return "", refuse(teardown.CodeMainWorktree, dir, "it is the main working tree of %s, which is never removed; "+withoutIt, printable(admin))
	}
	return admin, nil
}

// withoutGitFile judges a directory in which .git is not a regular file.
func withoutGitFile(target Target, path, dir string, somethingElse bool) *halt {
	registered := registeredAt(target, path)
	switch {
	case registered && somethingElse:
		return keep(teardown.CodeIdentityMismatch, dir, "a worktree is registered here, but what is here has a .git of its own")
	case registered:
		return keep(teardown.CodeIdentityMismatch, dir, "a worktree is registered here, but the directory has no .git file; `git worktree repair` may mend it")
	case somethingElse:
		return refuse(teardown.CodeMainWorktree, dir, "it is the main working tree of a repository, which is never removed; "+withoutIt)
	case looksLikeRepository(dir):
		return refuse(teardown.CodeUnsafeTarget, dir, "it is a git repository, not a worktree")
	case target.Nonce != "":
		return keep(teardown.CodeDebris, dir, "the worktree's registration is gone, but a directory is left here; look through it and delete it by hand")
	}
	return refuse(teardown.CodeUnsafeTarget, dir, "it is not a git worktree")
}

func danglingGitFile(target Target, path, named string) *halt {
	if registeredAt(target, path) {
		return keep(teardown.CodeIdentityMismatch, named, "the worktree's .git file names a directory that does not exist; `git worktree repair` may mend it")
	}
	if looksLikeRepository(filepath.Dir(filepath.Dir(named))) {
		return keep(teardown.CodeNotRegistered, named, "the repository has no such worktree any more; look through the directory and delete it by hand")
	}
	return keep(teardown.CodeRepositoryMissing, named, "the repository to which the worktree belongs is not there; if it was moved, `git worktree repair` there mends it")
}

func registeredAt(target Target, path string) bool {
	if target.Repository == "" {
		return false
	}
	repo, err := findRepository(target.Repository)
	if err != nil {
		return false
	}
	entries, err := repo.registrations()
	return err == nil && len(at(entries, path)) > 0
}

func at(entries []registration, path string) []registration {
	var found []registration
	for _, entry := range entries {
		if entry.path == path {
			found = append(found, entry)
		}
	}
	return found
}

// findRepository goes from the admin directory to the repository and compares
// it with the one that the target names.
func (p *place) findRepository(target Target, dir string) *halt {
	common, err := commonDirOf(p.admin)
	if err == nil {
		p.repo, err = newRepository(common)
	}
	if err != nil {
		return keep(teardown.CodeRepositoryMissing, p.admin, "the worktree's repository is not there: %v", err)
	}
	if filepath.Dir(p.admin) != filepath.Join(p.repo.common, "worktrees") {
		return keep(teardown.CodeIdentityMismatch, p.admin, "the worktree's .git file names a directory that is not in its repository's registry")
	}
	if target.Repository != "" {
		named, err := findRepository(target.Repository)
		if err != nil {
			return keep(teardown.CodeRepositoryMissing, target.Repository, "the repository cannot be found: %v; name any directory of the worktree's repository", err)
		}
		if named.common != p.repo.common {
			return keep(teardown.CodeIdentityMismatch, dir, "the worktree belongs to another repository, %s; name that one, or leave the repository out by hand", printable(p.repo.name()))
		}
	}
	if p.path == p.repo.main {
		return refuse(teardown.CodeMainWorktree, p.path, "it is the main working tree, which is never removed; "+withoutIt)
	}
	if within(p.repo.common, p.path) || p.repo.main != "" && below(p.repo.main, p.path) {
		return refuse(teardown.CodeUnsafeTarget, p.path, "it contains its own repository, %s", printable(p.repo.name()))
	}
	return nil
}

// checkRegistration compares the registry's side of the link, and the nonce.
func (p *place) checkRegistration(target Target) *halt {
	entries, err := p.repo.registrations()
	if err != nil {
		return keep(teardown.CodeCannotInspect, p.repo.common, "the repository's list of worktrees cannot be read: %v", err)
	}
	p.registered = entries
	here := at(entries, p.path)
	if len(here) > 1 {
		return keep(teardown.CodeIdentityMismatch, p.path, "%d entries of the registry name this path", len(here))
	}
	if p.entry, err = instanceOf(p.admin); err != nil {
		return keep(teardown.CodeCannotInspect, p.admin, "the worktree's administration cannot be looked at: %v", err)
	}
	if len(here) == 0 || here[0].admin != p.admin {
		elsewhere := registeredPath(p.admin)
		return keep(teardown.CodeIdentityMismatch, p.path, "the .git file belongs to the worktree at %s; this one was copied or moved (`git worktree repair` mends a move)", printable(elsewhere))
	}
	return p.checkNonce(target)
}

func (p *place) checkNonce(target Target) *halt {
	nonce, err := readNonce(p.admin)
	if err != nil {
		return keep(teardown.CodeCannotInspect, p.admin, "the worktree's nonce cannot be read: %v", err)
	}
	p.nonce = nonce
	if target.Nonce == "" || target.Nonce == nonce {
		return nil
	}
	if moved := withNonce(p.registered, target.Nonce); moved != nil {
		return keep(teardown.CodeIdentityMismatch, moved.path, "the worktree was moved to %s", printable(moved.path))
	}
	return gone(teardown.CodeIdentityMismatch, p.path, "the registered worktree is gone; another one is at its path and was left alone")
}

func readNonce(admin string) (string, error) {
	nonce, err := readSmall(filepath.Join(admin, nonceFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(nonce), err
}

func withNonce(entries []registration, nonce string) *registration {
	for _, entry := range entries {
		if found, err := readNonce(entry.admin); err == nil && found == nonce {
			return &entry
		}
	}
	return nil
}

// identifyMissing finds the registry's entry for a worktree whose directory is
// not there.
func identifyMissing(target Target, path string) (place, *halt) {
	repo, err := repositoryOf(target, path)
	if err != nil {
		return place{}, nothingAt(path, nil)
	}
	p := place{path: path, repo: repo}
	if p.registered, err = repo.registrations(); err != nil {
		return place{}, keep(teardown.CodeCannotInspect, repo.common, "the repository's list of worktrees cannot be read: %v", err)
	}
	here, nothing := at(p.registered, path), nothingAt(path, p.registered)
	switch len(here) {
	case 0:
		if target.Nonce == "" {
			return place{repo: repo}, nothing
		}
		if moved := withNonce(p.registered, target.Nonce); moved != nil && checkQuarantine(moved.path, path) != nil {
			return place{}, keep(teardown.CodeIdentityMismatch, path, "the worktree was moved to %s", printable(moved.path))
		}
		return place{}, nothing
	case 1:
		p.admin = here[0].admin
		if p.entry, err = instanceOf(p.admin); err != nil {
			return place{}, keep(teardown.CodeCannotInspect, p.admin, "the worktree's administration cannot be looked at: %v", err)
		}
		if stop := p.checkNonce(target); stop != nil {
			return place{}, stop
		}
		return p, nil
	}
	return place{}, keep(teardown.CodeIdentityMismatch, path, "%d entries of the registry name this path", len(here))
}

// nothingAt is the verdict on a path at which nothing is, nor registered.
func nothingAt(path string, registered []registration) *halt {
	var forgotten []string
	for _, quarantine := range quarantinesAt(path) {
		if len(at(registered, quarantine)) > 0 {
			return &halt{teardown.DispositionFailed, busyFinding(quarantine)}
		}
		if !isRemains(quarantine) {
			forgotten = append(forgotten, quarantine)
		}
	}
	if len(forgotten) > 0 {
		return keepForgotten(path, forgotten)
	}
	return gone("", path, "nothing is at the path")
}

func busyFinding(quarantine string) Finding {
	return finding(teardown.CodeBusy, "its removal was begun and is not finished; whoever began it will finish it", quarantine)
}

// keepForgotten: whoever moved it aside, and whatever has become of its
// registration since, it may be the last place of somebody's work.
func keepForgotten(path string, quarantines []string) *halt {
	return &halt{teardown.DispositionPreserved, finding(teardown.CodeDebris,
		"a removal had moved it aside, and its registration is gone; look through it, and move it back to "+printable(path)+" or delete it", quarantines...)}
}

// checkOwner: git would refuse to look at somebody else's repository, for good
// reason; that it was named explicitly is no reason to trust it.
func (p *place) checkOwner(dir string) *halt {
	for _, path := range []string{dir, filepath.Join(dir, ".git"), p.admin, p.repo.common} {
		info, err := os.Lstat(path)
		if err != nil {
			return keep(teardown.CodeCannotInspect, path, "it cannot be looked at: %v", err)
		}
		if owner, ours := ownedByUs(info); !ours {
			return keep(teardown.CodeCannotInspect, path, "it belongs to user %s; run unwind as that user", owner)
		}
	}
	return nil
}

func ownedByUs(info fs.FileInfo) (owner string, ours bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "unknown", false
	}
	return fmt.Sprint(stat.Uid), int(stat.Uid) == os.Geteuid()
}
