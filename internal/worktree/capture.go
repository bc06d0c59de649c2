package worktree

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"unwind/teardown"
)

// Modes of git's trees, beside gitlinkMode.
const (
	plainMode      = "100644"
	executableMode = "100755"
	linkMode       = "120000"
)

// capture is the exact state of a worktree that no commit holds yet: what is on
// disk, byte for byte, and what is in the index.
type capture struct {
	head, branch string
	path         string // where the worktree is registered
	files        []capturedFile
	// work and index are trees: of the files, and of the index without what was
	// only announced with `git add --intent-to-add`.
	work, index string
	// about is the rest; see savedAbout.
	about []byte
}

// capturedFile is a regular file or a link, with the content as it is on disk.
type capturedFile struct {
	path, mode, oid string
	perm            uint32 // the permission bits of a regular file
	size            int64
}

// errUnsavable: a commit cannot hold the state, whatever is tried.
var errUnsavable = errors.New("a commit cannot hold it")

// capturer captures one worktree after a look at it.
type capturer struct {
	git      *repositoryGit
	place    place
	contents *contents
	progress func(teardown.Progress)

	newHash  func() hash.Hash
	fileMode bool
	entries  map[string]indexEntry
}

// savable: findings of this kind are what a commit can hold.
func savable(code teardown.Code) bool {
	switch code {
	case teardown.CodeModified, teardown.CodeStaged, teardown.CodeUntracked, teardown.CodeHiddenChanges:
		return true
	}
	return false
}

// unsavable answers why the state that was looked at cannot be committed.
func (c *contents) unsavable() error {
	if len(c.index.unmerged) > 0 {
		return fmt.Errorf("%w: the index holds conflicts, as in %s", errUnsavable, printable(c.index.unmerged[0]))
	}
	for path := range c.untracked {
		for element := range strings.SplitSeq(path, "/") {
			if strings.EqualFold(element, ".git") {
				return fmt.Errorf("%w: git takes no file of the name %s", errUnsavable, printable(path))
			}
		}
	}
	return nil
}

// capture reads everything again, by descriptor and without filters.
func (e *Engine) capture(ctx context.Context, p place, c *contents, hooks Hooks) (*capture, error) {
	if err := c.unsavable(); err != nil {
		return nil, err
	}
	git := *c.git
	// The disk decides, not what git would do to be portable or sparse.
	git.settings = []string{"core.protectNTFS=false", "core.protectHFS=false", "core.sparseCheckout=false", "core.fsync=all"}
	k := &capturer{git: &git, place: p, contents: c, progress: hooks.report}
	taken := &capture{head: c.head, branch: branchOf(p.admin), path: p.path}
	err := k.prepare(ctx)
	if err == nil {
		taken.files, err = k.files(ctx)
	}
	if err == nil {
		err = k.trees(ctx, taken)
	}
	return taken, err
}

func (k *capturer) prepare(ctx context.Context) (err error) {
	if k.newHash, err = objectHash(ctx, k.git); err != nil {
		return err
	}
	k.fileMode = k.contents.settings.fileMode()
	// The index of the look may be older than the files are going to be.
	raw, err := listIndex(ctx, k.git)
	if err != nil {
		return err
	}
	if raw != k.contents.index.raw {
		return errChanged
	}
	k.entries = map[string]indexEntry{}
	for _, entry := range k.contents.index.entries {
		k.entries[entry.path] = entry
	}
	return nil
}

// objectHash answers the hash function of the repository's object ids.
func objectHash(ctx context.Context, git *repositoryGit) (func() hash.Hash, error) {
	out, err := git.run(ctx, nil, "rev-parse", "--show-object-format")
	if err != nil {
		return nil, err
	}
	switch format := strings.TrimSpace(out); format {
	case "sha1":
		return sha1.New, nil
	case "sha256":
		return sha256.New, nil
	default:
		return nil, fmt.Errorf("the object format %q is not known", format)
	}
}

func blobHash(newHash func() hash.Hash, size int64) hash.Hash {
	h := newHash()
	writeBlobHeader(h, size)
	return h
}

func writeBlobHeader(to io.Writer, size int64) { fmt.Fprintf(to, "blob %d\x00", size) }

// files reads every file that is not ignored, in the order of their paths.
func (k *capturer) files(ctx context.Context) ([]capturedFile, error) {
	root, err := openRetry(atCurrent, k.contents.dir)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(root), k.contents.dir)
	defer dir.Close()
	var files []capturedFile
	var bytes int64
	var failed error
	err = k.contents.each(ctx, func(kind byte, path string, is standing, _ uint8) {
		if failed != nil || is != tracked && is != untracked {
			return
		}
		var f capturedFile
		if f, failed = k.file(int(dir.Fd()), kind, path); failed != nil {
			return
		}
		files = append(files, f)
		if bytes += f.size; len(files)%256 == 0 || f.size > 1<<20 {
			k.progress(teardown.Progress{Step: "saving", Files: int64(len(files)), Bytes: bytes})
		}
		failed = ctx.Err()
	})
	slices.SortFunc(files, func(a, b capturedFile) int { return strings.Compare(a.path, b.path) })
	return files, errors.Join(err, failed)
}

