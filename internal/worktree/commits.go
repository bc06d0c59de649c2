package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ownRefs are the namespaces that each worktree has for itself, and that die
// with it.
var ownRefs = []string{"refs/worktree", "refs/bisect", "refs/rewritten"}

const rescueRefs = "refs/unwind/rescue"

// commits is step 8 of the policy: what does only this worktree's
// administration keep from being collected?
type commits struct {
	git   *repositoryGit
	admin string
	repo  repository
	// branch is the one that is checked out, or was until the worktree was
	// condemned; "" if there is none.
	branch string
}

// anchors is what a worktree's administration points to.
type anchors struct {
	head string
	refs []refTip
	// logged are the commits in its reflogs.
	logged []string
	// rescued are the refs that earlier removals made.
	rescued []refTip
}

// unanchored lists what nothing shared reaches. Other worktrees' HEADs are not
// shared: they may be removed next.
type unanchored struct {
	// tips are reached by HEAD or by a ref of the worktree's own.
	tips []string
	// logged are reached by its reflogs only.
	logged []string
}

func (u unanchored) all() []string { return append(slices.Clone(u.tips), u.logged...) }

// headCommit answers the commit that is checked out in the worktree of an admin
// directory, "" if there is none yet. Git is asked only where the files do not
// say: a packed branch, another kind of reference, a reference store of another
// format.
func headCommit(ctx context.Context, git *repositoryGit, admin, common string) (string, error) {
	if oid := looseHead(admin, common); oid != "" {
		return oid, nil
	}
	out, err := git.run(ctx, nil, "rev-parse", "--verify", "-q", "HEAD")
	if exitedWith(err, 1) {
		return "", nil
	}
	oid := strings.TrimSpace(out)
	if err == nil && !isOID(oid) {
		err = fmt.Errorf("git rev-parse answered %q", out)
	}
	return oid, err
}

// looseHead answers the commit that HEAD names, itself or by a branch that is a
// file; "" if it does not.
func looseHead(admin, common string) string {
	head, err := readSmall(filepath.Join(admin, "HEAD"))
	if err != nil {
		return ""
	}
	if isOID(head) && strings.Trim(head, "0") != "" {
		return head
	}
	branch, isBranch := strings.CutPrefix(head, "ref: refs/heads/")
	if !isBranch {
		return ""
	}
	return looseBranch(common, branch)
}

// looseBranch answers the commit of a branch that is a file, "" if it is not.
func looseBranch(common, branch string) string {
	ref := filepath.Join("refs/heads", branch)
	if branch == "" || !filepath.IsLocal(branch) || filepath.Clean(branch) != branch {
		return ""
	}
	tip, err := readSmall(filepath.Join(common, ref))
	if err != nil || !isOID(tip) || strings.Trim(tip, "0") == "" {
		return ""
	}
	return tip
}

// branchOf answers the short name of the branch that is checked out.
func branchOf(admin string) string {
	head, err := readSmall(filepath.Join(admin, "HEAD"))
	if err != nil {
		return ""
	}
	branch, _ := strings.CutPrefix(head, "ref: refs/heads/")
	if branch == head {
		return ""
	}
	return branch
}

// look answers what would be lost with the administration.
func (c commits) look(ctx context.Context) (unanchored, error) {
	from, err := c.anchors(ctx)
	if err != nil {
		return unanchored{}, err
	}
	var found unanchored
	var tips []string
	if from.head != "" {
		tips = append(tips, from.head)
	}
	rescued := map[string]bool{}
	for _, ref := range from.rescued {
		rescued[ref.oid] = true
	}
	for _, ref := range from.refs {
		if ref.kind == "commit" {
			tips = append(tips, ref.oid)
		} else if !rescued[ref.oid] {
			found.tips = append(found.tips, ref.oid)
		}
	}
	if len(from.refs) == 0 && c.keptByBranch(from) {
		return found, nil
	}
	everything, err := c.unreached(ctx, append(slices.Clone(tips), from.logged...), nil, "--max-count=1")
	if err != nil || len(everything) == 0 {
		return found, err
	}
	only, err := c.unreached(ctx, tips, nil)
	if err != nil {
		return unanchored{}, err
	}
	found.tips = append(found.tips, only...)
	shared, err := sharedReflogs(c.repo.common)
	if err != nil {
		return unanchored{}, err
	}
	found.logged, err = c.unreached(ctx, from.logged, append(shared, tips...))
	return found, err
}

