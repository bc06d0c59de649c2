package worktree

import (
	"context"
	"io"
	"iter"
	"path/filepath"
	"strings"

	"unwind/teardown"
)

// contents is step 7 of the policy: is everything in the directory also
// somewhere else?
type contents struct {
	git    *repositoryGit
	head   string // "" if there is no commit yet
	dir    string
	main   string
	policy IgnoredPolicy
	tree   *tree
	skip   map[string]bool
	// reached is the engine's.
	reached func(step string)

	index   indexList
	tracked trackedChanges
	// untracked and ignored are as git status names them; a directory ends in "/".
	untracked map[string]bool
	ignored   map[string]bool
}

// indexList is the real index, without its cached file data.
type indexList struct {
	raw      string
	tags     map[string]byte
	gitlinks map[string]bool
	// unmerged are the paths with a conflict that is not resolved.
	unmerged []string
}

// trackedChanges are paths by what is wrong with them.
type trackedChanges struct{ modified, staged, hidden []string }

// look compares everything by content. It runs nothing that the repository
// names. An error means that the content is not known.
func (c *contents) look(ctx context.Context) ([]Finding, error) {
	if err := c.git.neutralizeFilters(ctx); err != nil {
		return nil, err
	}
	if err := c.readIndex(ctx); err != nil {
		return nil, err
	}
	if err := c.compare(ctx); err != nil {
		return nil, err
	}
	if err := c.forgiveLFS(ctx); err != nil {
		return nil, err
	}
	return c.findings(ctx)
}

func (c *contents) readIndex(ctx context.Context) error {
	raw, err := c.git.run(ctx, nil, "ls-files", "-v", "-s", "-z")
	if err != nil {
		return err
	}
	all, err := records(raw)
	if err != nil {
		return err
	}
	c.index = indexList{raw: raw, tags: make(map[string]byte, len(all)), gitlinks: map[string]bool{}}
	for _, record := range all {
		entry, err := parseIndexEntry(record)
		if err != nil {
			return err
		}
		c.index.tags[entry.path] = entry.tag
		if entry.mode == gitlinkMode {
			c.index.gitlinks[entry.path] = true
		}
		if entry.stage != '0' {
			c.index.unmerged = append(c.index.unmerged, entry.path)
		}
	}
	return nil
}

// all goes through the entries.
func (i indexList) all() iter.Seq[indexEntry] {
	return func(yield func(indexEntry) bool) {
		for record := range strings.SplitSeq(i.raw, "\x00") {
			if entry, err := parseIndexEntry(record); err == nil && !yield(entry) {
				return
			}
		}
	}
}

// find answers the entries of some paths.
func (i indexList) find(paths map[string]bool) []indexEntry {
	var found []indexEntry
	for entry := range i.all() {
		if paths[entry.path] {
			found = append(found, entry)
		}
	}
	return found
}

// info is the index as `git update-index -z --index-info` reads it: ls-files'
// records without their tags.
func (i indexList) info() io.Reader {
	var info strings.Builder
	info.Grow(len(i.raw))
	for record := range strings.SplitSeq(i.raw, "\x00") {
		if len(record) > 2 {
			info.WriteString(record[2:])
			info.WriteByte(0)
		}
	}
	return strings.NewReader(info.String())
}

// compare has git compare the directory with a copy of the index that holds no
// file data and no flags, so that git reads every file.
func (c *contents) compare(ctx context.Context) error {
	temporary, done, err := scratch()
	if err != nil {
		return err
	}
	defer done()
	bare := *c.git
	bare.index = filepath.Join(temporary, "index")
	c.reached("comparing")
	if _, err := bare.run(ctx, c.index.info(), "update-index", "-z", "--index-info"); err != nil {
		return err
	}
	staged := *c
	staged.git = &bare
	if c.tracked.staged, err = staged.stagedOnly(ctx); err != nil {
		return err
	}
	// Submodules are judged by the walk: git would run itself in them, under
	// their own configuration.
	out, err := bare.run(ctx, nil, "status", "--porcelain=v1", "-z", "--no-renames",
		"--untracked-files=all", "--ignored=matching", "--ignore-submodules=all")
	if err != nil {
		return err
	}
	entries, err := parseStatus(out)
	if err != nil {
		return err
	}
	c.sort(entries)
	return nil
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
		case entry.tree != ' ':
			c.addChanged(entry)
		}
	}
}

func (c *contents) addChanged(entry statusEntry) {
	was := indexEntry{tag: c.index.tags[entry.path]}
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
	add(teardown.CodeStaged, "changes are staged and not committed; commit or unstage them", c.tracked.staged)
	add(teardown.CodeUntracked, "files are not tracked by git; commit, move or delete them", rest.untracked)
	add(teardown.CodeIgnoredPrecious, "git ignores these files and cannot bring them back; move or delete them", rest.precious)
	add(teardown.CodeHiddenChanges, "files were changed that git was told not to look at; see `git update-index --no-assume-unchanged` and `--no-skip-worktree`", c.tracked.hidden)
	add(teardown.CodeHiddenData, "files lie where git does not look; move or delete them", rest.hidden)
	return all, nil
}
