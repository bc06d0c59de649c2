package worktree

import (
	"errors"

	"golang.org/x/sys/unix"
)

// statAt looks at one entry without following it. statx also tells mount points
// and immutable files, which no other call does.
func statAt(fd int, name string) (stat, error) {
	var x unix.Statx_t
	err := unix.Statx(fd, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS, &x)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		var s unix.Stat_t
		if err := unix.Fstatat(fd, name, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return stat{}, err
		}
		return fromUnix(&s), nil
	}
	if err != nil {
		return stat{}, err
	}
	mode := uint32(x.Mode)
	return stat{
		id:     fileID{unix.Mkdev(x.Dev_major, x.Dev_minor), x.Ino},
		kind:   mode & unix.S_IFMT,
		perm:   mode &^ unix.S_IFMT,
		uid:    x.Uid,
		gid:    x.Gid,
		size:   int64(x.Size),
		mtime:  x.Mtime.Sec*1e9 + int64(x.Mtime.Nsec),
		ctime:  x.Ctime.Sec*1e9 + int64(x.Ctime.Nsec),
		frozen: x.Attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) != 0,
		mount:  x.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0,
	}, nil
}

// instanceOf answers which directory is at a path.
func instanceOf(path string) (instance, error) {
	var x unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &x)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		s, err := statAt(unix.AT_FDCWD, path)
		return instance{Inode: s.id.ino}, err
	}
	i := instance{Inode: x.Ino}
	if x.Mask&unix.STATX_BTIME != 0 {
		i.Born = x.Btime.Sec*1e9 + int64(x.Btime.Nsec)
	}
	return i, err
}

// stampsChanges: the file system at a path is one that stamps each change by the
// clock of this machine, which nobody can set for a single file, and also what is
// written through a mapping that was made after the last change. Others take
// stamps from a server, show those of a moment ago, or have no time of change.
func stampsChanges(path string) bool {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return false
	}
	switch uint32(s.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, zfsMagic, bcachefsMagic:
		return true
	}
	return false
}

const (
	zfsMagic      = 0x2fc12fc1
	bcachefsMagic = 0xca451a4e
)

// isWritten reports whether anybody, in whatever namespace, has a file open for
// writing or mapped to be written, or whether that cannot be told: what is written
// through a mapping need not leave a stamp. Only our own files can be leased.
func isWritten(fd int) bool {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return true
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	return err != nil
}
