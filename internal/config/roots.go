package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

func parseRoots(c *Config, value string) (string, bool) {
	for _, root := range filepath.SplitList(value) {
		if root == "" {
			continue
		}
		if !filepath.IsAbs(root) {
			return fmt.Sprintf("%q is not an absolute path", root), false
		}
		canonical, err := canonicalDir(root)
		if err != nil {
			return fmt.Sprintf("%q cannot be used: %v", root, err), false
		}
		if canonical == "/" {
			return "the whole file system cannot be a root; name the directories that hold worktrees", false
		}
		c.Roots = appendNew(c.Roots, canonical)
	}
	return fmt.Sprintf("name at least one directory, several separated by %q", filepath.ListSeparator), len(c.Roots) > 0
}

func (l *loading) deriveRoots() {
	if len(l.Roots) > 0 {
		return
	}
	temporary := l.getenv("TMPDIR")
	if temporary == "" {
		temporary = "/tmp"
	}
	for _, dir := range []string{l.Home, temporary} {
		if !filepath.IsAbs(dir) {
			continue
		}
		if canonical, err := canonicalDir(dir); err == nil && canonical != "/" {
			l.Roots = appendNew(l.Roots, canonical)
		}
	}
	if len(l.Roots) == 0 {
		l.problems = append(l.problems, roots+" (--"+flagOf(roots)+
			") is not set and there is no home or temporary directory: set it to the directories that hold worktrees")
	}
}

// A root inside another one is kept: it is itself never to be removed.
func appendNew(list []string, dir string) []string {
	if slices.Contains(list, dir) {
		return list
	}
	return append(list, dir)
}

// canonicalDir resolves all links of a directory. What does not exist yet is
// kept as it is spelt below the deepest directory that does, for a root may be
// on a disk that is mounted later. (If a link turns up there later, no
// canonical path lies below the root, and nothing is removed.)
func canonicalDir(dir string) (string, error) {
	dir = filepath.Clean(dir)
	canonical, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) && dir != "/" {
		if _, err := os.Lstat(dir); err == nil {
			return "", errors.New("it is a link to nothing")
		}
		parent, err := canonicalDir(filepath.Dir(dir))
		if err != nil {
			return "", err
		}
		return filepath.Join(parent, filepath.Base(dir)), nil
	}
	if err != nil {
		return "", err
	}
	info, err := os.Stat(canonical)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", errors.New("it is not a directory")
	}
	return canonical, nil
}