// keptByBranch reports whether the worktree's branch and the branch's reflog,
// which both stay, name all that the administration does. So it is wherever
// commits were made only on the branch for which the worktree was added, and git
// need not be asked.
func (c commits) keptByBranch(from anchors) bool {
	ref := filepath.Join("refs/heads", c.branch)
	if from.head == "" || looseBranch(c.repo.common, c.branch) != from.head || !isItself(filepath.Join(c.repo.common, ref)) {
		return false
	}
	kept := []string{from.head}
	if log := filepath.Join(c.repo.common, "logs", ref); isItself(log) {
		text, err := os.ReadFile(log)
		if err != nil {
			return false
		}
		kept = append(kept, reflogOIDs(string(text))...)
	}
	for _, oid := range from.logged {
		if !slices.Contains(kept, oid) {
			return false
		}
	}
	return true
}

// isItself reports whether a path, absolute and clean, leads through no link.
func isItself(path string) bool {
	resolved, err := filepath.EvalSymlinks(path)
	return err == nil && resolved == path
}

func (c commits) anchors(ctx context.Context) (anchors, error) {
	var from anchors
	var err error
	if from.head, err = headCommit(ctx, c.git, c.admin, c.repo.common); err != nil {
		return anchors{}, err
	}
	own, err := c.hasOwnRefs()
	if err != nil {
		return anchors{}, err
	}
	if !own {
		from.logged, err = c.ownReflogs(ctx)
		return from, err
	}
	args := append([]string{"for-each-ref", "--format=%(objecttype) %(objectname) %(refname)", rescueRefs}, ownRefs...)
	out, err := c.git.run(ctx, nil, args...)
	if err != nil {
		return anchors{}, err
	}
	tips, err := parseRefTips(out)
	if err != nil {
		return anchors{}, err
	}
	for _, tip := range tips {
		if strings.HasPrefix(tip.name, rescueRefs+"/") {
			from.rescued = append(from.rescued, tip)
		} else {
			from.refs = append(from.refs, tip)
		}
	}
	from.logged, err = c.ownReflogs(ctx)
	return from, err
}

// hasOwnRefs reports whether the worktree may have refs of its own: each is a
// file, for git packs shared refs only.
func (c commits) hasOwnRefs() (bool, error) {
	if _, err := os.Lstat(filepath.Join(c.admin, "reftable")); err == nil {
		return true, nil
	}
	found := false
	err := filepath.WalkDir(filepath.Join(c.admin, "refs"), func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return ignoreAbsent(err)
		}
		if !entry.IsDir() {
			found = true
			return fs.SkipAll
		}
		return nil
	})
	return found, err
}

func (c commits) ownReflogs(ctx context.Context) ([]string, error) {
	oids, err := reflogsBelow(filepath.Join(c.admin, "logs"), nil)
	if err != nil {
		return nil, err
	}
	if original, err := readSmall(filepath.Join(c.admin, "ORIG_HEAD")); err == nil && isOID(original) {
		oids = append(oids, original)
	}
	if _, err := os.Lstat(filepath.Join(c.admin, "reftable")); err == nil {
		out, err := c.git.run(ctx, nil, "rev-list", "--walk-reflogs", "HEAD")
		if err != nil {
			return nil, err
		}
		oids = append(oids, strings.Fields(out)...)
	}
	slices.Sort(oids)
	return slices.Compact(oids), nil
}

