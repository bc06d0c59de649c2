package proctable

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroup is a version 2 control group that was made for one run.
type cgroup struct{ dir string }

// ErrNoCgroup: the path is no control group that could belong to one run.
var ErrNoCgroup = errors.New("not a control group of one run")

// openCgroup finds a control group by its directory, or by its path as
// /proc/PID/cgroup gives it. Nil without an error means that there is none (any
// more).
func openCgroup(path string) (*cgroup, error) {
	if path == "" {
		return nil, nil
	}
	for _, dir := range []string{path, filepath.Join(cgroupMount(), path)} {
		var st unix.Statfs_t
		err := unix.Statfs(dir, &st)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot look at control group %s: %w", dir, err)
		}
		// The root group alone has no cgroup.events; it holds everybody.
		_, notRoot := os.Stat(filepath.Join(dir, "cgroup.events"))
		if st.Type != unix.CGROUP2_SUPER_MAGIC || notRoot != nil {
			return nil, fmt.Errorf("%w: %s", ErrNoCgroup, dir)
		}
		return &cgroup{dir: filepath.Clean(dir)}, nil
	}
	return nil, nil
}

func cgroupMount() string {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "/sys/fs/cgroup"
	}
	defer mounts.Close()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		mount, filesystem, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(mount)
		if strings.HasPrefix(filesystem, "cgroup2 ") && len(fields) > 4 {
			return fields[4]
		}
	}
	return "/sys/fs/cgroup"
}

// members returns the processes in the group and in all groups below it.
func (c *cgroup) members() (map[int]bool, error) {
	pids := map[int]bool{}
	if c == nil {
		return pids, nil
	}
	err := filepath.WalkDir(c.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return ignoreGone(err)
		}
		list, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return ignoreGone(err)
		}
		for _, field := range strings.Fields(string(list)) {
			// 0 is a process that this pid namespace cannot name.
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids[pid] = true
			}
		}
		return nil
	})
	return pids, err
}

// kill ends all processes of the group at once, where the kernel can.
func (c *cgroup) kill() {
	_ = os.WriteFile(filepath.Join(c.dir, "cgroup.kill"), []byte("1"), 0)
}

// remove drops the group, children first, if nothing is left in it.
func (c *cgroup) remove() {
	if c == nil {
		return
	}
	var dirs []string
	_ = filepath.WalkDir(c.dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for i := len(dirs) - 1; i >= 0; i-- {
		_ = unix.Rmdir(dirs[i])
	}
}

// ignoreGone: a group that vanished has no members, a threaded one lists its
// processes in the group above.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}
