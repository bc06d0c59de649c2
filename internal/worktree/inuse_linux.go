package worktree

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func scanProcesses(on ground) (occupancy, error) {
	all, err := everybody.Do()
	if err != nil {
		return occupancy{}, err
	}
	scan := &scan{ground: on}
	scan.mounts, _ = os.Readlink("/proc/self/ns/mnt")
	if scan.aliased, err = hasAlias(on.dir); err != nil {
		return occupancy{}, err
	}
	scan.aliased = scan.aliased && on.tree != nil
	var seen occupancy
	for i := range all {
		process := &all[i]
		pid := process.pid
		if !process.mayOccupy(scan) {
			continue
		}
		what, err := scan.occupiesLastingly(pid)
		switch {
		case errors.Is(err, fs.ErrPermission):
			if mayStand(pid) {
				seen.hidden++
			}
		case what != "":
			comm, _ := os.ReadFile(procPath(pid, "comm"))
			seen.occupants = append(seen.occupants, occupant{pid: pid, comm: string(bytes.TrimSpace(comm)), what: what})
		}
	}
	return seen, nil
}

// The process's flags in /proc/PID/stat; this one marks a thread of the kernel.
const kernelThread = 0x00200000

// mayStand reports whether a process can be in anybody's way at all: one that has
// ended, by now or as a zombie, and a thread of the kernel hold no directory.
func mayStand(pid int) bool {
	text, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return ignoreGone(err) != nil
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 7 {
		return true
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	dead := fields[0] == "Z" || fields[0] == "X" || fields[0] == "x"
	return !dead && (err != nil || flags&kernelThread == 0)
}

// How often and how long to wait for a child of ours that has just been started.
const (
	forkPolls = 100
	forkPause = 10 * time.Millisecond
)

// occupiesLastingly leaves out our own children that are becoming another
// program: until that is done they have everything open that we had, such as the
// directories of another goroutine's walk.
func (s *scan) occupiesLastingly(pid int) (string, error) {
	for range forkPolls {
		what, err := s.occupies(pid)
		if what == "" || !isChild(pid) {
			return what, err
		}
		time.Sleep(forkPause)
	}
	return s.occupies(pid)
}

// isChild: we have started the process. That it runs another program by now does
// not tell that what it is to close is closed.
func isChild(pid int) bool {
	parent, _, err := parentAndSession(pid)
	return err == nil && parent == os.Getpid()
}

// scan is one look at the process table.
type scan struct {
	ground
	mounts string // our own mount namespace
	// aliased: in our own namespace, too, a directory may have several paths.
	aliased bool
	// places are the directories of the tree and those that hold its files, by
	// inode number; made when the first is needed.
	places map[uint64]int32
}

func procPath(pid int, name string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), name)
}

// occupies answers what the process has below dir, "" if nothing.
func (s *scan) occupies(pid int) (string, error) {
	for _, dir := range procDirs(pid) {
		if what, err := s.occupiesBy(dir, pid); what != "" || err != nil {
			return what, err
		}
	}
	return "", nil
}

// occupiesBy is occupies by what one directory of /proc tells.
func (s *scan) occupiesBy(dir string, pid int) (string, error) {
	elsewhere := s.inOtherNamespace(dir)
	for _, kind := range []string{"cwd", "root"} {
		at, err := s.linkInto(filepath.Join(dir, kind), elsewhere)
		if err != nil {
			return "", err
		}
		if at != "" && (kind == "root" || !s.called(pid)) {
			return kind + " " + printable(at), nil
		}
	}
	fds := filepath.Join(dir, "fd")
	names, err := namesIn(fds)
	if err != nil {
		return "", ignoreGone(err)
	}
	for _, name := range names {
		at, err := s.linkInto(filepath.Join(fds, name), elsewhere)
		if err != nil {
			return "", err
		}
		if at != "" {
			return "open " + printable(at), nil
		}
	}
	return "", nil
}

// linkInto answers where below the directory a link of /proc points. What was
// deleted there already does not count: it holds nothing of what is there now.
func (s *scan) linkInto(link string, elsewhere bool) (string, error) {
	target, err := os.Readlink(link)
	if err != nil {
		return "", ignoreGone(err)
	}
	at, inside := occupiedPath(strings.TrimSuffix(target, " (deleted)"), s.dir)
	switch {
	case !inside && (elsewhere || s.aliased):
		return s.placeOf(link), nil
	case !inside:
		return "", nil
	case strings.HasSuffix(target, " (deleted)"):
		var info unix.Stat_t
		if err := unix.Stat(link, &info); err == nil && info.Nlink == 0 {
			return "", nil
		}
	}
	return at, nil
}

// placeOf finds what a link of /proc leads to among the files and directories of
// the tree. A file that has names elsewhere, too, as package managers give them,
// is not the worktree's alone.
func (s *scan) placeOf(link string) string {
	var x unix.Statx_t
	// A file system that does not answer is not waited for.
	err := unix.Statx(unix.AT_FDCWD, link, unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &x)
	kind := uint32(x.Mode) & unix.S_IFMT
	ours := unix.Mkdev(x.Dev_major, x.Dev_minor) == s.tree.nodes[0].id.dev
	if err != nil || !ours || kind != unix.S_IFDIR && (kind != unix.S_IFREG || x.Nlink != 1) {
		return ""
	}
	if s.places == nil {
		s.places = map[uint64]int32{}
		for i, node := range s.tree.nodes {
			s.places[node.id.ino] = int32(i)
			for _, stamp := range node.stamps {
				s.places[stamp.ino] = int32(i)
			}
		}
	}
	i, found := s.places[x.Ino]
	if !found {
		return ""
	}
	return display(s.tree.path(i)) + " (under another path)"
}

func (s *scan) inOtherNamespace(dir string) bool {
	if s.tree == nil {
		return false
	}
	mounts, err := os.Readlink(filepath.Join(dir, "ns/mnt"))
	return err == nil && mounts != s.mounts
}

// ignoreGone: a process that ended meanwhile is in nobody's way.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

// called reports whether the process asked for this scan and may stand where it
// likes: it is our parent, its parent and so on, as far as they belong to our
// terminal session, or it stands in one pipeline with us.
func (s *scan) called(pid int) bool {
	if !s.callers {
		return false
	}
	return slices.Contains(ancestors(), pid) || reads(pid, os.Getpid()) || reads(os.Getpid(), pid)
}

// reads reports whether one process reads by a pipe what the other prints.
func reads(reader, writer int) bool {
	pipe, err := os.Readlink(procPath(reader, "fd/0"))
	if err != nil || !strings.HasPrefix(pipe, "pipe:") {
		return false
	}
	for _, fd := range []string{"fd/1", "fd/2"} {
		if printed, err := os.Readlink(procPath(writer, fd)); err == nil && printed == pipe {
			return true
		}
	}
	return false
}

func ancestors() []int {
	var pids []int
	session, err := unix.Getsid(0)
	if err != nil {
		return nil
	}
	for pid := os.Getppid(); pid > 1; {
		parent, sid, err := parentAndSession(pid)
		if err != nil || sid != session {
			break
		}
		pids = append(pids, pid)
		pid = parent
	}
	return pids
}

func parentAndSession(pid int) (parent, session int, err error) {
	text, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return 0, 0, err
	}
	// The name in parentheses may contain anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 4 {
		return 0, 0, errors.New("unexpected format of /proc/PID/stat")
	}
	if parent, err = strconv.Atoi(fields[1]); err != nil {
		return 0, 0, err
	}
	session, err = strconv.Atoi(fields[3])
	return parent, session, err
}
