package resource_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestExchangedForALink exchanges a directory and a link in one system call, as
// fast as it can, so that the look and the opening see different things often.
// The link leads to a place inside the root, which os.Root by itself follows.
func TestExchangedForALink(t *testing.T) {
	t.Parallel()
	for kind, resource := range map[string]string{"file": "work/precious", "dir": "work"} {
		t.Run(kind, func(t *testing.T) {
			p := setup(t)
			neighbour := p.dir(filepath.Join(p.root, "neighbour"))
			p.file(filepath.Join(neighbour, "precious"))
			p.file(filepath.Join(neighbour, "dir", "precious"))
			work, link := filepath.Join(p.root, "work"), filepath.Join(p.root, "link")
			p.link("neighbour", link) // os.Root follows relative links only

			var stop atomic.Bool
			var swapper sync.WaitGroup
			swapper.Go(func() {
				for !stop.Load() {
					_ = unix.Renameat2(unix.AT_FDCWD, work, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
				}
			})
			for i, deadline := 0, time.Now().Add(time.Second); time.Now().Before(deadline); i++ {
				_ = unix.Mkdir(work, 0o755)
				_ = unix.Symlink("neighbour", link) // Clear may have removed it in the directory's place
				_, _ = p.clear(kind, filepath.Join(p.root, resource))
				p.dir(filepath.Join(p.root, "more", fmt.Sprint(i%50)))
			}
			stop.Store(true)
			swapper.Wait()
			require.DirExists(t, neighbour)
			p.requireIntact(neighbour)
		})
	}
}
