package worktree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"unwind/internal/lock"
	"unwind/teardown"
)

// recoveredBranches is where branches are made for work whose own branch moved
// on.
const recoveredBranches = "unwind/recovered/"

// RecoverOptions say what to recover, and where to.
type RecoverOptions struct {
	// Repository is any directory of the repository.
	Repository string
	// Ref is below refs/unwind/saved/.
	Ref string
	// Path is where the new worktree goes: nothing or an empty directory. Empty
	// means the path that the work was saved from.
	Path string
	// Branch is the branch to check out, or to make if there is none of this
	// name. Empty means the one that the work was saved from if it is still as it
	// was, or else a new one below unwind/recovered/; none if HEAD was detached.
	Branch   string
	Progress func(teardown.Progress)
}

// Recovered is a worktree that was made from saved work.
type Recovered struct {
	Ref        string
	Path       string
	Repository string
	Branch     string // short name, "" if detached
	Head       string // "" if the branch has no commit yet
	Files      int64
	// Notes says what is not as it was when the work was saved.
	Notes []string
}

// Recover makes a new worktree from saved work and gives back both the index and
// the files exactly, also if the branch has moved on. It never changes the saved
// ref, runs nothing that the repository names, and takes the locks itself. If it
// fails, what it had made is deleted again.
//
// Errors are *teardown.Error: path_occupied if something is at the path,
// conflict for a branch that cannot be used, worktree_missing for a ref that is
// not there or holds something else, repository_missing, the refusals of a path,
// and the retryable ones.
func (e *Engine) Recover(ctx context.Context, options RecoverOptions) (Recovered, error) {
	r := &recovery{engine: e, options: options, hooks: Hooks{Progress: options.Progress}}
	err := r.run(ctx)
	return r.done, recoverError(ctx, err)
}

func recoverError(ctx context.Context, err error) error {
	var coded *teardown.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return stopped(ctx.Err())
	case errors.As(err, &coded):
		return coded
	}
	code := errnoCode(err)
	var git *GitError
	if errors.As(err, &git) {
		code = teardown.CodeGitFailed
	}
	return &teardown.Error{Code: code, Retryable: true, Cause: err, Message: "the saved work could not be recovered; the ref is as it was"}
}

// recovery is one Recover.
type recovery struct {
	engine  *Engine
	options RecoverOptions
	hooks   Hooks

	repo  repository
	state savedState
	done  Recovered
	// admin is the new worktree's, "" before it is made.
	admin string
}

func (r *recovery) run(ctx context.Context) error {
	if err := r.find(ctx); err != nil {
		return err
	}
	path, err := r.place()
	if err != nil {
		return err
	}
	held, err := r.engine.Locks.Path(ctx, path, lock.Wait{Limit: r.engine.lockWait()})
	if err != nil {
		return err
	}
	defer held.Release()
	r.hooks.Inherit = []*os.File{held.File()}
	r.done = Recovered{Ref: r.options.Ref, Path: path, Repository: r.repo.name(), Head: r.state.head}
	return r.engine.locked(ctx, r.repo, r.hooks, func(hooks Hooks) error {
		r.hooks = hooks
		if err := r.clearUnfinished(ctx, path); err != nil {
			return err
		}
		if err := checkFree(path); err != nil {
			return err
		}
		branch, err := r.chooseBranch(ctx)
		if err != nil {
			return err
		}
		if err := r.add(ctx, path); err != nil {
			return err
		}
		err = r.fill(ctx, path)
		if err == nil {
			err = r.attach(ctx, branch)
		}
		if err != nil {
			return errors.Join(err, r.undo(path))
		}
		return nil
	})
}

// find reads the saved state.
func (r *recovery) find(ctx context.Context) (err error) {
	if r.repo, err = findRepository(r.options.Repository); err != nil {
		return &teardown.Error{Code: teardown.CodeRepositoryMissing, Cause: err, Message: fmt.Sprintf(
			"%s is not in a git repository", printable(r.options.Repository))}
	}
	git := r.git()
	absent := &teardown.Error{Code: teardown.CodeWorktreeMissing, Message: fmt.Sprintf(
		"there is no saved work at %s in %s; `unwind recover --list` lists what there is", printable(r.options.Ref), printable(r.repo.name()))}
	if !strings.HasPrefix(r.options.Ref, savedRefs+"/") {
		return absent
	}
	out, err := git.run(ctx, nil, "rev-parse", "--verify", "-q", r.options.Ref+"^{commit}")
	if exitedWith(err, 1) || exitedWith(err, 128) {
		return absent
	}
	if err != nil {
		return err
	}
	r.state, err = readSaved(ctx, git, strings.TrimSpace(out))
	if errors.Is(err, errNotSaved) {
		return absent
	}
	return err
}

