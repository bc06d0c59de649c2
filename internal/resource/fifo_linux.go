package resource

import (
	"os"

	"golang.org/x/sys/unix"
)

func makeFIFOAt(dir *os.File, name string) error {
	return unix.Mkfifoat(int(dir.Fd()), name, 0o600)
}
