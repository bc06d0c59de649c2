package worktree

// instance tells a directory from a later one at the same path, also after a
// reboot. Inode numbers are used again, and some file systems have another
// device number each time they are mounted, so the time of its birth decides
// where the file system tells it.
type instance struct {
	Inode uint64 `json:"inode"`
	Born  int64  `json:"born,omitempty"` // nanoseconds since 1970; 0 if not known
}

func (i instance) same(other instance) bool {
	if i.Born != 0 && other.Born != 0 {
		return i.Born == other.Born
	}
	return i.Inode == other.Inode
}

// isInstance reports whether the directory at a path is the one that was seen
// before.
func isInstance(path string, was instance) bool {
	is, err := instanceOf(path)
	return err == nil && is.same(was)
}