func (r *recovery) git() *repositoryGit {
	gitDir := r.admin
	if gitDir == "" {
		gitDir = r.repo.common
	}
	git := r.engine.gitFor(gitDir, r.hooks)
	git.settings = []string{"core.protectNTFS=false", "core.protectHFS=false", "core.sparseCheckout=false", streamed}
	return git
}

func (r *recovery) place() (string, error) {
	path := r.options.Path
	if path == "" {
		path = r.state.about.path
	}
	path, stop := r.engine.checkTarget(path)
	if stop != nil {
		return "", stop.err()
	}
	return path, nil
}

func checkFree(path string) error {
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(entries) == 0:
		return nil
	case err != nil:
		return err
	}
	return &teardown.Error{Code: teardown.CodePathOccupied, Message: fmt.Sprintf(
		"something is at %s; name another directory with --to", printable(path))}
}

// chooseBranch answers the branch to attach HEAD to, "" for none.
func (r *recovery) chooseBranch(ctx context.Context) (string, error) {
	wanted := r.options.Branch
	if wanted == "" {
		wanted = r.state.about.branch
	}
	if wanted == "" {
		return "", nil
	}
	if _, err := r.git().run(ctx, nil, "check-ref-format", "--branch", wanted); err != nil {
		return "", &teardown.Error{Code: teardown.CodeConflict, Message: fmt.Sprintf("%s is not a name for a branch", printable(wanted))}
	}
	why, err := r.unusable(ctx, wanted)
	if err != nil || why == "" {
		return wanted, err
	}
	if r.options.Branch != "" {
		return "", &teardown.Error{Code: teardown.CodeConflict, Message: fmt.Sprintf(
			"branch %s %s; name another one with --branch", printable(wanted), why)}
	}
	for number := 1; number <= 100; number++ {
		name := savedName(recoveredBranches+wanted, number)
		taken, err := r.unusable(ctx, name)
		if err != nil {
			return "", err
		}
		if tip, err := r.tip(ctx, name); err != nil || taken != "" || tip != "" {
			continue
		}
		r.done.Notes = append(r.done.Notes, fmt.Sprintf("branch %s %s, so the work is on the new branch %s", printable(wanted), why, name))
		return name, nil
	}
	return "", &teardown.Error{Code: teardown.CodeConflict, Message: fmt.Sprintf(
		"there are a hundred branches %s%s; name one with --branch", recoveredBranches, wanted)}
}

// unusable says why HEAD cannot be attached to a branch; "" if it can, which
// includes that there is none of this name.
func (r *recovery) unusable(ctx context.Context, branch string) (string, error) {
	tip, err := r.tip(ctx, branch)
	if err != nil {
		return "", err
	}
	out, err := r.git().run(ctx, nil, "worktree", "list", "--porcelain", "-z")
	if err != nil {
		return "", err
	}
	entries, err := parseWorktreeList(out)
	if err != nil {
		return "", err
	}
	for _, entry := range entries {
		if entry.Branch == branch {
			return "is checked out at " + printable(entry.Path), nil
		}
	}
	switch {
	case tip == "" && r.options.Branch == "" && branch == r.state.about.branch && r.state.head != "":
		return "is gone", nil
	case tip != "" && tip != r.state.head:
		return "has moved on", nil
	}
	return "", nil
}

// tip answers the commit of a branch, "" if there is none.
func (r *recovery) tip(ctx context.Context, branch string) (string, error) {
	out, err := r.git().run(ctx, nil, "rev-parse", "--verify", "-q", "refs/heads/"+branch)
	if exitedWith(err, 1) {
		return "", nil
	}
	return strings.TrimSpace(out), err
}

// add makes a worktree without files. It is locked until it is complete.
func (r *recovery) add(ctx context.Context, path string) error {
	at := r.state.head
	if at == "" {
		at = r.state.commit
	}
	if _, err := r.git().run(ctx, nil, "worktree", "add", "-q", "--no-checkout", "--detach", "--lock", "--reason",
		recoverReason+r.options.Ref, "--", path, at); err != nil {
		return err
	}
	admin, err := readGitFile(filepath.Join(path, ".git"))
	if err == nil {
		r.admin, err = filepath.EvalSymlinks(admin)
	}
	r.engine.reach("added")
	return err
}

