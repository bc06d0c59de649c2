package worktree

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"unwind/teardown"
)

// tree is what one walk of a worktree found. It keeps the name of every file,
// one string for each directory, so that it stays small.
type tree struct {
	nodes        []node // parents before their children; the first is the root
	files, bytes int64
	// entries counts everything, directories included.
	entries int64

	nested      []string // directories with a .git, or that are a git directory
	gitLike     []int32  // nodes that look like a git directory, until judgeGitLike
	gitDirs     []string // directories named .git that hold no repository
	mounts      []string
	unremovable []string
	unreadable  []string
	// blocking are files that git would open and wait for.
	blocking []string
}

// node is one directory of a tree.
type node struct {
	parent int32
	name   string
	id     fileID
	// stamp is the directory's own, from before it was read.
	stamp stamp
	// entries are the regular files and links in it, each as a kind byte (file
	// or link), the name and NUL; stamps are theirs.
	entries []byte
	stamps  []stamp
}

// each calls visit for every entry of the directory.
func (n *node) each(visit func(kind byte, name string)) {
	for rest := n.entries; len(rest) > 0; {
		end := bytes.IndexByte(rest, 0)
		visit(rest[0], string(rest[1:end]))
		rest = rest[end+1:]
	}
}

const (
	file byte = 'f'
	link byte = 'l'
)

// remembered counts the files and links.
func (t *tree) remembered() int {
	count := 0
	for i := range t.nodes {
		count += len(t.nodes[i].stamps)
	}
	return count
}

// path answers the path of a directory, relative to the root, "" for the root.
func (t *tree) path(i int32) string {
	if i <= 0 {
		return ""
	}
	return join(t.path(t.nodes[i].parent), t.nodes[i].name)
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// walker is one walk.
type walker struct {
	ctx      context.Context
	progress func(teardown.Progress)
	// skip are directories, relative to the root, that count as gone already.
	skip map[string]bool
	tree *tree
	descent
	// foreign counts the levels since the outermost nested repository: what is
	// in it is counted but not remembered.
	foreign int
	dev     uint64
	euid    int
	visits  *atomic.Int64
	// mounted are the mount points, as far as the system lists them.
	mounted map[string]bool
}

// walk gives up a walk that the file system does not let go on.
func (e *Engine) walk(ctx context.Context, root string, want fileID, skip map[string]bool, hooks Hooks) (*tree, error) {
	var visits atomic.Int64
	return answered(ctx, e.patience(), visits.Load, func() (*tree, error) { return walk(ctx, root, want, skip, &visits, hooks.report) })
}

// walk is step 6 of the policy. An error means that the walk did not come to an
// end; what could not be read on the way is in the tree.
func walk(ctx context.Context, root string, want fileID, skip map[string]bool, visits *atomic.Int64, progress func(teardown.Progress)) (*tree, error) {
	w := &walker{ctx: ctx, progress: progress, skip: skip, visits: visits, tree: &tree{}, euid: os.Geteuid(), mounted: map[string]bool{}}
	defer w.close()
	// What is mounted may not answer, so it is known before it is met.
	points, err := mountsBelow(root)
	if err != nil {
		return nil, err
	}
	for _, point := range points {
		w.mounted[strings.TrimPrefix(strings.TrimPrefix(point, root), "/")] = true
	}
	if err := w.start(unix.AT_FDCWD, root); err != nil {
		return nil, err
	}
	if w.top().id != want {
		return nil, errChanged
	}
	self, err := fdStat(w.fd())
	if err != nil {
		return nil, err
	}
	w.dev = want.dev
	w.tree.nodes = append(w.tree.nodes, node{id: want, stamp: self.stamp()})
	w.checkRoot(root)
	w.read()
	for len(w.levels) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		name, more := w.next()
		if more {
			w.visit(name)
			continue
		}
		if w.foreign > 0 {
			w.foreign--
		}
		if err := w.leave(); err != nil {
			return nil, err
		}
	}
	w.report()
	return w.tree, w.addMounts(root)
}

// addMounts adds what was mounted meanwhile, or where the walk did not come.
func (w *walker) addMounts(root string) error {
	points, err := mountsBelow(root)
	for _, point := range points {
		name := display(strings.TrimPrefix(strings.TrimPrefix(point, root), "/"))
		if !slices.Contains(w.tree.mounts, name) {
			w.tree.mounts = append(w.tree.mounts, name)
		}
	}
	return err
}

// checkRoot finds what keeps the directory itself from being moved or deleted.
func (w *walker) checkRoot(root string) {
	parent := filepath.Dir(root)
	above, err := statAt(unix.AT_FDCWD, parent)
	if err != nil {
		w.tree.unreadable = append(w.tree.unreadable, parent)
		return
	}
	self, err := statAt(unix.AT_FDCWD, root)
	if err != nil {
		w.tree.unreadable = append(w.tree.unreadable, root)
		return
	}
	if self.mount || self.id.dev != above.id.dev {
		w.tree.mounts = append(w.tree.mounts, ".")
	}
	sticky := above.perm&unix.S_ISVTX != 0 && !w.owns(above) && !w.owns(self)
	if err := unix.Access(parent, unix.W_OK|unix.X_OK); err != nil || sticky || above.frozen || self.frozen {
		w.tree.unremovable = append(w.tree.unremovable, ".")
	}
}

func (w *walker) owns(s stat) bool { return w.euid == 0 || int(s.uid) == w.euid }

// here is the path of the top level, relative to the root.
func (w *walker) here() string {
	var names []string
	for _, level := range w.levels[1:] {
		names = append(names, level.name)
	}
	return strings.Join(names, "/")
}

