package resource

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"unwind/teardown"
)

// place is where a resource is, by its path alone.
type place struct {
	kind     string
	path     string
	root     string
	relative string // below root, at least one component
	// protected is what may be neither the resource nor on the way to it.
	protected []fs.FileInfo
}

// locate looks at the resource's words only, not at what is there.
func (c Cleaner) locate(kind, path string) (place, error) {
	switch kind {
	case teardown.ResourceFile, teardown.ResourceDir, teardown.ResourceFIFO, teardown.ResourceSecret:
	default:
		return place{}, &teardown.Error{Code: teardown.CodeInvalidManifest, Message: fmt.Sprintf(
			"%q is not a kind of resource; use file, dir, fifo or secret", kind)}
	}
	if !utf8.ValidString(path) {
		return place{}, &teardown.Error{Code: teardown.CodePathNotUTF8, Message: fmt.Sprintf(
			"the path of the resource %q is not UTF-8; give the file another name", path)}
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
		return place{}, &teardown.Error{Code: teardown.CodeInvalidManifest, Message: fmt.Sprintf(
			"the path of the resource %q is not absolute and clean; write it without '.', '..' and superfluous slashes", path)}
	}
	root, relative := "", ""
	for _, candidate := range c.Roots {
		if rest, below := cutDir(path, candidate); below && len(candidate) > len(root) {
			root, relative = candidate, rest
		}
	}
	for _, protected := range c.Protected {
		if _, inside := cutDir(path, protected); inside {
			return place{}, refused(teardown.CodeUnsafeTarget, path, fmt.Sprintf("it is inside %s, which is never removed", protected))
		}
	}
	for _, kept := range c.kept() {
		if _, contains := cutDir(kept, path); contains || kept == path {
			return place{}, refused(teardown.CodeUnsafeTarget, path, fmt.Sprintf("it is or contains %s, which is never removed", kept))
		}
	}
	if relative == "" {
		return place{}, refused(teardown.CodeOutsideRoots, path, fmt.Sprintf(
			"it is not below a root (%s); see UNWIND_ROOTS", strings.Join(c.Roots, ", ")))
	}
	for _, component := range strings.Split(relative, "/") {
		if isGitDir(component) {
			return place{}, refused(teardown.CodeUnsafeTarget, path, "it belongs to a git repository's own files")
		}
	}
	return place{kind: kind, path: path, root: root, relative: relative, protected: identities(c.Protected)}, nil
}

