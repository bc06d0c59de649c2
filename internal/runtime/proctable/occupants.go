package proctable

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
)

// canonical is a directory's name as the system tells it.
func canonical(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}

func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

func sortByPID(processes []Process) {
	slices.SortFunc(processes, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
}
