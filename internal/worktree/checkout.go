package worktree

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"unwind/teardown"
)

// checkoutBatch bounds how many files, and how many bytes of the worktree's, are
// checked out at a time.
const (
	checkoutBatch      = 1000
	checkoutBatchBytes = 256 << 20
)

// notReproduced answers the files that git calls unchanged although their bytes
// are not those in the index (line ends, `ident`, another encoding), unless
// checking them out gives back exactly these bytes.
func (c *contents) notReproduced(ctx context.Context, git *repositoryGit, dir string) ([]string, error) {
	changed := map[string]bool{}
	for _, path := range append(append([]string(nil), c.tracked.modified...), c.tracked.hidden...) {
		changed[path] = true
	}
	var lost, batch []string
	var size int64
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		unlike, err := c.checkOut(ctx, git, filepath.Join(dir, "checkout"), batch)
		lost, batch, size = append(lost, unlike...), nil, 0
		return err
	}
	for i, p := range c.proofs {
		path := c.index.entries[i].path
		if p.likeness != different || changed[path] {
			continue
		}
		batch, size = append(batch, path), size+p.stat.size
		if len(batch) < checkoutBatch && size < checkoutBatchBytes {
			continue
		}
		if err := flush(); err != nil {
			return nil, err
		}
		c.progress(teardown.Progress{Step: "comparing", Files: int64(i), TotalFiles: int64(len(c.proofs))})
	}
	return lost, flush()
}

// checkOut answers which of the files differ from what git checks out. No filter
// is known to this git.
func (c *contents) checkOut(ctx context.Context, git *repositoryGit, dir string, paths []string) ([]string, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	names := strings.Join(paths, "\x00") + "\x00"
	if _, err := git.run(ctx, strings.NewReader(names), "checkout-index", "-z", "--stdin", "--force", "--prefix="+dir+"/"); err != nil {
		return nil, err
	}
	ours, err := openRetry(atCurrent, c.dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(ours) }()
	theirs, err := openRetry(atCurrent, dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(theirs) }()
	var unlike []string
	for _, path := range paths {
		same, err := c.sameFile(ctx, ours, theirs, path)
		if err != nil {
			return nil, err
		}
		if !same {
			unlike = append(unlike, path)
		}
	}
	return unlike, nil
}

func (c *contents) sameFile(ctx context.Context, ours, theirs int, path string) (bool, error) {
	target, err := readLink(ours, path)
	if err == nil {
		other, err := readLink(theirs, path)
		return err == nil && target == other, nil
	}
	if !errors.Is(err, unix.EINVAL) {
		return false, nil
	}
	one, _, err := openRegular(ours, path, nil)
	if err != nil {
		return false, nil
	}
	defer one.Close()
	other, _, err := openRegular(theirs, path, nil)
	if err != nil {
		return false, nil
	}
	defer other.Close()
	return sameContent(ctx, one, other, c.progress)
}

// sameContent compares two contents byte by byte. What cannot be read is not the
// same.
func sameContent(ctx context.Context, a, b io.Reader, progress func(teardown.Progress)) (bool, error) {
	one, other := make([]byte, compareBlock), make([]byte, compareBlock)
	var compared int64
	for {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n, err := io.ReadFull(a, one)
		m, otherErr := io.ReadFull(b, other)
		if n != m || string(one[:n]) != string(other[:m]) {
			return false, nil
		}
		ended := func(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
		if ended(err) && ended(otherErr) {
			return true, nil
		}
		if err != nil || otherErr != nil {
			return false, nil
		}
		if compared += int64(n); compared%reportEvery == 0 {
			progress(teardown.Progress{Step: "comparing", Bytes: compared})
		}
	}
}

const (
	compareBlock = 64 << 10
	reportEvery  = 64 * compareBlock
)