func (k *capturer) file(root int, kind byte, path string) (capturedFile, error) {
	if kind == link {
		target, err := readLink(root, path)
		h := blobHash(k.newHash, int64(len(target)))
		_, _ = io.WriteString(h, target)
		return capturedFile{path: path, mode: linkMode, oid: hex.EncodeToString(h.Sum(nil)), size: int64(len(target))}, changedIfGone(err)
	}
	file, s, err := openRegular(root, path, nil)
	if err != nil {
		return capturedFile{}, changedIfGone(err)
	}
	defer file.Close()
	h := blobHash(k.newHash, s.size)
	if n, err := io.Copy(h, file); err != nil || n != s.size {
		return capturedFile{}, errors.Join(err, errChanged)
	}
	return capturedFile{path: path, mode: k.mode(path, s), oid: hex.EncodeToString(h.Sum(nil)), perm: s.perm & 0o777, size: s.size}, nil
}

func changedIfGone(err error) error {
	for _, sign := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EINVAL, errNotRegular} {
		if errors.Is(err, sign) {
			return errors.Join(errChanged, err)
		}
	}
	return err
}

// mode is that of the disk, unless git was told that the disk's says nothing.
func (k *capturer) mode(path string, s stat) string {
	if k.fileMode {
		if s.perm&0o100 != 0 {
			return executableMode
		}
		return plainMode
	}
	if k.entries[path].mode == executableMode {
		return executableMode
	}
	return plainMode
}

// trees has git name the trees. It writes the trees themselves, too, which hurts
// nobody.
func (k *capturer) trees(ctx context.Context, taken *capture) error {
	temporary, done, err := scratch()
	if err != nil {
		return err
	}
	defer done()
	k.contents.reached("capturing")
	if taken.work, err = k.workTree(ctx, filepath.Join(temporary, "work"), taken.files); err != nil {
		return err
	}
	if taken.index, err = k.indexTree(ctx, filepath.Join(temporary, "index")); err != nil {
		return err
	}
	held, err := listTree(ctx, k.git, taken.index)
	if err != nil {
		return err
	}
	taken.about = k.aboutState(taken, held).format()
	return nil
}

func (k *capturer) workTree(ctx context.Context, index string, files []capturedFile) (string, error) {
	git := *k.git
	git.index = index
	var info strings.Builder
	for _, f := range files {
		info.WriteString(f.mode + " " + f.oid + " 0\t" + f.path + "\x00")
	}
	// A submodule that is not checked out is nothing on disk; its commit is in
	// the index.
	for path := range k.contents.index.gitlinks {
		if isDirectory(filepath.Join(k.contents.dir, path)) {
			info.WriteString(k.entries[path].info())
		}
	}
	if _, err := git.run(ctx, strings.NewReader(info.String()), "update-index", "-z", "--index-info"); err != nil {
		return "", err
	}
	return git.writeTree(ctx)
}

// indexTree has git itself read a copy of the index.
func (k *capturer) indexTree(ctx context.Context, index string) (string, error) {
	content, err := os.ReadFile(filepath.Join(k.place.admin, "index"))
	if err == nil {
		err = os.WriteFile(index, content, 0o600)
	}
	if err := ignoreAbsent(err); err != nil {
		return "", err
	}
	git := *k.git
	git.index = index
	return git.writeTree(ctx)
}

func (g *repositoryGit) writeTree(ctx context.Context) (string, error) {
	// What is missing is looked for before anything is called saved.
	out, err := g.run(ctx, nil, "write-tree", "--missing-ok")
	oid := strings.TrimSpace(out)
	if err == nil && !isOID(oid) {
		err = fmt.Errorf("git write-tree answered %q", out)
	}
	return oid, err
}

// aboutState is what trees cannot say.
func (k *capturer) aboutState(taken *capture, held map[string]treeEntry) savedAbout {
	about := savedAbout{path: taken.path, branch: taken.branch}
	for path, entry := range k.entries {
		if _, found := held[path]; !found {
			about.intents = append(about.intents, intent{mode: entry.mode, path: path})
		}
		if flags := entry.flags(); flags != "" {
			about.flags = append(about.flags, flagged{flags: flags, path: path})
		}
	}
	for _, f := range taken.files {
		if f.mode != linkMode && f.perm != usualPerm(f.mode) {
			about.perms = append(about.perms, permission{perm: f.perm, path: f.path})
		}
	}
	about.sort()
	return about
}

func usualPerm(mode string) uint32 {
	if mode == executableMode {
		return 0o755
	}
	return 0o644
}

// treeEntry is one line of `git ls-tree -r -z`.
type treeEntry struct{ mode, oid string }

// listTree answers the files of a tree.
func listTree(ctx context.Context, git *repositoryGit, treeish string) (map[string]treeEntry, error) {
	out, err := git.run(ctx, nil, "ls-tree", "-r", "-z", "--full-tree", treeish)
	if err != nil {
		return nil, err
	}
	return parseTree(out)
}
