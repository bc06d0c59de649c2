package proctable

import (
	"bytes"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

const zombie = 5 // SZOMB of sys/proc.h
const stopped = 4

// BootID names the boot.
func BootID() (string, error) { return unix.Sysctl("kern.bootsessionuuid") }

// Scan reads the whole process table.
func Scan() (Table, error) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	table := make(Table, len(all))
	for i := range all {
		p := fromKinfo(&all[i])
		table[p.PID] = p
	}
	return table, nil
}

// Read reads one process. ErrGone means that the kernel knows no such process.
func Read(pid int) (Process, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err == nil {
		return fromKinfo(info), nil
	}
	// An unknown number yields an empty answer, which the call reports as EIO.
	if killed := unix.Kill(pid, 0); errors.Is(killed, unix.ESRCH) {
		return Process{}, ErrGone
	}
	return Process{}, err
}

func fromKinfo(info *unix.KinfoProc) Process {
	p := Process{
		Ref: Ref{
			PID:   int(info.Proc.P_pid),
			Start: info.Proc.P_starttime.Sec*1e6 + int64(info.Proc.P_starttime.Usec),
		},
		Parent:  int(info.Eproc.Ppid),
		Group:   int(info.Eproc.Pgid),
		Command: unix.ByteSliceToString(info.Proc.P_comm[:]),
		Stopped: info.Proc.P_stat == stopped,
		Dead:    info.Proc.P_stat == zombie,
	}
	p.Session, _ = unix.Getsid(p.PID)
	return p
}

// Environ reads the environment of a process of our own; the system hides that
// of protected programs (ErrDenied).
func Environ(pid int) (Environment, error) {
	raw, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil {
		if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			return nil, ErrGone
		}
		return nil, ErrDenied
	}
	if len(raw) < 4 {
		return nil, ErrDenied
	}
	// argc, the program's path, padding, the arguments, the environment.
	arguments := int(binary.NativeEndian.Uint32(raw))
	_, rest, _ := bytes.Cut(raw[4:], []byte{0})
	rest = bytes.TrimLeft(rest, "\x00")
	for range arguments {
		_, rest, _ = bytes.Cut(rest, []byte{0})
	}
	if len(rest) == 0 {
		return nil, ErrDenied
	}
	return rest, nil
}

// Ignores reports whether a process is known to ignore a signal.
func Ignores(int, unix.Signal) bool { return false }

// Catches reports whether a process is known to have a handler for a signal.
func Catches(int, unix.Signal) bool { return false }