// fill gives back the index and the files, and compares.
func (r *recovery) fill(ctx context.Context, path string) error {
	git := r.git()
	git.workTree = path
	temporary, done, err := scratch()
	if err != nil {
		return err
	}
	defer done()
	// The commands that read files must run nothing.
	reading, _, err := git.isolate(ctx, temporary, r.repo.common, r.state.head)
	if err != nil {
		return err
	}
	reading.index = filepath.Join(r.admin, "index")
	entries, err := listTree(ctx, git, r.state.work)
	if err != nil {
		return err
	}
	if err := r.fillIndex(ctx, git, reading, filepath.Join(temporary, "announced")); err != nil {
		return err
	}
	if err := r.writeFiles(ctx, git, path, entries); err != nil {
		return err
	}
	r.engine.reach("files written")
	// For speed only: what is as in the index need not be read again.
	if _, err := reading.run(ctx, nil, "update-index", "-q", "--refresh"); err != nil && !exitedWith(err, 1) {
		return err
	}
	if err := r.fillFlags(ctx, git); err != nil {
		return err
	}
	return r.compare(ctx, git, path, entries)
}

func (r *recovery) fillIndex(ctx context.Context, git, reading *repositoryGit, temporary string) error {
	if _, err := git.run(ctx, nil, "read-tree", r.state.index); err != nil {
		return err
	}
	if len(r.state.about.intents) == 0 {
		return nil
	}
	// Git takes the mode of such an entry from a file, which need not be there
	// any more.
	if err := os.Mkdir(temporary, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(temporary)
	if err != nil {
		return err
	}
	defer root.Close()
	var paths strings.Builder
	for _, i := range r.state.about.intents {
		paths.WriteString(i.path + "\x00")
		if err := writeFile(root, i.path, i.mode, usualPerm(i.mode), strings.NewReader("x")); err != nil {
			return err
		}
	}
	announcing := *reading
	announcing.workTree = temporary
	announcing.settings = append(slices.Clone(reading.settings), "core.fileMode=true", "core.symlinks=true")
	announcing.env = append(slices.Clone(reading.env), "GIT_LITERAL_PATHSPECS=1")
	_, err = announcing.run(ctx, strings.NewReader(paths.String()), "add", "--intent-to-add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul")
	return err
}

func (r *recovery) fillFlags(ctx context.Context, git *repositoryGit) error {
	for letter, option := range map[string]string{"a": "--assume-unchanged", "s": "--skip-worktree"} {
		var paths strings.Builder
		for _, f := range r.state.about.flags {
			if strings.Contains(f.flags, letter) {
				paths.WriteString(f.path + "\x00")
			}
		}
		if paths.Len() == 0 {
			continue
		}
		if _, err := git.run(ctx, strings.NewReader(paths.String()), "update-index", option, "-z", "--stdin"); err != nil {
			return err
		}
	}
	return nil
}

// writeFiles writes the files as they were, without git's conversions.
func (r *recovery) writeFiles(ctx context.Context, git *repositoryGit, path string, entries map[string]treeEntry) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	perms := map[string]uint32{}
	for _, p := range r.state.about.perms {
		perms[p.path] = p.perm
	}
	var files []capturedFile
	for path, entry := range entries {
		if entry.mode == gitlinkMode {
			if err := root.MkdirAll(path, 0o777); err != nil {
				return err
			}
			continue
		}
		files = append(files, capturedFile{path: path, mode: entry.mode, oid: entry.oid})
	}
	slices.SortFunc(files, func(a, b capturedFile) int { return strings.Compare(a.path, b.path) })
	var bytes int64
	return eachBlob(ctx, git, files, func(f capturedFile, content io.Reader) error {
		counted := &countingReader{from: content}
		perm, unusual := perms[f.path]
		if !unusual {
			perm = usualPerm(f.mode)
		}
		if err := writeFile(root, f.path, f.mode, perm, counted); err != nil {
			return err
		}
		r.done.Files++
		bytes += counted.bytes
		if r.done.Files%256 == 0 {
			r.hooks.report(teardown.Progress{Step: "recovering", Files: r.done.Files, Bytes: bytes, TotalFiles: int64(len(files))})
		}
		return nil
	})
}

