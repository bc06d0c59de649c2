package worktree

import (
	"context"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"unwind/teardown"
)

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
	stat     stat // of a regular file
}

// as reports whether the file is the entry, byte for byte, and as executable.
func (p *proof) as(entry *indexEntry) bool {
	return p.likeness == identical && (entry.mode == linkMode || p.executable() == (entry.mode == executableMode))
}

func (p *proof) executable() bool { return p.stat.perm&0o100 != 0 }

// prover compares the files of a walk with the index by their very bytes, without
// any of git's conversions.
type prover struct {
	contents *contents
	root     int
	proofs   []proof
	newHash  func() hash.Hash
	next     atomic.Int64
	files    atomic.Int64
	bytes    atomic.Int64
	// written: a file is being written, or that could not be told.
	written atomic.Bool
}

// provers bounds how many files are read at a time.
const provers = 4

// prove fills c.proofs and c.resting.
func (c *contents) prove(ctx context.Context) error {
	root, err := openRetry(atCurrent, c.dir)
	if err != nil {
		return err
	}
	p := &prover{contents: c, root: root, proofs: make([]proof, len(c.index.entries)), newHash: c.index.newHash()}
	alive := func() int64 {
		files, bytes := p.files.Load(), p.bytes.Load()
		c.progress(teardown.Progress{Step: "comparing", Files: files, Bytes: bytes, TotalFiles: int64(len(p.proofs))})
		return files + bytes
	}
	c.proofs, err = answered(ctx, c.patience, alive, func() ([]proof, error) {
		defer func() { _ = unix.Close(root) }()
		var workers sync.WaitGroup
		for range min(provers, runtime.GOMAXPROCS(0), len(c.tree.nodes)) {
			workers.Go(func() { p.work(ctx) })
		}
		workers.Wait()
		return p.proofs, ctx.Err()
	})
	c.resting = err == nil && c.rest && !p.written.Load()
	return err
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
	node.each(func(kind byte, name string) {
		number, tracked := c.index.at(join(path, name))
		if !tracked || ctx.Err() != nil {
			return
		}
		entry := &c.index.entries[number]
		if entry.stage != '0' || entry.mode == gitlinkMode {
			return
		}
		p.files.Add(1)
		if dir < 0 {
			var err error
			if dir, err = openDirectoryAt(p.root, path); err != nil {
				return
			}
		}
		p.proofs[number] = p.compare(ctx, dir, kind, name, entry, h, buffer)
	})
	if dir >= 0 {
		_ = unix.Close(dir)
	}
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
	fd, before, err := openRegularFD(dir, name)
	if err != nil {
		p.written.Store(true)
		return proof{}
	}
	defer func() { _ = unix.Close(fd) }()
	writeBlobHeader(h, before.size)
	err = p.copy(ctx, h, fd, before.size, buffer)
	if p.contents.rest && isWritten(fd) {
		p.written.Store(true)
	}
	if err != nil {
		return proof{}
	}
	if after, err := fdStat(fd); err != nil || after != before {
		return proof{}
	}
	return proof{likeness: likenessOf(h, entry.oid), stat: before}
}

// copy reads as many bytes as there were when the file was opened.
func (p *prover) copy(ctx context.Context, to io.Writer, fd int, size int64, buffer []byte) error {
	for size > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := unix.Read(fd, buffer[:min(size, int64(len(buffer)))])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF
		}
		_, _ = to.Write(buffer[:n])
		size -= int64(n)
		p.bytes.Add(int64(n))
	}
	return nil
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
