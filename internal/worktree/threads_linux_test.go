package worktree

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const threadMode = "thread"

// In threadMode the first thread of this process ends, and another one waits for
// its standard input.
func init() {
	if os.Getenv(childMode) != threadMode {
		return
	}
	runtime.LockOSThread()
	waiting := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(waiting)
		_, _, _ = unix.RawSyscall(unix.SYS_POLL, 0, 0, ^uintptr(0))
	}()
	<-waiting
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

// TestFirstThreadHasEnded: /proc shows nothing of such a process but by its
// threads.
func TestFirstThreadHasEnded(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]func(cmd *exec.Cmd, a string) error{
		"stands in it": func(cmd *exec.Cmd, a string) error {
			cmd.Dir = a
			return nil
		},
		"has a file open": func(cmd *exec.Cmd, a string) error {
			file, err := os.OpenFile(filepath.Join(a, "src/app.txt"), os.O_WRONLY, 0)
			cmd.ExtraFiles = []*os.File{file}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), childMode+"="+threadMode)
			w.do(place(cmd, a))
			w.start(cmd)
			for _, file := range cmd.ExtraFiles {
				w.do(file.Close())
			}
			cwd := fmt.Sprintf("/proc/%d/cwd", cmd.Process.Pid)
			for {
				if _, err := os.Readlink(cwd); os.IsNotExist(err) {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			expect(t, w.removeAll(), "failed:in_use")
		})
	}
}
