package worktree

import (
	"context"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"unwind/teardown"
)

// stamp changes whenever a file's content, permissions or names do.
type stamp struct {
	ino                uint64
	size, mtime, ctime int64 // times in nanoseconds since 1970
}

// coarse is the coarsest clock by which a file system stamps changes. A change
// that follows another within it may leave the same stamp.
const coarse = 3 * time.Second

// likeness is how a tracked file's bytes compare with those in the index.
type likeness uint8

const (
	unread    likeness = iota
	identical          // byte for byte
	different
)

// proof is what is known of the file of one entry of the index.
type proof struct {
	likeness likeness
	// settled: a later change cannot have left the same stamp.
	settled bool
	stat    stat
}

// prover compares the files of a walk with the index by their very bytes, without
// any of git's conversions. What a proof of the first look holds for is not read
// again.
type prover struct {
	contents *contents
	root     int
	newHash  func() hash.Hash
	next     atomic.Int64
	files    atomic.Int64
	bytes    atomic.Int64
}

// provers bounds how many files are read at a time.
const provers = 4

// prove fills c.proofs.
func (c *contents) prove(ctx context.Context) error {
	c.proofs = make([]proof, len(c.index.entries))
	root, err := openRetry(atCurrent, c.dir)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(root), c.dir)
	defer dir.Close()
	p := &prover{contents: c, root: int(dir.Fd()), newHash: c.settings.newHash()}
	ended := make(chan struct{})
	var workers sync.WaitGroup
	for range min(provers, runtime.GOMAXPROCS(0), len(c.tree.nodes)) {
		workers.Go(func() { p.work(ctx) })
	}
	go func() {
		workers.Wait()
		close(ended)
	}()
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			return ctx.Err()
		case <-ticker.C:
			c.progress(teardown.Progress{Step: "comparing", Files: p.files.Load(), Bytes: p.bytes.Load(), TotalFiles: int64(len(c.index.entries))})
		}
	}
}

func (p *prover) work(ctx context.Context) {
	h, buffer := p.newHash(), make([]byte, 64<<10)
	for ctx.Err() == nil {
		i := p.next.Add(1) - 1
		if i >= int64(len(p.contents.tree.nodes)) {
			return
		}
		p.directory(ctx, int32(i), h, buffer)
	}
}

func (p *prover) directory(ctx context.Context, i int32, h hash.Hash, buffer []byte) {
	c := p.contents
	dir := -1
	path := c.tree.path(i)
	node := &c.tree.nodes[i]
	node.each(func(n int, kind byte, name string) {
		number, tracked := c.index.at[join(path, name)]
		if !tracked || ctx.Err() != nil {
			return
		}
		entry := &c.index.entries[number]
		if entry.stage != '0' || entry.mode == gitlinkMode {
			return
		}
		p.files.Add(1)
		if known := c.proven(number, node.stamps[n]); known != nil {
			c.proofs[number] = *known
			return
		}
		if dir < 0 {
			var err error
			if dir, err = openDirectoryAt(p.root, path); err != nil {
				return
			}
		}
		c.proofs[number] = p.compare(ctx, dir, kind, name, entry, h, buffer)
	})
	if dir >= 0 {
		_ = unix.Close(dir)
	}
}

// proven answers the proof of the first look that still holds.
func (c *contents) proven(number int32, now stamp) *proof {
	if c.before == nil || c.before.index.raw != c.index.raw {
		return nil
	}
	known := &c.before.proofs[number]
	if known.likeness == identical && known.settled && known.stat.stamp() == now {
		return known
	}
	return nil
}

// compare reads one file. What cannot be read, or is changed while it is read,
// is left to git.
func (p *prover) compare(ctx context.Context, dir int, kind byte, name string, entry *indexEntry, h hash.Hash, buffer []byte) proof {
	if (kind == link) != (entry.mode == linkMode) {
		return proof{likeness: different}
	}
	h.Reset()
	if kind == link {
		target, err := readLinkAt(dir, name)
		if err != nil {
			return proof{}
		}
		writeBlobHeader(h, int64(len(target)))
		_, _ = io.WriteString(h, target)
		return proof{likeness: likenessOf(h, entry.oid)}
	}
	began := time.Now()
	file, before, err := openRegularIn(dir, name)
	if err != nil {
		return proof{}
	}
	defer file.Close()
	writeBlobHeader(h, before.size)
	n, err := p.copy(ctx, h, file, buffer)
	after, statErr := fdStat(int(file.Fd()))
	if err != nil || statErr != nil || n != before.size || after != before {
		return proof{}
	}
	return proof{likeness: likenessOf(h, entry.oid), stat: after, settled: began.UnixNano()-after.ctime > int64(coarse)}
}

func (p *prover) copy(ctx context.Context, to io.Writer, from io.Reader, buffer []byte) (int64, error) {
	var total int64
	for ctx.Err() == nil {
		n, err := from.Read(buffer)
		_, _ = to.Write(buffer[:n])
		total += int64(n)
		p.bytes.Add(int64(n))
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
	return total, ctx.Err()
}

func likenessOf(h hash.Hash, oid string) likeness {
	var sum [64]byte
	var text [128]byte
	n := hex.Encode(text[:], h.Sum(sum[:0]))
	if string(text[:n]) == oid {
		return identical
	}
	return different
}
