package resource_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"unwind/teardown"
)

const inNamespace = "UNWIND_RESOURCE_TEST_NAMESPACE"

// TestMountsAreNeverCrossed runs itself again in a mount namespace of its own.
func TestMountsAreNeverCrossed(t *testing.T) {
	if os.Getenv(inNamespace) != "" {
		clearMounts(t)
		return
	}
	t.Parallel()
	again := exec.Command(os.Args[0], "-test.run=^TestMountsAreNeverCrossed$", "-test.v")
	again.Env = append(os.Environ(), inNamespace+"=1")
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	output, err := again.CombinedOutput()
	if again.ProcessState == nil {
		t.Skipf("no mount namespace to be had here: %v", err)
	}
	require.NoError(t, err, "%s", output)
}

func clearMounts(t *testing.T) {
	p := setup(t)
	mount := func(source, target, kind string, flags uintptr) {
		if err := unix.Mount(source, target, kind, flags, ""); err != nil {
			t.Skipf("mounting is not allowed here: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	}
	mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE)

	other := p.dir(filepath.Join(p.root, "other", "deep", "mounted"))
	mount("tmpfs", other, "tmpfs", 0)
	inside := p.file(filepath.Join(other, "inside"))
	// One device, so that the device alone does not tell.
	bound := p.dir(filepath.Join(p.root, "bound", "deep", "mounted"))
	mount(p.outside, bound, "", unix.MS_BIND)
	boundFile := p.file(filepath.Join(p.root, "file"))
	mount(filepath.Join(p.outside, "precious"), boundFile, "", unix.MS_BIND)

	for kind, paths := range map[string][]string{
		"dir":  {other, filepath.Join(p.root, "other"), bound, filepath.Join(p.root, "bound")},
		"file": {boundFile},
	} {
		for _, path := range paths {
			_, err := p.clear(kind, path)
			requireError(t, err, teardown.CodeMountPoint, false)
		}
	}
	require.FileExists(t, inside)
	p.requireOutsideIntact()

	// A mount on the way to the resource is somebody's disk, not a trap.
	_, err := p.clear("file", inside)
	require.NoError(t, err)
	requireGone(t, inside)
}
