package resource

import (
	"os"

	"golang.org/x/sys/unix"
)

// mount identifies what a directory is mounted from: the device, and where the
// kernel tells it (5.8 and later) the mount, which bind mounts of one device do
// not share.
type mount struct{ device, id uint64 }

func mountOf(dir *os.Root) (mount, error) {
	file, err := dir.Open(".")
	if err != nil {
		return mount{}, err
	}
	defer func() { _ = file.Close() }()
	var stat unix.Statx_t
	err = unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &stat)
	if err != nil {
		return mount{}, &os.PathError{Op: "statx", Path: file.Name(), Err: err}
	}
	m := mount{device: unix.Mkdev(stat.Dev_major, stat.Dev_minor)}
	if stat.Mask&unix.STATX_MNT_ID != 0 {
		m.id = stat.Mnt_id
	}
	return m, nil
}