// read lists the directory that was just entered and remembers its files.
func (w *walker) read() {
	if err := w.list(); err != nil {
		w.tree.unreadable = append(w.tree.unreadable, display(w.here()))
		return
	}
	if w.foreign == 0 && len(w.levels) > 1 {
		nested, gitLike := w.isRepository()
		switch {
		case nested:
			w.tree.nested = append(w.tree.nested, w.here())
			w.foreign = 1
		case gitLike:
			w.tree.gitLike = append(w.tree.gitLike, w.top().node)
		}
	}
	w.checkEmptiable()
}

// isRepository: the directory holds a .git, or looks like a git directory itself.
func (w *walker) isRepository() (nested, gitLike bool) {
	found := map[string]bool{}
	for _, name := range w.top().names {
		switch name {
		case ".git", "HEAD", "objects", "refs", "commondir":
			found[name] = true
		}
	}
	gitLike = found["HEAD"] && (found["objects"] && found["refs"] || found["commondir"])
	if !found[".git"] {
		return false, gitLike
	}
	s, err := statAt(w.fd(), ".git")
	if err != nil || s.kind != unix.S_IFDIR {
		return true, gitLike
	}
	if w.looksLikeGitDir() {
		return true, gitLike
	}
	w.tree.gitDirs = append(w.tree.gitDirs, join(w.here(), ".git"))
	return false, gitLike
}

// judgeGitLike finds the nested repositories among the directories that look like
// one. One of which the index has every file, as tests have them, is no other than
// the files around it.
func (t *tree) judgeGitLike(index indexList) {
	for _, first := range t.gitLike {
		tracked, end := true, first
		for ; end == first || int(end) < len(t.nodes) && t.nodes[end].parent >= first; end++ {
			path := t.path(end)
			t.nodes[end].each(func(_ byte, name string) {
				_, found := index.at(join(path, name))
				tracked = tracked && found
			})
		}
		if tracked {
			continue
		}
		t.nested = append(t.nested, t.path(first))
		for i := first; i < end; i++ {
			t.nodes[i].entries, t.nodes[i].stamps = nil, nil
		}
	}
	t.gitLike = nil
}

func (w *walker) looksLikeGitDir() bool {
	for _, name := range []string{".git/HEAD", ".git/objects", ".git/refs"} {
		if _, err := statAt(w.fd(), name); err == nil {
			return true
		}
	}
	return false
}

// checkEmptiable: may we delete what is in the directory? Our own we can make
// writable.
func (w *walker) checkEmptiable() {
	s, err := statAt(w.fd(), ".")
	if err != nil || len(w.top().names) == 0 {
		return
	}
	denied := s.frozen
	if int(s.uid) != w.euid {
		denied = denied || unix.Faccessat(w.fd(), ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS) != nil
	}
	if denied {
		w.tree.unremovable = append(w.tree.unremovable, display(w.here()))
	}
	if s.perm&unix.S_ISVTX != 0 && !w.owns(s) {
		w.checkSticky()
	}
}

// checkSticky: in a sticky directory of somebody else only our own entries can
// be deleted.
func (w *walker) checkSticky() {
	for _, name := range w.top().names {
		if s, err := statAt(w.fd(), name); err == nil && !w.owns(s) {
			w.tree.unremovable = append(w.tree.unremovable, join(w.here(), name))
		}
	}
}

func display(relative string) string {
	if relative == "" {
		return "."
	}
	return relative
}

func (w *walker) visit(name string) {
	if w.tree.entries++; w.tree.entries%512 == 0 {
		w.report()
	}
	w.visits.Add(1)
	if len(w.mounted) > 0 {
		if path := join(w.here(), name); w.mounted[path] {
			w.tree.mounts = append(w.tree.mounts, path)
			return
		}
	}
	s, err := statAt(w.fd(), name)
	if errors.Is(err, unix.ENOENT) {
		return
	}
	if err != nil {
		w.tree.unreadable = append(w.tree.unreadable, join(w.here(), name))
		return
	}
	if s.frozen && s.kind != unix.S_IFDIR {
		w.tree.unremovable = append(w.tree.unremovable, join(w.here(), name))
	}
	switch s.kind {
	case unix.S_IFDIR:
		w.descend(name, s)
	case unix.S_IFREG:
		w.tree.files++
		w.tree.bytes += s.size
		if s.mount {
			w.tree.mounts = append(w.tree.mounts, join(w.here(), name))
		}
		w.remember(file, name, s)
	case unix.S_IFLNK:
		w.remember(link, name, s)
	case unix.S_IFIFO, unix.S_IFCHR, unix.S_IFBLK:
		if strings.HasPrefix(name, ".git") {
			w.tree.blocking = append(w.tree.blocking, join(w.here(), name))
		}
	}
}

func (w *walker) descend(name string, s stat) {
	path := join(w.here(), name)
	if w.skip[path] {
		return
	}
	if s.mount || s.id.dev != w.dev {
		w.tree.mounts = append(w.tree.mounts, path)
		return
	}
	parent := w.top().node
	if err := w.enter(name, s.id); err != nil {
		w.tree.unreadable = append(w.tree.unreadable, path)
		return
	}
	if w.foreign > 0 {
		w.foreign++
	} else {
		w.top().node = int32(len(w.tree.nodes))
		w.tree.nodes = append(w.tree.nodes, node{parent: parent, name: name, id: s.id, stamp: s.stamp()})
	}
	w.read()
}

func (w *walker) remember(kind byte, name string, s stat) {
	if w.foreign > 0 || len(w.levels) == 1 && name == ".git" {
		return
	}
	node := &w.tree.nodes[w.top().node]
	node.entries = append(append(append(node.entries, kind), name...), 0)
	node.stamps = append(node.stamps, s.stamp())
}

func (w *walker) report() {
	w.progress(teardown.Progress{Step: "looking", Files: w.tree.files, Bytes: w.tree.bytes})
}
