package worktree

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"fmt"
	"hash"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"unwind/teardown"
)

// contents is step 7 of the policy: is everything in the directory also
// somewhere else?
type contents struct {
	git  *repositoryGit
	head string // "" if there is no commit yet
	dir  string
	main string
	// common is the repository's common directory.
	common string
	policy IgnoredPolicy
	tree   *tree
	skip   map[string]bool
	// reached is the engine's.
	reached func(step string)

	progress func(teardown.Progress)
	patience time.Duration
	// rest: whether the tracked files rest is to be found out.
	rest bool
	// resting: nobody had any of them open for writing after it was read.
	resting bool
	// committed waits for what git lists of the commit.
	committed func(alive func()) (string, error)
	// absent waits for which of the commit's objects the repository does not have.
	absent func(alive func()) (map[string]bool, error)
	// again walks the directory again; nil if another look follows.
	again func() (*tree, error)
	// settings are those that decide what git makes of the bytes.
	settings configuration

	index indexList
	// proofs are those of the index's entries.
	proofs  []proof
	tracked trackedChanges
	// unstored are files as the index has them, but of which the repository does
	// not have the content.
	unstored []string
	// untracked and ignored are as git status names them; a directory ends in "/".
	untracked map[string]bool
	ignored   map[string]bool
	// leaned: an ignored file goes because the main checkout has it, too.
	leaned bool
}

// indexList is the real index, without its cached file data.
type indexList struct {
	raw string
	// entries are in the order of their paths, byte by byte.
	entries  []indexEntry
	gitlinks map[string]bool
	// unmerged are the paths with a conflict that is not resolved.
	unmerged []string
}

// trackedChanges are paths by what is wrong with them.
type trackedChanges struct{ modified, staged, hidden []string }

// look compares everything by content. It runs nothing that the repository
// names. An error means that the content is not known.
func (c *contents) look(ctx context.Context) ([]Finding, error) {
	c.reached("comparing")
	if err := c.prove(ctx); err != nil {
		return nil, err
	}
	if err := c.findUnstored(); err != nil {
		return nil, err
	}
	if len(c.unstored) == 0 && c.isCommit() && c.isStill() {
		return nil, nil
	}
	if err := c.compare(ctx); err != nil {
		return nil, err
	}
	if err := c.forgiveLFS(ctx); err != nil {
		return nil, err
	}
	return c.findings(ctx)
}

// findUnstored fills c.unstored: an object id is no content.
func (c *contents) findUnstored() error {
	absent, err := c.absent(c.alive)
	if err != nil || len(absent) == 0 {
		return err
	}
	for i := range c.index.entries {
		if entry := &c.index.entries[i]; c.proofs[i].likeness == identical && absent[entry.oid] {
			c.unstored = append(c.unstored, entry.path)
		}
	}
	return nil
}

func (c *contents) alive() { c.progress(teardown.Progress{Step: "git"}) }

// isCommit reports whether the commit, the index and the directory are the same,
// byte for byte, and nothing else is in the directory. Nothing is left to ask git
// then: neither flags nor settings nor patterns can make a difference.
func (c *contents) isCommit() bool {
	t := c.tree
	if c.head == "" || t.remembered() != len(c.index.entries) ||
		len(t.nested)+len(t.gitDirs)+len(t.mounts)+len(t.unreadable) > 0 {
		return false
	}
	for i := range c.index.entries {
		if !c.proofs[i].as(&c.index.entries[i]) {
			return false
		}
	}
	list, err := c.committed(c.alive)
	if err != nil {
		return false
	}
	for i := range c.index.entries {
		record, rest, found := strings.Cut(list, "\x00")
		if !found || !c.index.entries[i].isListedAs(record) {
			return false
		}
		list = rest
	}
	return list == ""
}

// isStill reports whether the directory is as it was walked, as far as the look
// is the last one.
func (c *contents) isStill() bool {
	if c.again == nil {
		return true
	}
	again, err := c.again()
	return err == nil && again.same(c.tree)
}

