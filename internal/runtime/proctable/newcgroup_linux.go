package proctable

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// PlanCgroup answers where a control group of this name could be made for one
// run, or "" if there is no place where this process may put others into one.
// It leaves nothing behind.
func PlanCgroup(name string) string {
	for _, parent := range cgroupParents() {
		path := filepath.Join(parent, name)
		if err := MakeCgroup(path); err != nil {
			continue
		}
		usable := unix.Access(filepath.Join(path, "cgroup.procs"), unix.W_OK) == nil
		_ = unix.Rmdir(path)
		if usable {
			return path
		}
	}
	return ""
}

// MakeCgroup makes a group that PlanCgroup planned; one that is there is used.
func MakeCgroup(path string) error {
	if err := os.Mkdir(path, 0o755); err != nil && !os.IsExist(err) {
		return err
	}
	return nil
}

// RemoveCgroup drops a group that nothing has entered.
func RemoveCgroup(path string) { _ = unix.Rmdir(path) }

// InCgroup reports whether a process is in the group.
func InCgroup(pid int, path string) bool {
	group, err := openCgroup(path)
	if err != nil || group == nil {
		return false
	}
	members, err := group.members()
	return err == nil && members[pid]
}

// cgroupParents lists where this process may make groups that it may also put
// processes into: beside its own group, so that they do not end with it, or
// else below it.
func cgroupParents() []string {
	content, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(content)) {
		own, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue
		}
		mount := cgroupMount()
		var st unix.Statfs_t
		if err := unix.Statfs(mount, &st); err != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
			return nil
		}
		own = filepath.Join(mount, own)
		if own == filepath.Clean(mount) {
			return []string{own}
		}
		return []string{filepath.Dir(own), own}
	}
	return nil
}
