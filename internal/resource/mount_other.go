//go:build !linux

package resource

import (
	"fmt"
	"os"
	"syscall"
)

// mount identifies what a directory is mounted from: the device.
type mount struct{ device uint64 }

func mountOf(dir *os.Root) (mount, error) {
	info, err := dir.Stat(".")
	if err != nil {
		return mount{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return mount{}, fmt.Errorf("%s: the system does not tell the device", dir.Name())
	}
	return mount{device: uint64(stat.Dev)}, nil
}