// unreached answers the fewest commits that reach everything that the given
// ones reach, and no shared ref nor any of known does.
func (c commits) unreached(ctx context.Context, from, known []string, options ...string) ([]string, error) {
	if len(from) == 0 {
		return nil, nil
	}
	var stdin strings.Builder
	for _, oid := range from {
		stdin.WriteString(oid + "\n")
	}
	for _, oid := range known {
		stdin.WriteString("^" + oid + "\n")
	}
	args := append([]string{"rev-list", "--topo-order", "--parents", "--ignore-missing"}, options...)
	args = append(args, "--stdin", "--not")
	for _, own := range ownRefs {
		args = append(args, "--exclude="+own+"/*")
	}
	// A symbolic ref anchors nothing by itself, and one that leads to HEAD or to
	// refs of this worktree's own dies with it.
	symbolic, err := c.symbolicRefs(ctx)
	if err != nil {
		return nil, err
	}
	for _, ref := range symbolic {
		args = append(args, "--exclude="+ref)
	}
	out, err := c.git.run(ctx, strings.NewReader(stdin.String()), append(args, "--glob=refs/*")...)
	if err != nil {
		return nil, err
	}
	return parseTips(out)
}

// symbolicRefs lists the shared refs that only name another one. They are always
// loose files: packed-refs cannot hold them.
func (c commits) symbolicRefs(ctx context.Context) ([]string, error) {
	if _, err := os.Lstat(filepath.Join(c.repo.common, "reftable")); err == nil {
		return c.symbolicRefsByGit(ctx)
	}
	var symbolic []string
	err := filepath.WalkDir(filepath.Join(c.repo.common, "refs"), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !entry.Type().IsRegular():
			// Git follows a link among its refs, wherever it leads, to a directory, too.
			if entry.Type()&fs.ModeSymlink != 0 {
				ref := refAt(c.repo.common, path)
				symbolic = append(symbolic, ref, ref+"/*")
			}
			return nil
		}
		text, err := readSmall(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if strings.HasPrefix(text, "ref:") {
			symbolic = append(symbolic, refAt(c.repo.common, path))
		}
		return err
	})
	return symbolic, err
}

func refAt(common, path string) string {
	return strings.TrimPrefix(path, common+"/")
}

func (c commits) symbolicRefsByGit(ctx context.Context) ([]string, error) {
	out, err := c.git.run(ctx, nil, "for-each-ref", "--format=%(symref) %(refname)")
	if err != nil {
		return nil, err
	}
	var symbolic []string
	for line := range strings.Lines(out) {
		if target, ref, found := strings.Cut(strings.TrimSpace(line), " "); found && target != "" {
			symbolic = append(symbolic, ref)
		}
	}
	return symbolic, nil
}

func sharedReflogs(common string) ([]string, error) {
	logs := filepath.Join(common, "logs")
	own := map[string]bool{}
	for _, name := range ownRefs {
		own[filepath.Join(logs, name)] = true
	}
	return reflogsBelow(filepath.Join(logs, "refs"), own)
}

func reflogsBelow(dir string, skip map[string]bool) ([]string, error) {
	var oids []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case entry.IsDir() && skip[path]:
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		oids = append(oids, reflogOIDs(string(text))...)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	slices.Sort(oids)
	return slices.Compact(oids), err
}

// rescue makes a ref for each object id. The repository lock is held.
func (c commits) rescue(ctx context.Context, name string, oids []string) ([]string, error) {
	if len(oids) == 0 {
		return nil, nil
	}
	prefix := rescueRefs + "/" + name + "/"
	out, err := c.git.run(ctx, nil, "for-each-ref", "--format=%(objecttype) %(objectname) %(refname)", prefix)
	if err != nil {
		return nil, err
	}
	existing, err := parseRefTips(out)
	if err != nil {
		return nil, err
	}
	last := 0
	for _, ref := range existing {
		if n, err := strconv.Atoi(strings.TrimPrefix(ref.name, prefix)); err == nil {
			last = max(last, n)
		}
	}
	var made []string
	var commands strings.Builder
	for i, oid := range oids {
		ref := prefix + strconv.Itoa(last+1+i)
		made = append(made, ref)
		fmt.Fprintf(&commands, "create %s %s\n", ref, oid)
	}
	if _, err := c.git.run(ctx, strings.NewReader(commands.String()), "update-ref", "--stdin"); err != nil {
		return nil, err
	}
	return made, nil
}