type countingReader struct {
	from  io.Reader
	bytes int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.bytes += int64(n)
	return n, err
}

// writeFile makes one file or link below root.
func writeFile(root *os.Root, path, mode string, perm uint32, content io.Reader) error {
	if dir := filepath.Dir(path); dir != "." {
		if err := root.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	if mode == linkMode {
		target, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		return root.Symlink(string(target), path)
	}
	// Others must not read it before its own permissions are set.
	file, err := root.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	if err == nil {
		err = file.Chmod(fs.FileMode(perm))
	}
	return errors.Join(err, file.Close())
}

// compare reads everything back from the disk and the index.
func (r *recovery) compare(ctx context.Context, git *repositoryGit, path string, entries map[string]treeEntry) error {
	raw, err := listIndex(ctx, git)
	if err != nil {
		return err
	}
	c := &contents{git: git, dir: path}
	if c.index, err = parseIndex(raw); err != nil {
		return err
	}
	admin := place{path: path, repo: r.repo, admin: r.admin}
	k := &capturer{git: git, place: admin, contents: c, progress: r.hooks.report, fileMode: true, entries: map[string]indexEntry{}}
	for _, entry := range c.index.entries {
		k.entries[entry.path] = entry
	}
	if k.newHash, err = objectHash(ctx, git); err != nil {
		return err
	}
	root, err := os.Open(path)
	if err != nil {
		return err
	}
	defer root.Close()
	unlike := func(path string) error {
		return &teardown.Error{Code: teardown.CodeIOError, Retryable: true, Message: fmt.Sprintf(
			"%s is not as it was saved; the saved ref is as it was", printable(path))}
	}
	for path, entry := range entries {
		if entry.mode == gitlinkMode {
			continue
		}
		kind := file
		if entry.mode == linkMode {
			kind = link
		}
		f, err := k.file(int(root.Fd()), kind, path)
		if err != nil {
			return err
		}
		if f.oid != entry.oid {
			return unlike(path)
		}
	}
	temporary, done, err := scratch()
	if err != nil {
		return err
	}
	defer done()
	index, err := k.indexTree(ctx, filepath.Join(temporary, "index"))
	if err != nil {
		return err
	}
	held, err := listTree(ctx, git, index)
	if err != nil {
		return err
	}
	about := k.aboutState(&capture{path: r.state.about.path, branch: r.state.about.branch}, held)
	about.perms = r.state.about.perms
	if index != r.state.index || string(about.format()) != r.state.formatted {
		return unlike("the index")
	}
	return nil
}

// attach points HEAD to the branch, as the last thing, and unlocks the worktree.
func (r *recovery) attach(ctx context.Context, branch string) error {
	if branch != "" {
		err := r.attachTo(ctx, branch)
		switch {
		case err == nil:
			r.done.Branch = branch
		case r.options.Branch != "" || r.state.head == "" || ctx.Err() != nil:
			return err
		default:
			// Another branch's name can be in the way of any that we choose.
			r.done.Notes = []string{fmt.Sprintf("branch %s could not be used, so HEAD is detached: %v", printable(branch), err)}
		}
	}
	r.engine.reach("attached")
	return ignoreAbsent(os.Remove(filepath.Join(r.admin, lockFile)))
}

func (r *recovery) attachTo(ctx context.Context, branch string) error {
	git := r.git()
	tip, err := r.tip(ctx, branch)
	if err != nil {
		return err
	}
	if tip == "" && r.state.head != "" {
		if _, err := git.run(ctx, strings.NewReader("create refs/heads/"+branch+" "+r.state.head+"\n"), "update-ref", "--stdin"); err != nil {
			return err
		}
	}
	_, err = git.run(ctx, nil, "symbolic-ref", "-m", "unwind: recovered", "HEAD", "refs/heads/"+branch)
	return err
}

// undo deletes what was made. ctx may have ended by now.
func (r *recovery) undo(path string) error {
	if r.admin == "" {
		return nil
	}
	ctx := context.Background()
	if err := deleteDirectory(ctx, path, observer{r.engine.patience(), r.hooks.report, r.engine.reach}); err != nil {
		return err
	}
	dropped := filepath.Join(r.repo.common, droppedMark+randomName())
	if err := renameNoReplace(r.admin, dropped); err != nil {
		return err
	}
	return r.engine.sweep(ctx, r.repo)
}
