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

// fileSystems are the names of file systems by their numbers; ext4's is that of
// ext2 and ext3, too.
var fileSystems = map[uint32]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.F2FS_SUPER_MAGIC: "f2fs",
	0x2fc12fc1: "zfs", 0xca451a4e: "bcachefs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.TMPFS_MAGIC: "tmpfs",
}

// fileSystemOf answers the kind of file system at a path, "" for any other.
func fileSystemOf(path string) string {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return ""
	}
	return fileSystems[uint32(s.Type)]
}
