package proctable

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"unwind/internal/onepass"
)

var scans = onepass.Pass[Table]{Make: scan}

// Scan reads the whole process table, but for the kernel's own threads. Callers that ask at the same time share
// one reading, which begins after they asked: nobody may change it.
func Scan() (Table, error) { return scans.Do() }

func scan() (Table, error) {
	s := scanning{table: Table{}, read: map[int]bool{}}
	for range listings {
		missed, err := s.list()
		if err != nil {
			return nil, err
		}
		if !missed {
			break
		}
	}
	return s.table, nil
}

// listings bounds how often one scan lists /proc: where processes end all the
// time, each listing may miss one. A later listing reads only what is new, so that
// little time is left in which something can end.
const listings = 10

// scanning is one scan.
type scanning struct {
	table Table
	read  map[int]bool // numbers that were listed before
}

// list reads the processes that were not listed before. Missed: one of them may
// have ended since it was listed, and what it started by then is in no listing.
func (s *scanning) list() (missed bool, err error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return false, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return false, err
	}
	var all []seen
	for i, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || s.read[pid] {
			continue
		}
		s.read[pid] = true
		p, err := readStat(pid)
		if errors.Is(err, ErrGone) {
			missed = true
			continue
		}
		if err != nil {
			return false, err
		}
		if p.kernel {
			continue
		}
		missed = missed || p.Dead // since when is not told
		if len(all) == 0 {
			all = make([]seen, len(names)-i)
		}
		p.seen, all = &all[0], all[1:]
		s.table[pid] = p
	}
	return missed, nil
}

// Read reads one process. ErrGone means that the kernel knows no such process.
func Read(pid int) (Process, error) {
	if pid <= 0 {
		return Process{}, fmt.Errorf("%d is no process number", pid)
	}
	p, err := readStat(pid)
	if errors.Is(err, ErrGone) && unix.Kill(pid, 0) == nil {
		p, err = readStat(pid) // the number may just have been used again
	}
	// A /proc mounted with hidepid hides processes that may not be looked into, own
	// ones too, as if they did not exist; the system call does not.
	if errors.Is(err, ErrGone) && !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return Process{}, ErrDenied
	}
	return p, err
}

func readStat(pid int) (Process, error) {
	command, fields, err := statFields(pid)
	if err != nil {
		return Process{}, err
	}
	p := Process{Ref: Ref{PID: pid}, Command: command, Stopped: fields[0] == "T"}
	var wrong [5]error
	var flags uint64
	p.Parent, wrong[0] = strconv.Atoi(fields[1])
	p.Group, wrong[1] = strconv.Atoi(fields[2])
	p.Session, wrong[2] = strconv.Atoi(fields[3])
	p.Start, wrong[3] = strconv.ParseInt(fields[19], 10, 64)
	flags, wrong[4] = strconv.ParseUint(fields[6], 10, 64)
	p.kernel = flags&kernelThread != 0
	if err := errors.Join(wrong[:]...); err != nil {
		return Process{}, fmt.Errorf("cannot read the status of process %d: %w", pid, err)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		// The first thread has exited; the process lives while another runs.
		threads, err := os.ReadDir(procPath(pid, "task"))
		if err != nil && !errors.Is(procError(err), ErrGone) {
			return Process{}, err
		}
		p.Dead = len(threads) <= 1
	}
	return p, nil
}

// kernelThread is PF_KTHREAD, the same in every Linux.
const kernelThread = 0x00200000

func readState(pid int) (string, error) {
	_, fields, err := statFields(pid)
	if err != nil {
		return "", err
	}
	return fields[0], nil
}

// statFields splits /proc/PID/stat into the command and the fields after it, of
// which there are at least 20: the state first.
func statFields(pid int) (command string, fields []string, err error) {
	stat, err := readAtOnce(procPath(pid, "stat"))
	if err != nil {
		return "", nil, procError(err)
	}
	// The command stands in parentheses and may itself contain any byte.
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open >= 0 && end > open {
		fields = strings.Fields(string(stat[end+1:]))
	}
	if len(fields) < 20 {
		return "", nil, fmt.Errorf("cannot read the status of process %d: %q", pid, stat)
	}
	return string(stat[open+1 : end]), fields, nil
}

// Environ reads the environment of a process. It is ErrDenied for a process of
// another user or one that forbids it.
func Environ(pid int) (Environment, error) {
	block, err := readAtOnce(procPath(pid, "environ"))
	for _, thread := range standIns(pid, err) {
		if block, err = readAtOnce(procPath(pid, "task", thread, "environ")); err == nil {
			break
		}
	}
	return block, procError(err)
}

var buffers = sync.Pool{New: func() any { return new(make([]byte, 64<<10)) }}

// readAtOnce reads a file of /proc with one system call: a process that begins
// another program between two of them leaves the first part of its old
// environment, without what came later.
func readAtOnce(path string) ([]byte, error) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for {
		// Not os.Open, which would prepare to wait for each file: a scan of the
		// table spends its time here.
		file, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		n, err := unix.Read(file, *buffer)
		unix.Close(file)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n < len(*buffer) {
			return bytes.Clone((*buffer)[:n]), nil
		}
		*buffer = make([]byte, 2*len(*buffer))
	}
}

// WorkingDirectory reads where a process stands: the path, as that process
// names it, and a path of /proc by which the directory itself can be examined.
func WorkingDirectory(pid int) (name, link string, err error) {
	link = procPath(pid, "cwd")
	name, err = os.Readlink(link)
	for _, thread := range standIns(pid, err) {
		link = procPath(pid, "task", thread, "cwd")
		if name, err = os.Readlink(link); err == nil {
			break
		}
	}
	return name, link, procError(err)
}

// standIns returns the threads to ask when a process could not be looked into
// because its first thread has exited and took its view with it.
func standIns(pid int, failed error) (threads []string) {
	if failed == nil {
		return nil
	}
	if state, err := readState(pid); err != nil || state != "Z" {
		return nil
	}
	entries, _ := os.ReadDir(procPath(pid, "task"))
	for _, e := range entries {
		if e.Name() != strconv.Itoa(pid) {
			threads = append(threads, e.Name())
		}
	}
	return threads
}

// signalMask reads one of the signal sets in /proc/PID/status.
func signalMask(pid int, field string) (uint64, error) {
	status, err := os.ReadFile(procPath(pid, "status"))
	if err != nil {
		return 0, procError(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		}
	}
	return 0, ErrUnsupported
}

// Ignores reports whether a process is known to ignore a signal.
func Ignores(pid int, signal unix.Signal) bool {
	mask, err := signalMask(pid, "SigIgn")
	return err == nil && mask&(1<<(uint(signal)-1)) != 0
}

// Catches reports whether a process is known to have a handler for a signal.
func Catches(pid int, signal unix.Signal) bool {
	mask, err := signalMask(pid, "SigCgt")
	return err == nil && mask&(1<<(uint(signal)-1)) != 0
}

func procPath(pid int, rest ...string) string {
	return "/proc/" + strconv.Itoa(pid) + "/" + strings.Join(rest, "/")
}

func procError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return ErrGone
	case errors.Is(err, fs.ErrPermission):
		return ErrDenied
	}
	return err
}