// listIndex answers the raw index, without its cached file data.
func listIndex(ctx context.Context, git *repositoryGit) (string, error) {
	return git.run(ctx, nil, "ls-files", "-v", "-s", "-z")
}

// listCommit answers the files of a commit.
func listCommit(ctx context.Context, git *repositoryGit, commit string) (string, error) {
	return git.run(ctx, nil, "ls-tree", "-r", "-z", "--full-tree", commit)
}

// listAbsent answers the objects of a commit's files and directories that the
// repository does not have.
func listAbsent(ctx context.Context, git *repositoryGit, commit string) (map[string]bool, error) {
	out, err := git.run(ctx, nil, "rev-list", "--objects", "--no-walk", "--quiet", "--missing=print", commit)
	if err != nil {
		return nil, err
	}
	absent := map[string]bool{}
	for line := range strings.Lines(out) {
		oid, marked := strings.CutPrefix(strings.TrimSpace(line), "?")
		if !marked || !isOID(oid) {
			return nil, fmt.Errorf("git rev-list answered %q", line)
		}
		absent[oid] = true
	}
	return absent, nil
}

func parseIndex(raw string) (indexList, error) {
	if raw != "" && !strings.HasSuffix(raw, "\x00") {
		return indexList{}, errCutOff
	}
	count := strings.Count(raw, "\x00")
	index := indexList{raw: raw, entries: make([]indexEntry, 0, count), gitlinks: map[string]bool{}}
	for record := range strings.SplitSeq(strings.TrimSuffix(raw, "\x00"), "\x00") {
		if raw == "" {
			break
		}
		entry, err := parseIndexEntry(record)
		if err != nil {
			return indexList{}, err
		}
		if last := len(index.entries) - 1; last >= 0 && index.entries[last].path > entry.path {
			return indexList{}, fmt.Errorf("git ls-files answered %q after %q", entry.path, index.entries[last].path)
		}
		index.entries = append(index.entries, entry)
		if entry.mode == gitlinkMode {
			index.gitlinks[entry.path] = true
		}
		if entry.stage != '0' {
			index.unmerged = append(index.unmerged, entry.path)
		}
	}
	return index, nil
}

// newHash is the hash function of the index's object ids.
func (i indexList) newHash() func() hash.Hash {
	if len(i.entries) > 0 && len(i.entries[0].oid) == 2*sha256.Size {
		return sha256.New
	}
	return sha1.New
}

// at answers the number of a path's last entry.
func (i indexList) at(path string) (number int, found bool) {
	after := sort.Search(len(i.entries), func(n int) bool { return i.entries[n].path > path })
	return after - 1, after > 0 && i.entries[after-1].path == path
}

// find answers the entries of some paths.
func (i indexList) find(paths map[string]bool) []indexEntry {
	var found []indexEntry
	for _, entry := range i.entries {
		if paths[entry.path] {
			found = append(found, entry)
		}
	}
	return found
}

// compare compares the directory with the index. Files whose bytes are not those
// in the index are left to git, which reads them with a copy of the index that
// has no flags, and no data of any other file.
func (c *contents) compare(ctx context.Context) error {
	temporary, done, err := scratch()
	if err != nil {
		return err
	}
	defer done()
	git, settings, err := c.git.isolate(ctx, temporary, c.common, c.head)
	if err != nil {
		return err
	}
	c.settings = settings
	if err := writeIndex(git.index, c.index.entries, c.proofs, settings.newHash()); err != nil {
		return err
	}
	// It runs beside git status, which is the longer of the two.
	base := *git
	base.alive = func() {}
	staged := beside(func() ([]string, error) { return (&contents{git: &base, head: c.head}).stagedOnly(ctx) })
	defer func() { _, _ = staged(func() {}) }()
	// Submodules are judged by the walk: git would run itself in them, under
	// their own configuration.
	out, err := git.run(ctx, nil, "status", "--porcelain=v1", "-z", "--no-renames",
		"--untracked-files=all", "--ignored=matching", "--ignore-submodules=all")
	if err != nil {
		return err
	}
	entries, err := parseStatus(out)
	if err != nil {
		return err
	}
	c.sort(entries)
	lost, err := c.notReproduced(ctx, git, temporary)
	for _, path := range lost {
		c.addChanged(statusEntry{tree: 'M', path: path})
	}
	if err != nil {
		return err
	}
	c.tracked.staged, err = staged(git.alive)
	return err
}

