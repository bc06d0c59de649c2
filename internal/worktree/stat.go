package worktree

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// fileID tells one file from another on this machine.
type fileID struct{ dev, ino uint64 }

// stat is what the walk needs to know of one entry.
type stat struct {
	id   fileID
	kind uint32 // unix.S_IFDIR, …
	perm uint32
	uid  uint32
	gid  uint32
	size int64
	// in nanoseconds since 1970
	mtime, ctime int64
	// frozen: an attribute forbids to delete it, even for root.
	frozen bool
	// mount: something is mounted on it.
	mount bool
}

//nolint:unconvert,nolintlint // the widths of these fields differ between systems
func fromUnix(s *unix.Stat_t) stat {
	return stat{
		id:   fileID{uint64(s.Dev), s.Ino},
		kind: uint32(s.Mode) & unix.S_IFMT,
		perm: uint32(s.Mode) &^ unix.S_IFMT,
		uid:  s.Uid,
		gid:  s.Gid,
		size: s.Size,

		mtime: unix.TimespecToNsec(s.Mtim),
		ctime: unix.TimespecToNsec(s.Ctim),
	}
}

func (s stat) stamp() stamp { return stamp{s.id.ino, s.size, s.mtime, s.ctime} }

func fdStat(fd int) (stat, error) {
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return stat{}, err
	}
	return fromUnix(&s), nil
}

func idOf(info os.FileInfo) fileID {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}
	}
	return fileID{uint64(s.Dev), s.Ino} //nolint:unconvert,nolintlint // see fromUnix
}
