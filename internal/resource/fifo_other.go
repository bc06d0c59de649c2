//go:build !linux

package resource

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// makeFIFOAt goes by the path: there is no mkfifoat in this system's library.
func makeFIFOAt(dir *os.File, name string) error {
	return unix.Mkfifo(filepath.Join(dir.Name(), name), 0o600)
}
