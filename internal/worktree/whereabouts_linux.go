package worktree

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"unwind/internal/onepass"
)

// whereabouts is where one process stood and what it had open when all were read
// at once.
type whereabouts struct {
	pid int
	// at are the targets of its links in /proc, each ended by a NUL.
	at []byte
	// mounts is its mount namespace, "" if unknown.
	mounts string
	// denied: it may not be looked into.
	denied bool
}

// everybody reads where every other process stands. Many worktrees that are
// looked at together share one reading; whom it shows in one of them, that look
// then asks for itself.
var everybody = onepass.Pass[[]whereabouts]{Make: readAllWhereabouts}

// mayOccupy reports whether the process has to be looked at by itself: because
// something of it is below the directory, because it knows the directory by
// another name, or because it could not be read.
func (p *whereabouts) mayOccupy(s *scan) bool {
	if p.denied || s.aliased || s.tree != nil && p.mounts != "" && p.mounts != s.mounts {
		return true
	}
	return bytes.Contains(p.at, []byte(s.dir))
}

func readAllWhereabouts() ([]whereabouts, error) {
	names, err := namesIn("/proc")
	if err != nil {
		return nil, err
	}
	all := make([]whereabouts, 0, len(names))
	link := make([]byte, unix.PathMax)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		all = append(all, readWhereabouts(pid, link))
	}
	return all, nil
}

// readWhereabouts reads one process into memory that link lends.
func readWhereabouts(pid int, link []byte) whereabouts {
	p := whereabouts{pid: pid}
	read := func(path string) {
		n, err := unix.Readlink(path, link)
		switch {
		case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
			p.denied = true
		case err == nil:
			p.at = append(append(p.at, link[:n]...), 0)
		}
	}
	for _, dir := range procDirs(pid) {
		read(dir + "/cwd")
		read(dir + "/root")
		if n, err := unix.Readlink(dir+"/ns/mnt", link); err == nil {
			p.mounts = string(link[:n])
		}
		fds := dir + "/fd"
		names, err := namesIn(fds)
		if err != nil {
			p.denied = p.denied || ignoreGone(err) != nil
			continue
		}
		for _, name := range names {
			read(fds + "/" + name)
		}
	}
	return p
}

// procDirs answers where /proc tells what a process has open: its own directory,
// or those of its other threads if the first has ended, which then shows nothing.
func procDirs(pid int) []string {
	self := procPath(pid, "")
	if _, err := os.Readlink(self + "/cwd"); !errors.Is(err, fs.ErrNotExist) {
		return []string{self}
	}
	threads, _ := namesIn(self + "/task")
	dirs := make([]string, 0, len(threads))
	for _, thread := range threads {
		if thread != strconv.Itoa(pid) {
			dirs = append(dirs, self+"/task/"+thread)
		}
	}
	return dirs
}
