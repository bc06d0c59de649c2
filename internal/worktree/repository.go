package worktree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s: %w", printable(path), errNoGitFile)
	}
	content, err := io.ReadAll(io.LimitReader(file, smallFile))
	return strings.TrimRight(string(content), "\r\n"), err
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
	var all []registration
	for _, name := range names {
		if name.IsDir() {
			admin := filepath.Join(dir, name.Name())
			all = append(all, registration{admin: admin, path: registeredPath(admin)})
		}
	}
	return all, nil
}

func registeredPath(admin string) string {
	text, err := readSmall(filepath.Join(admin, "gitdir"))
	if err != nil || text == "" {
		return ""
	}
	link := relativeTo(admin, text)
	if filepath.Base(link) != ".git" {
		return ""
	}
	path, err := canonical(filepath.Dir(link))
	if err != nil {
		return ""
	}
	return path
}
