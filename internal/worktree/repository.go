package worktree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// smallFile bounds what is read of git's one-line files.
const smallFile = 64 << 10

// repository is a repository as the disk shows it, found without running git.
type repository struct {
	common string // canonical
	main   string // the main checkout, "" if the common directory is not named .git
}

func (r repository) name() string {
	if r.main != "" {
		return r.main
	}
	return r.common
}

var errNoRepository = errors.New("there is no git repository")

// findRepository finds the repository to which dir belongs: dir may be the
// common directory, a working tree, or any directory inside one.
func findRepository(dir string) (repository, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return repository{}, err
	}
	for {
		common, err := commonDirAt(dir)
		if err == nil {
			return newRepository(common)
		}
		if !errors.Is(err, errNoRepository) || dir == "/" {
			return repository{}, err
		}
		dir = filepath.Dir(dir)
	}
}

func newRepository(common string) (repository, error) {
	common, err := filepath.EvalSymlinks(common)
	if err != nil {
		return repository{}, err
	}
	if !looksLikeRepository(common) {
		return repository{}, fmt.Errorf("%s: %w", printable(common), errNoRepository)
	}
	if filepath.Base(common) == ".git" {
		return repository{common: common, main: filepath.Dir(common)}, nil
	}
	return repository{common: common}, nil
}

func commonDirAt(dir string) (string, error) {
	link := filepath.Join(dir, ".git")
	if gitDir, err := readGitFile(link); err == nil {
		return commonDirOf(gitDir)
	}
	if looksLikeRepository(link) {
		return link, nil
	}
	if _, err := os.Lstat(filepath.Join(dir, "commondir")); err == nil {
		return commonDirOf(dir)
	}
	if looksLikeRepository(dir) {
		return dir, nil
	}
	return "", errNoRepository
}

// commonDirOf follows a git directory's commondir file; without one, the git
// directory is itself the common one.
func commonDirOf(gitDir string) (string, error) {
	text, err := readSmall(filepath.Join(gitDir, "commondir"))
	if errors.Is(err, fs.ErrNotExist) {
		return gitDir, nil
	}
	if err != nil {
		return "", err
	}
	return relativeTo(gitDir, text), nil
}

// partDirs are the directories, relative to the common one, in which a link may
// lead to a part of the repository that is kept elsewhere.
var partDirs = []string{"", "info", "logs", "objects", "objects/info", "objects/pack", "refs"}

// partBelow answers a part of the repository that lies in dir although the
// common directory does not: one behind a link, or a store that its objects are
// borrowed from. "" if there is none.
func (r repository) partBelow(dir string) (string, error) {
	for _, name := range partDirs {
		parts, err := os.ReadDir(filepath.Join(r.common, name))
		if err := ignoreAbsent(err); err != nil {
			return "", err
		}
		for _, part := range parts {
			if part.Type()&fs.ModeSymlink == 0 {
				continue
			}
			path := filepath.Join(r.common, name, part.Name())
			if resolved, err := filepath.EvalSymlinks(path); err == nil && within(resolved, dir) {
				return path, nil
			}
		}
	}
	for _, store := range borrowed(filepath.Join(r.common, "objects"), maxBorrowed) {
		if within(store, dir) {
			return store, nil
		}
	}
	return "", nil
}

// maxBorrowed is how far git follows stores that borrow from others.
const maxBorrowed = 5

// borrowed answers the stores from which a store of objects borrows.
func borrowed(store string, levels int) []string {
	text, err := readSmall(filepath.Join(store, "info/alternates"))
	if err != nil || levels == 0 {
		return nil
	}
	var all []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if quoted, err := strconv.Unquote(line); err == nil {
			line = quoted
		}
		if resolved, err := filepath.EvalSymlinks(relativeTo(store, line)); err == nil && resolved != store {
			all = append(append(all, resolved), borrowed(resolved, levels-1)...)
		}
	}
	return all
}

// looksLikeRepository is git's own test, without reading anything.
func looksLikeRepository(dir string) bool {
	for _, name := range []string{"objects", "refs"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || !info.IsDir() {
			return false
		}
	}
	_, err := os.Lstat(filepath.Join(dir, "HEAD"))
	return err == nil
}

var errNoGitFile = errors.New("not a file that names a git directory")

// readGitFile answers the directory that a .git file names. The file has to be
// a regular one, not a link.
func readGitFile(path string) (string, error) {
	text, err := readSmall(path)
	if err != nil {
		return "", err
	}
	named, found := strings.CutPrefix(text, "gitdir: ")
	if !found || named == "" || strings.ContainsRune(named, 0) {
		return "", fmt.Errorf("%s: %w", printable(path), errNoGitFile)
	}
	return relativeTo(filepath.Dir(path), named), nil
}

// readSmall reads a regular file of one line, without its line end and without
// following a link at its name.
func readSmall(path string) (string, error) {
	fd, err := openSmall(path)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return "", &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if info.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", fmt.Errorf("%s: %w", printable(path), errNoGitFile)
	}
	content := make([]byte, 0, min(info.Size+1, smallFile))
	for len(content) < smallFile {
		content = slices.Grow(content, 1)
		n, err := unix.Read(fd, content[len(content):min(cap(content), smallFile)])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return "", &fs.PathError{Op: "read", Path: path, Err: err}
		}
		content = content[:len(content)+n]
		if n == 0 || int64(len(content)) == info.Size {
			break
		}
	}
	return strings.TrimRight(string(content), "\r\n"), nil
}

// openSmall opens without what os.Open does to wait for a file: registries and
// refs are read by the hundred.
func openSmall(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func relativeTo(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// registration is one entry below COMMON/worktrees.
type registration struct {
	admin string // canonical
	// path is the canonical path of the worktree; "" if the entry names none.
	path string
}

// registrations reads all entries of the registry, also those that git would
// call prunable.
func (r repository) registrations() ([]registration, error) {
	dir := filepath.Join(r.common, "worktrees")
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	resolve := rememberingLinks()
	var all []registration
	for _, name := range names {
		if name.IsDir() {
			admin := filepath.Join(dir, name.Name())
			all = append(all, registration{admin: admin, path: registeredPathBy(admin, resolve)})
		}
	}
	return all, nil
}

// rememberingLinks is filepath.EvalSymlinks for many neighbours at once.
func rememberingLinks() func(string) (string, error) {
	type answer struct {
		path string
		err  error
	}
	known := map[string]answer{}
	return func(path string) (string, error) {
		a, asked := known[path]
		if !asked {
			a.path, a.err = filepath.EvalSymlinks(path)
			known[path] = a
		}
		return a.path, a.err
	}
}

func registeredPath(admin string) string { return registeredPathBy(admin, filepath.EvalSymlinks) }

func registeredPathBy(admin string, resolve func(string) (string, error)) string {
	text, err := readSmall(filepath.Join(admin, "gitdir"))
	if err != nil || text == "" {
		return ""
	}
	link := relativeTo(admin, text)
	if filepath.Base(link) != ".git" {
		return ""
	}
	path, err := canonicalBy(filepath.Dir(link), resolve)
	if err != nil {
		return ""
	}
	return path
}