// stagedOnly answers what the index holds and the commit does not, by content.
func (c *contents) stagedOnly(ctx context.Context) ([]string, error) {
	base, err := c.base(ctx)
	if err != nil {
		return nil, err
	}
	out, err := c.git.run(ctx, nil, "diff-index", "--cached", "--no-renames", "--ignore-submodules=none", "-z", base, "--")
	if err != nil {
		return nil, err
	}
	return parseRawDiff(out)
}

// base is what the index is compared with: the commit, or nothing.
func (c *contents) base(ctx context.Context) (string, error) {
	if c.head != "" {
		return c.head, nil
	}
	out, err := c.git.run(ctx, strings.NewReader(""), "hash-object", "-t", "tree", "--stdin")
	return strings.TrimSpace(out), err
}

func (c *contents) sort(entries []statusEntry) {
	fileMode := c.settings.fileMode()
	c.untracked, c.ignored = map[string]bool{}, map[string]bool{}
	for _, entry := range entries {
		switch {
		case c.skipped(entry.path):
		case entry.untracked():
			c.untracked[entry.path] = true
		case entry.ignored():
			c.ignored[entry.path] = true
		case entry.unmerged():
			c.tracked.modified = append(c.tracked.modified, entry.path)
		case entry.tree == 'M' && c.isPhantom(entry.path, fileMode):
		case entry.tree != ' ':
			c.addChanged(entry)
		}
	}
}

// isPhantom: git would store the file in another form, but the bytes on disk are
// those in the index.
func (c *contents) isPhantom(path string, fileMode bool) bool {
	i, found := c.index.at(path)
	if !found {
		return false
	}
	p, entry := &c.proofs[i], &c.index.entries[i]
	return p.likeness == identical && entry.mode != linkMode && (!fileMode || p.as(entry))
}

func (c *contents) addChanged(entry statusEntry) {
	var was indexEntry
	if i, found := c.index.at(entry.path); found {
		was = c.index.entries[i]
	}
	switch {
	case entry.tree == 'D' && was.skipWorktree():
		// It was never checked out.
	case was.hidden():
		c.tracked.hidden = append(c.tracked.hidden, entry.path)
	default:
		c.tracked.modified = append(c.tracked.modified, entry.path)
	}
}

func (c *contents) skipped(path string) bool {
	path = strings.TrimSuffix(path, "/")
	for ; path != "." && path != "/"; path = filepath.Dir(path) {
		if c.skip[path] {
			return true
		}
	}
	return false
}

func (c *contents) findings(ctx context.Context) ([]Finding, error) {
	var all []Finding
	add := func(code teardown.Code, note string, paths []string) {
		if len(paths) > 0 {
			all = append(all, finding(code, note, paths...))
		}
	}
	rest, err := c.reconcile(ctx)
	if err != nil {
		return nil, err
	}
	add(teardown.CodeModified, "tracked files were changed and not committed; commit or restore them", append(c.tracked.modified, rest.replaced...))
	add(teardown.CodeModified, "the repository has lost the content of these tracked files; `git hash-object -w` stores it again", c.unstored)
	add(teardown.CodeStaged, "changes are staged and not committed; commit or unstage them", c.tracked.staged)
	add(teardown.CodeUntracked, "files are not tracked by git; commit, move or delete them", rest.untracked)
	add(teardown.CodeIgnoredPrecious, "git ignores these files and cannot bring them back; move or delete them", rest.precious)
	add(teardown.CodeHiddenChanges, "files were changed that git was told not to look at; see `git update-index --no-assume-unchanged` and `--no-skip-worktree`", c.tracked.hidden)
	add(teardown.CodeHiddenData, "files lie where git does not look; move or delete them", rest.hidden)
	return all, nil
}
