package worktree

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const noNamespace = 77

// bindPrivately mounts dir on itself: same file system, same device.
func bindPrivately(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount(dir, dir, "", unix.MS_BIND, "")
}

// mountDead mounts a FUSE file system whose server is this process, which never
// answers.
func mountDead(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Mount("dead", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", fuse, os.Getuid(), os.Getgid()))
}

// TestFileSystemThatDoesNotAnswer: it is found without waiting for it, or given
// up.
func TestFileSystemThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for _, s := range []struct{ name, dead, link, want string }{
		{"inside", "wts/a/mnt", "", "preserved:mount_point"},
		{"itself", "wts/a", "", "failed:timeout"},
		{"its parent", "wts", "", "failed:timeout"},
		{"the repository", "repo", "", "failed:timeout"},
		{"the repository's objects", "far", "objects", "failed:timeout"},
		{"what the repository's tools store", "far", "lfs", "failed:timeout"},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			w.do(os.MkdirAll(filepath.Join(a, "mnt"), 0o755))
			w.do(os.Mkdir(w.path("far"), 0o755))
			if s.link != "" {
				link := filepath.Join(w.repo, ".git", s.link)
				w.do(os.RemoveAll(link))
				w.do(os.Symlink(w.path("far/inside"), link))
			}
			cmd := childJob{Root: w.root, Targets: w.targets, Dead: w.path(s.dead)}.command(t)
			cmd.SysProcAttr = mountNamespace()
			out, err := cmd.Output()
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() == noNamespace || errors.Is(err, unix.EPERM) {
				t.Skip("this system gives no mount namespace with FUSE to this user")
			}
			w.do(err)
			var verdicts []string
			w.do(json.Unmarshal(out, &verdicts))
			if verdicts[0] != s.want {
				t.Errorf("got %s, want %s", verdicts[0], s.want)
			}
		})
	}
}

// mountNamespace is for a child that may mount what nobody else sees.
func mountNamespace() *syscall.SysProcAttr {
	if os.Geteuid() == 0 {
		return &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
}

// TestUseUnderAnotherPath: a process in a container, or behind a bind mount of our
// own, has open what it knows by another name.
func TestUseUnderAnotherPath(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"directory": `cd "$2/src" && echo ready && exec sleep 600`,
		"open file": `exec 3<"$2/src/app.txt" && echo ready && exec sleep 600`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			w.do(os.Mkdir(w.path("home/workspace"), 0o755))
			cmd := exec.Command("sh", "-c", `mount --bind "$1" "$2" && `+script, "sh", a, w.path("home/workspace"))
			cmd.Dir, cmd.SysProcAttr = "/", mountNamespace()
			out, err := cmd.StdoutPipe()
			w.do(err)
			if err := cmd.Start(); err != nil {
				t.Skipf("this system gives no mount namespace to this user: %v", err)
			}
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			})
			if text, err := bufio.NewReader(out).ReadString('\n'); text != "ready\n" {
				t.Skipf("this system lets this user mount nothing: %v", err)
			}
			w.pids = append(w.pids, cmd.Process.Pid)
			expect(t, w.removeAll(), "failed:in_use")
		})
	}
}

// TestBindMountOfTheWorktree: the process that looks sees the other path, too.
func TestBindMountOfTheWorktree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.worktree("a")
	w.do(os.Mkdir(w.path("home/alias"), 0o755))
	job, err := json.Marshal(childJob{Root: w.root, Targets: w.targets})
	w.do(err)
	program, err := os.Executable()
	w.do(err)
	cmd := exec.Command("sh", "-c", `mount --bind "$1" "$2" || exit `+strconv.Itoa(noNamespace)+`
		(cd "$2/src" && exec sleep 600) >/dev/null 2>&1 & pid=$!
		until [ "$(readlink /proc/$pid/cwd)" = "$2/src" ]; do kill -0 $pid || exit 1; done
		cd / && "$3"; result=$?; kill $pid; exit $result`, "sh", a, w.path("home/alias"), program)
	cmd.Env = append(os.Environ(), childMode+"="+string(job))
	cmd.Dir, cmd.SysProcAttr, cmd.Stderr = "/", mountNamespace(), os.Stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == noNamespace || errors.Is(err, unix.EPERM) {
		t.Skip("this system lets this user mount nothing")
	}
	w.do(err)
	if got := strings.TrimSpace(string(out)); got != `["failed:in_use"]` {
		t.Errorf("got %s", got)
	}
}

