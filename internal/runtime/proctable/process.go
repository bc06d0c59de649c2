// Package proctable reads the process table, proves which processes belong to
// one run, and signals exactly those.
//
// Everything here is by proof: a process is known by its number together with
// its start time, and belongs to a run by what the kernel says about it, never
// by its name or arguments.
package proctable

import (
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Ref names one process for good, within one boot: a number is used again, a
// number together with its start time is not.
type Ref struct {
	PID int
	// Start is when the process began: on Linux field 22 of /proc/PID/stat, in
	// clock ticks since boot; on macOS microseconds since the epoch.
	Start int64
}

// Valid reports whether r can name a process that may be signalled.
func (r Ref) Valid() bool { return r.PID > 1 && r.Start > 0 }

// Process is one entry of the process table.
type Process struct {
	Ref
	Parent  int
	Group   int
	Session int
	Command string
	// Stopped: by SIGSTOP or a terminal; signals other than SIGKILL wait.
	Stopped bool
	// Dead: nothing of it runs, only its parent has not taken note yet. A process
	// whose first thread has exited while others run is not dead.
	Dead bool

	// kernel: one of the kernel's own threads.
	kernel bool
	// seen is nil of a process that is not of a scan.
	seen *seen
}

// seen is what is read of a process when it is first asked for: those who share a
// scan share that, too.
type seen struct {
	environ struct {
		once  sync.Once
		block Environment
		err   error
	}
	stands struct {
		once       sync.Once
		name, link string
		err        error
	}
}

// Environ is the function Environ for a process of a scan: not older than that.
// Nobody may change it.
func (p Process) Environ() (Environment, error) {
	if p.seen == nil {
		return Environ(p.PID)
	}
	e := &p.seen.environ
	e.once.Do(func() { e.block, e.err = Environ(p.PID) })
	return e.block, e.err
}

// String is the process for people: its number and its command's name.
func (p Process) String() string {
	printable := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, p.Command)
	return fmt.Sprintf("%d %s", p.PID, printable)
}

// Table is one scan of the process table, by process number. The entries were
// read one after the other: they need not be of one instant.
type Table map[int]Process

var (
	// ErrGone: there is no such process any more.
	ErrGone = errors.New("no such process")
	// ErrDenied: the process is there but may not be looked into or signalled. That is
	// no evidence for or against anything.
	ErrDenied = errors.New("not permitted")
	// ErrUnsupported: this system does not tell.
	ErrUnsupported = errors.New("this operating system does not tell")
)

// Alive reports whether exactly the process that ref names is running.
func Alive(ref Ref) (bool, error) {
	p, err := Read(ref.PID)
	if errors.Is(err, ErrGone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return p.Ref == ref && !p.Dead, nil
}

// ancestors returns pid and every process above it.
func (t Table) ancestors(pid int) map[int]bool {
	above := map[int]bool{}
	for pid > 0 && !above[pid] {
		above[pid] = true
		pid = t[pid].Parent
	}
	return above
}

// Descends reports whether pid is below ancestor.
func (t Table) Descends(pid, ancestor int) bool {
	return pid != ancestor && t.ancestors(pid)[ancestor]
}