// cutDir returns what of path is below dir.
func cutDir(path, dir string) (relative string, below bool) {
	return strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// kept lists what is never removed.
func (c Cleaner) kept() []string {
	kept := append(append([]string{}, c.Roots...), c.Protected...)
	if c.Home != "" {
		kept = append(kept, c.Home)
	}
	return kept
}

const gitDir = ".git"

// bare is what a repository without a working tree is known by.
var bare = [3]string{"HEAD", "objects", "refs"}

// Case is ignored because a file system may ignore it.
func isGitDir(name string) bool { return strings.EqualFold(name, gitDir) }

// openParent opens the directory that holds the resource. It answers nil if a
// component is missing or is no directory, for then the resource is not there.
func (p place) openParent() (*os.Root, error) {
	dir, err := p.openRoot()
	if err != nil {
		return nil, err
	}
	at := p.root
	if err := p.passProtected(dir, at); err != nil {
		_ = dir.Close()
		return nil, err
	}
	components := strings.Split(p.relative, "/")
	for _, name := range components[:len(components)-1] {
		at = filepath.Join(at, name)
		next, err := p.step(dir, name, at)
		_ = dir.Close()
		if err != nil || next == nil {
			return nil, err
		}
		dir = next
		if err := p.pass(dir, at); err != nil {
			_ = dir.Close()
			return nil, err
		}
	}
	return dir, nil
}

// pass refuses a directory on the way that nothing may be taken out of. A root
// may be a repository itself: many keep their home in one.
func (p place) pass(dir *os.Root, at string) error {
	if err := p.passProtected(dir, at); err != nil {
		return err
	}
	git, err := isGit(dir)
	if err != nil {
		return failed(at, err)
	}
	if git != "" {
		return refused(teardown.CodeNestedRepository, p.path, fmt.Sprintf(
			"it lies inside the git %s %s; resources lie outside of worktrees and repositories", git, at))
	}
	return nil
}

func (p place) passProtected(dir *os.Root, at string) error {
	info, err := dir.Stat(".")
	if err != nil {
		return failed(at, err)
	}
	if isOneOf(p.protected, info) {
		return refused(teardown.CodeUnsafeTarget, p.path, fmt.Sprintf("it is inside %s, which is never removed", at))
	}
	return nil
}

// isGit says what of git's a directory is; "" if nothing. It looks names up and
// does not list them, for a directory on the way may be large, or not readable.
func isGit(dir *os.Root) (what string, err error) {
	has := func(name string) bool {
		_, lookErr := dir.Lstat(name)
		if lookErr != nil && !errors.Is(lookErr, fs.ErrNotExist) {
			err = lookErr
		}
		return lookErr == nil
	}
	switch {
	case has(gitDir):
		return "working tree", err
	case has(bare[0]) && has(bare[1]) && has(bare[2]):
		return "repository", err
	}
	return "", err
}

func (p place) openRoot() (*os.Root, error) {
	info, err := os.Lstat(p.root)
	if err != nil {
		return nil, noRoot(p.root, err)
	}
	if !info.IsDir() {
		return nil, refused(teardown.CodeUnsafeTarget, p.path, fmt.Sprintf(
			"its root %s is not a directory any more; set UNWIND_ROOTS to what it is now", p.root))
	}
	dir, err := os.OpenRoot(p.root)
	if err != nil {
		return nil, noRoot(p.root, err)
	}
	if err := sameDir(dir, info); err != nil {
		_ = dir.Close()
		return nil, noRoot(p.root, err)
	}
	return dir, nil
}

func (p place) step(dir *os.Root, name, at string) (*os.Root, error) {
	info, err := dir.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, failed(at, err)
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, refused(teardown.CodeUnsafeTarget, p.path, fmt.Sprintf(
			"%s is a link, and links are not followed; register the path that it leads to", at))
	case !info.IsDir():
		return nil, nil
	}
	next, err := openDir(dir, name, info)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, failed(at, err)
	}
	return next, nil
}

// errChanged: a name stands for another thing than a moment ago.
var errChanged = errors.New("it changed while it was being looked at")

// openDir opens the directory that info describes, and nothing else that its
// name may have come to stand for since: os.Root follows links that stay inside,
// so what was opened is compared.
func openDir(parent *os.Root, name string, info fs.FileInfo) (*os.Root, error) {
	// With "/." the name is opened as a directory; without, OpenRoot would hang
	// on a FIFO that took the directory's place.
	dir, err := parent.OpenRoot(name + "/.")
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, errChanged
	}
	if err != nil {
		return nil, err
	}
	if err := sameDir(dir, info); err != nil {
		_ = dir.Close()
		return nil, err
	}
	return dir, nil
}

func sameDir(dir *os.Root, info fs.FileInfo) error {
	opened, err := dir.Stat(".")
	if err != nil {
		return err
	}
	if !os.SameFile(opened, info) {
		return errChanged
	}
	return nil
}

// matches compares what is there with the kind that was registered. A link is
// not what it leads to: it may go in place of anything but a secret, whose
// content would stay.
func (p place) matches(info fs.FileInfo) error {
	isLink := info.Mode()&fs.ModeSymlink != 0
	var ok bool
	switch p.kind {
	case teardown.ResourceFile:
		ok = info.Mode().IsRegular() || isLink
	case teardown.ResourceSecret:
		ok = info.Mode().IsRegular()
	case teardown.ResourceDir:
		ok = info.IsDir() || isLink
	case teardown.ResourceFIFO:
		ok = info.Mode()&fs.ModeNamedPipe != 0 || isLink
	}
	if ok {
		return nil
	}
	return refused(teardown.CodeUnsafeTarget, p.path, fmt.Sprintf(
		"it was registered as a %s and is a %s; look at it and remove it by hand", p.kind, describe(info.Mode())))
}

func describe(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "file"
	case mode.IsDir():
		return "directory"
	case mode&fs.ModeSymlink != 0:
		return "link"
	case mode&fs.ModeNamedPipe != 0:
		return "FIFO"
	case mode&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}
