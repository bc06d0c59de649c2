package worktree

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"unwind/internal/lock"
)

// scratchPrefix begins the names of our temporary directories.
const scratchPrefix = "unwind-scratch-"

// sweepOnce: what a killed process left is looked for once in each process.
var sweepOnce sync.Once

// scratch makes a temporary directory of our own, which is locked as long as it
// is used, so that what a killed process leaves can be told from it.
func scratch() (dir string, done func(), err error) {
	sweepOnce.Do(func() { sweepScratch(os.TempDir()) })
	for range 10 {
		if dir, err = os.MkdirTemp("", scratchPrefix); err != nil {
			return "", nil, err
		}
		held, err := lock.Directory(context.Background(), dir, lock.Wait{})
		if err == nil && isDirectory(dir) {
			return dir, func() {
				_ = os.RemoveAll(dir)
				held.Release()
			}, nil
		}
		// Another process took it for a leftover before it was locked.
		held.Release()
		_ = os.RemoveAll(dir)
	}
	return "", nil, errChanged
}

// sweepScratch deletes what nobody uses any more.
func sweepScratch(parent string) {
	names, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, name := range names {
		dir := filepath.Join(parent, name.Name())
		if !name.IsDir() || !strings.HasPrefix(name.Name(), scratchPrefix) {
			continue
		}
		info, err := name.Info()
		if err != nil {
			continue
		}
		if _, ours := ownedByUs(info); !ours {
			continue
		}
		// Without locks, what is in use cannot be told from what is not.
		if held, err := lock.Directory(context.Background(), dir, lock.Wait{}); err == nil && held != nil {
			_ = os.RemoveAll(dir)
			held.Release()
		}
	}
}
