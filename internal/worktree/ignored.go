package worktree

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"unwind/teardown"
)

// regenerable are names of directories whose content a tool makes again. What
// git ignores below one of them is not precious.
var regenerable = map[string]bool{
	"node_modules": true, "bower_components": true, "jspm_packages": true, ".pnpm-store": true,
	"__pycache__": true, ".venv": true, "venv": true, ".tox": true, ".nox": true, ".eggs": true,
	".pytest_cache": true, ".mypy_cache": true, ".ruff_cache": true, ".hypothesis": true, ".ipynb_checkpoints": true,
	"build": true, "dist": true, "out": true, "target": true, "_build": true, "obj": true,
	".next": true, ".nuxt": true, ".svelte-kit": true, ".astro": true, ".angular": true, ".output": true,
	".turbo": true, ".parcel-cache": true, ".vite": true, ".cache": true, ".nyc_output": true,
	"coverage": true, "htmlcov": true, ".gradle": true, ".kotlin": true, ".dart_tool": true,
	"DerivedData": true, "Pods": true, "CMakeFiles": true, ".terraform": true,
	"elm-stuff": true, ".stack-work": true, "dist-newstyle": true, "zig-cache": true, ".zig-cache": true, "zig-out": true,
}

// leftovers are the files that no commit holds, by what git says about them.
type leftovers struct {
	untracked, precious, hidden []string
	// replaced are files where the index has a submodule. Git was told not to
	// look at those.
	replaced []string
}

// What is known of a directory and holds for all below it.
const (
	belowIgnored = 1 << iota
	belowRegenerable
	belowUntracked
)

// standing is what git says about one file.
type standing uint8

const (
	unnamed standing = iota
	tracked
	untracked
	ignored
)

// each calls visit for every file and link of the walk.
func (c *contents) each(ctx context.Context, visit func(kind byte, path string, is standing, known uint8)) error {
	known := make([]uint8, len(c.tree.nodes))
	for i := range c.tree.nodes {
		if err := ctx.Err(); err != nil {
			return err
		}
		dir := c.tree.path(int32(i))
		known[i] = c.know(i, dir, known)
		c.tree.nodes[i].each(func(kind byte, name string) {
			path := join(dir, name)
			is := unnamed
			switch {
			case c.isTracked(path):
				is = tracked
			case known[i]&belowUntracked != 0, c.untracked[path]:
				is = untracked
			case known[i]&belowIgnored != 0, c.ignored[path]:
				is = ignored
			}
			visit(kind, path, is, known[i])
		})
	}
	return nil
}

func (c *contents) isTracked(path string) bool {
	_, found := c.index.at(path)
	return found
}

// reconcile goes through all files of the walk: a file that git named in no
// list is hidden data.
func (c *contents) reconcile(ctx context.Context) (leftovers, error) {
	var left leftovers
	for path := range c.untracked {
		if !slices.Contains(c.tree.nested, strings.TrimSuffix(path, "/")) {
			left.untracked = append(left.untracked, path)
		}
	}
	slices.Sort(left.untracked)
	main := openMain(c.main)
	defer main.close()
	walked := map[string]bool{}
	err := c.each(ctx, func(kind byte, path string, is standing, known uint8) {
		if c.ignored[path] {
			walked[path] = true
		}
		switch {
		case is == tracked && c.index.gitlinks[path]:
			left.replaced = append(left.replaced, path)
		case is == ignored && c.precious(ctx, kind, path, known, main):
			left.precious = append(left.precious, path)
		case is == unnamed && kind == file:
			left.hidden = append(left.hidden, path)
		}
	})
	left.precious = append(left.precious, c.appeared(walked)...)
	slices.Sort(left.precious)
	slices.Sort(left.hidden)
	return left, err
}

// appeared answers the ignored files and directories that git saw and the walk
// before it did not.
func (c *contents) appeared(walked map[string]bool) []string {
	if c.policy == IgnoredDiscard {
		return nil
	}
	for i := range c.tree.nodes {
		walked[c.tree.path(int32(i))+"/"] = true
	}
	for _, known := range slices.Concat(c.tree.nested, c.tree.gitDirs, c.tree.mounts, c.tree.unreadable) {
		walked[known], walked[known+"/"] = true, true
	}
	var late []string
	for path := range c.ignored {
		if !walked[path] && (c.policy == IgnoredPreserve || !belowRegenerableName(path)) {
			late = append(late, path)
		}
	}
	return late
}

func belowRegenerableName(path string) bool {
	names := strings.Split(path, "/")
	return slices.ContainsFunc(names[:len(names)-1], func(name string) bool { return regenerable[name] })
}

func (c *contents) know(i int, dir string, known []uint8) uint8 {
	if i == 0 {
		return 0
	}
	node := c.tree.nodes[i]
	state := known[node.parent]
	if c.ignored[dir+"/"] {
		state |= belowIgnored
	}
	if c.untracked[dir+"/"] {
		state |= belowUntracked
	}
	if regenerable[node.name] {
		state |= belowRegenerable
	}
	return state
}

// precious is the policy for one ignored file or link.
func (c *contents) precious(ctx context.Context, kind byte, path string, known uint8, main mainCheckout) bool {
	switch c.policy {
	case IgnoredDiscard:
		return false
	case IgnoredPreserve:
		return true
	}
	if kind != file || known&belowRegenerable != 0 {
		return false
	}
	equal := main.equals(ctx, c.dir, path, c.progress)
	c.leaned = c.leaned || equal
	return !equal
}

// mainCheckout is the repository's main working tree, where a file of a
// worktree may have been copied from.
type mainCheckout struct{ dir *os.File }

func openMain(path string) mainCheckout {
	if path == "" {
		return mainCheckout{}
	}
	fd, err := openRetry(atCurrent, path)
	if err != nil {
		return mainCheckout{}
	}
	return mainCheckout{os.NewFile(uintptr(fd), path)}
}

func (m mainCheckout) close() {
	if m.dir != nil {
		_ = m.dir.Close()
	}
}

var errOtherTree = errors.New("it lies in another working tree")

// equals compares a file of the worktree with the main checkout's at the same
// path. A file that is reached over a link, or that lies in a working tree
// inside the main checkout, is not the main checkout's: it could be the very
// file that is to be deleted.
func (m mainCheckout) equals(ctx context.Context, worktree, path string, progress func(teardown.Progress)) bool {
	if m.dir == nil {
		return false
	}
	root, err := openRetry(atCurrent, worktree)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(root) }()
	ours, our, err := openRegular(root, path, nil)
	if err != nil {
		return false
	}
	defer ours.Close()
	theirs, their, err := openRegular(int(m.dir.Fd()), path, func(dir int) error {
		if _, err := statAt(dir, ".git"); !errors.Is(err, unix.ENOENT) {
			return errOtherTree
		}
		return nil
	})
	if err != nil {
		return false
	}
	defer theirs.Close()
	if our.size != their.size || onlyCopy(ours, theirs) {
		return false
	}
	same, err := sameContent(ctx, ours, theirs, progress)
	return same && err == nil
}

// onlyCopy reports whether two files are one, under one name: a bind mount shows
// it in two places, and it is gone from both with the worktree.
func onlyCopy(a, b *os.File) bool {
	one, err := a.Stat()
	other, otherErr := b.Stat()
	if err != nil || otherErr != nil {
		return true
	}
	links, ok := one.Sys().(*syscall.Stat_t)
	return os.SameFile(one, other) && (!ok || links.Nlink < 2)
}