func TestMountKeepsWorktree(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"", "node_modules/mounted"} {
		t.Run("at "+display(at), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			mounted := filepath.Join(a, at)
			w.put(filepath.Join(mounted, "README.md"), "repo")
			job := childJob{Root: w.root, Targets: w.targets, Bind: mounted}
			cmd := job.command(t)
			cmd.SysProcAttr = mountNamespace()
			out, err := cmd.Output()
			var exit *exec.ExitError
			if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.As(err, &exit) && exit.ExitCode() == noNamespace {
				t.Skipf("this system gives no mount namespace to this user: %v", err)
			}
			w.do(err)
			var got []string
			w.do(json.Unmarshal(out, &got))
			if got[0] != "preserved:mount_point" {
				t.Errorf("got %q", got)
			}
			if !isDirectory(mounted) {
				t.Error("what was mounted is gone")
			}
		})
	}
}

// TestForeignFiles needs root to make files of another user.
func TestForeignFiles(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make files that belong to another user")
	}
	const other = 54321
	t.Run("worktree of another user", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.do(os.Lchown(w.worktree("a"), other, other))
		expect(t, w.removeAll(), "preserved:cannot_inspect")
	})
	t.Run("repository of another user", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.worktree("a")
		w.do(os.Lchown(filepath.Join(w.repo, ".git"), other, other))
		expect(t, w.removeAll(), "preserved:cannot_inspect")
	})
	t.Run("directory that we may not empty", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.worktree("a")
		w.put(filepath.Join(a, "node_modules/x/y.js"), "y")
		w.giveTo(other)
		w.do(os.Lchown(filepath.Join(a, "node_modules/x"), 0, 0))
		before := w.snapshot(a)
		if got := w.removeAs(other); got[0] != "failed:permission_denied" {
			t.Errorf("got %q", got)
		}
		if changed := differences(before, w.snapshot(a)); len(changed) > 0 {
			t.Errorf("half-deleted: %q", changed)
		}
	})
}

// giveTo makes everything another user's.
func (w *world) giveTo(uid int) {
	w.t.Helper()
	w.do(filepath.WalkDir(w.root, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, uid))
	}))
	// The test's own directories are closed to others.
	for dir := w.root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		w.do(os.Chmod(dir, 0o755))
	}
}

// removeAs removes the targets as another user, with a copy of the test's
// program that every user may run.
func (w *world) removeAs(uid uint32) []string {
	w.t.Helper()
	self, err := os.Executable()
	w.do(err)
	w.program(w.path("self"), self)
	cmd := childJob{Root: w.root, Targets: w.targets}.command(w.t)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	cmd.Path, cmd.Args = w.path("self"), []string{"self"}
	cmd.Env = append(cmd.Env, "HOME="+w.path("home"))
	out, err := cmd.Output()
	w.do(err)
	var got []string
	w.do(json.Unmarshal(out, &got))
	return got
}

// TestUnreadable: what we cannot look into is not clean. Root can look into
// everything, so it works as another user.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"node_modules/x": "preserved:cannot_inspect",
		"src":            "preserved:cannot_inspect",
		// To git it is a file that differs.
		"src/app.txt": "preserved:modified",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			w.put(filepath.Join(a, "node_modules/x/y"), "y")
			w.do(os.Chmod(filepath.Join(a, path), 0))
			if os.Geteuid() != 0 {
				expect(t, w.removeAll(), want)
				return
			}
			const other = 54321
			w.giveTo(other)
			before := w.snapshot(a)
			if got := w.removeAs(other); got[0] != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if changed := differences(before, w.snapshot(a)); len(changed) > 0 {
				t.Errorf("changed: %q", changed)
			}
		})
	}
}

// TestCallerStandsInside: the shell that calls unwind may stand in the worktree,
// and so may what reads its output, but no other process.
func TestCallerStandsInside(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		`cd "$1" && "$2"; exit $?`:                    "removed",
		`cd "$1" && "$2" | cat`:                       "removed",
		`cd "$1" && { sleep 600 >/dev/null & }; "$2"`: "failed:in_use",
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			job := childJob{Root: w.root, Targets: w.targets}.command(t)
			cmd := exec.Command("sh", "-c", script, "sh", a, job.Path)
			cmd.Env, cmd.Stderr = job.Env, os.Stderr
			// A session of its own, so that all of it can be ended.
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			out, err := cmd.Output()
			t.Cleanup(func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
			w.do(err)
			var got []string
			w.do(json.Unmarshal(out, &got))
			if got[0] != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
