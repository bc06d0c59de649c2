// Left runs a command that is to clean up after itself, such as `go test`, and
// fails, too, if it has not: if a process that it started lives on, or if
// something lies in its temporary directory, which is one of its own. Processes
// are listed and ended, also when a test was killed and could not do it; files are
// listed. The exit code is the command's, or 1.
package main

import (
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"unwind/internal/runtime/proctable"
)

// markVariable is in the environment of all that the command starts. It has no
// prefix of ours: those are taken out of the environment of what unwind starts.
const markVariable = "TESTS_OF_UNWIND"

const (
	pollEvery = 100 * time.Millisecond
	maxListed = 50
)

func main() {
	patience := flag.Duration("patience", 15*time.Second, "time for what was started to end after the command")
	flag.Usage = func() {
		_, _ = fmt.Fprintln(os.Stderr, "usage: left [-patience D] COMMAND [ARG…]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(64)
	}
	code, err := run(flag.Args(), *patience, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "left:", err)
		code = 1
	}
	os.Exit(code)
}

func run(command []string, patience time.Duration, out io.Writer) (code int, err error) {
	dir, err := os.MkdirTemp("", "u")
	if err != nil {
		return 1, err
	}
	// As open as the usual one: servers that run as another user work in it.
	if err := os.Chmod(dir, 0o777|fs.ModeSticky); err != nil {
		return 1, err
	}
	mark := markVariable + "=" + filepath.Base(dir)
	code, err = carryOut(command, append(os.Environ(), mark, "TMPDIR="+dir))
	if err != nil {
		return 1, err
	}
	processes, err := leftAfter(patience, mark)
	if err != nil {
		return 1, err
	}
	lines := make([]string, len(processes))
	for i, p := range processes {
		lines[i] = fmt.Sprintf("%d, %s old: %s", p.PID, age(p).Round(time.Second), commandLine(p))
	}
	if err := end(processes, mark); err != nil {
		return 1, err
	}
	files, err := filesIn(dir)
	if err != nil {
		return 1, err
	}
	if len(files) == 0 {
		err = os.Remove(dir)
	}
	list(out, "Processes were left, and are ended", lines)
	list(out, "Files are left in "+dir, files)
	if code == 0 && len(lines)+len(files) > 0 {
		code = 1
	}
	return code, err
}

func list(out io.Writer, what string, lines []string) {
	if len(lines) == 0 {
		return
	}
	_, _ = fmt.Fprintf(out, "%s: %d\n", what, len(lines))
	for _, line := range lines[:min(len(lines), maxListed)] {
		_, _ = fmt.Fprintln(out, "  "+line)
	}
}

// leftAfter answers the processes that still live when patience is over, or none
// as soon as two successive looks have found none: a process whose parent ends
// during a look may not be seen to belong to anybody.
func leftAfter(patience time.Duration, mark string) ([]proctable.Process, error) {
	none := 0
	for end := time.Now().Add(patience); ; time.Sleep(pollEvery) {
		reap()
		processes, err := living(mark)
		if err != nil {
			return nil, err
		}
		if len(processes) > 0 {
			none = 0
		} else if none++; none == 2 {
			return nil, nil
		}
		if len(processes) > 0 && time.Now().After(end) {
			return processes, nil
		}
	}
}

// endLimit bounds the wait for the end of what was killed.
const endLimit = 10 * time.Second

// end kills processes, and what they start meanwhile.
func end(processes []proctable.Process, mark string) (err error) {
	for limit := time.Now().Add(endLimit); len(processes) > 0 && time.Now().Before(limit); time.Sleep(pollEvery) {
		for _, p := range processes {
			if handle, err := proctable.Open(p.Ref); err == nil {
				_ = handle.Signal(unix.SIGKILL) // it may have ended
				handle.Close()
			}
		}
		if processes, err = living(mark); err != nil {
			return err
		}
	}
	reap()
	return nil
}

// living are the processes below this one, to which every orphan of the command
// is given where that can be had, and those that carry the mark.
func living(mark string) (found []proctable.Process, err error) {
	table, err := proctable.Scan()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	for pid, p := range table {
		if p.Dead || pid == self {
			continue
		}
		ours := table.Descends(pid, self)
		if !ours {
			environment, err := proctable.Environ(pid)
			ours = err == nil && environment.Has(mark)
		}
		if ours {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b proctable.Process) int { return a.PID - b.PID })
	return found, nil
}

// filesIn lists what is in a directory, two levels deep.
func filesIn(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		files = append(files, path)
		if entry.IsDir() && filepath.Dir(path) != dir {
			return fs.SkipDir
		}
		return nil
	})
	return files, err
}
