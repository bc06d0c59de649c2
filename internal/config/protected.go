package config

import (
	"cmp"
	"net/url"
	"path/filepath"
)

// Protected lists the files and directories, there or not, that hold unwind's
// own facts: the state directory, and SQLite's database with the files that it
// keeps beside it. Each is listed by its name and by what that leads to.
func (c Config) Protected() []string {
	paths := withTarget(nil, c.StateDir)
	u, err := url.Parse(c.DatabaseURL)
	if err != nil || u.Scheme != "sqlite" {
		return paths
	}
	for _, database := range withTarget(nil, filepath.Clean(u.Path)) {
		for _, suffix := range []string{"", "-wal", "-shm", "-journal", ".lock"} {
			paths = withTarget(paths, database+suffix)
		}
	}
	return paths
}

// withTarget adds the path, the same name in the directory that its own leads
// to, which may be a link itself, and what that leads to.
func withTarget(list []string, path string) []string {
	name := filepath.Join(target(filepath.Dir(path)), filepath.Base(path))
	return appendNew(appendNew(appendNew(list, path), name), target(path))
}

// target resolves what of the path exists.
func target(path string) string {
	resolved, err := filepath.EvalSymlinks(path)
	if err == nil || path == filepath.Dir(path) {
		return filepath.Clean(cmp.Or(resolved, path))
	}
	return filepath.Join(target(filepath.Dir(path)), filepath.Base(path))
}
