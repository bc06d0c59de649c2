package worktree

import (
	"bufio"
	"compress/zlib"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strconv"
	"strings"

	"unwind/teardown"
)

// missing answers which of the files' contents the repository does not have,
// each once.
func missing(ctx context.Context, git *repositoryGit, files []capturedFile) ([]capturedFile, error) {
	byOID := map[string]capturedFile{}
	var oids strings.Builder
	for _, f := range files {
		if _, seen := byOID[f.oid]; !seen {
			byOID[f.oid] = f
			oids.WriteString(f.oid + "\n")
		}
	}
	out, err := git.run(ctx, strings.NewReader(oids.String()), "cat-file", "--batch-check=%(objecttype)")
	if err != nil {
		return nil, err
	}
	var absent []capturedFile
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		oid, isAbsent := strings.CutSuffix(line, " missing")
		switch {
		case isAbsent && byOID[oid].oid == oid:
			absent = append(absent, byOID[oid])
		case line != "blob":
			return nil, fmt.Errorf("git cat-file answered %q", line)
		}
	}
	return absent, nil
}

// packer stores contents as they are on disk: git's own commands would open
// files by name, and convert them.
type packer struct {
	git      *repositoryGit
	root     int // the directory that holds the files
	newHash  func() hash.Hash
	progress func(teardown.Progress)
}

// store stores the contents of the files. A file that is not any more what was
// captured is errChanged.
func (p *packer) store(ctx context.Context, files []capturedFile) error {
	if len(files) == 0 {
		return nil
	}
	reader, writer := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := p.write(ctx, writer, files)
		writer.CloseWithError(err)
		written <- err
	}()
	_, err := p.git.run(ctx, reader, "index-pack", "--stdin")
	_ = reader.Close()
	// Why the pack ended early says more than that git did not like it.
	if failed := <-written; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
		return failed
	}
	return err
}

// write writes a pack in git's format, version 2, without deltas.
func (p *packer) write(ctx context.Context, to io.Writer, files []capturedFile) error {
	checksum := p.newHash()
	buffered := bufio.NewWriterSize(to, 64<<10)
	out := io.MultiWriter(buffered, checksum)
	header := append([]byte("PACK"), 0, 0, 0, 2)
	if _, err := out.Write(binary.BigEndian.AppendUint32(header, uint32(len(files)))); err != nil {
		return err
	}
	var bytes int64
	for i, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.writeBlob(out, f); err != nil {
			return err
		}
		if bytes += f.size; i%256 == 0 || f.size > 1<<20 {
			p.progress(teardown.Progress{Step: "saving", Files: int64(i), Bytes: bytes, TotalFiles: int64(len(files))})
		}
	}
	if _, err := buffered.Write(checksum.Sum(nil)); err != nil {
		return err
	}
	return buffered.Flush()
}

const packedBlob = 3

func (p *packer) writeBlob(out io.Writer, f capturedFile) error {
	content, err := p.open(f)
	if err != nil {
		return err
	}
	defer content.Close()
	size := uint64(f.size)
	header := []byte{packedBlob<<4 | byte(size&0xf)}
	for size >>= 4; size > 0; size >>= 7 {
		header[len(header)-1] |= 0x80
		header = append(header, byte(size&0x7f))
	}
	if _, err := out.Write(header); err != nil {
		return err
	}
	compressed, err := zlib.NewWriterLevel(out, zlib.BestSpeed)
	if err != nil {
		return err
	}
	h := blobHash(p.newHash, f.size)
	n, err := io.Copy(io.MultiWriter(compressed, h), content)
	if err != nil {
		return err
	}
	if n != f.size || hex.EncodeToString(h.Sum(nil)) != f.oid {
		return fmt.Errorf("%s: %w", printable(f.path), errChanged)
	}
	return compressed.Close()
}

// open answers the content that a file has by now.
func (p *packer) open(f capturedFile) (io.ReadCloser, error) {
	if f.mode == linkMode {
		target, err := readLink(p.root, f.path)
		return io.NopCloser(strings.NewReader(target)), changedIfGone(err)
	}
	file, _, err := openRegular(p.root, f.path, nil)
	if err != nil {
		return nil, changedIfGone(err)
	}
	return file, nil
}

// compare reads the contents back from the repository and compares them with
// the files, byte for byte.
func (p *packer) compare(ctx context.Context, files []capturedFile) error {
	return eachBlob(ctx, p.git, files, func(f capturedFile, stored io.Reader) error {
		content, err := p.open(f)
		if err != nil {
			return err
		}
		defer content.Close()
		same, err := sameContent(ctx, content, stored, p.progress)
		if err == nil && !same {
			err = fmt.Errorf("%s: %w", printable(f.path), errChanged)
		}
		return err
	})
}

// eachBlob reads the contents of files out of the repository, in their order.
func eachBlob(ctx context.Context, git *repositoryGit, files []capturedFile, visit func(f capturedFile, content io.Reader) error) error {
	if len(files) == 0 {
		return nil
	}
	var oids strings.Builder
	for _, f := range files {
		oids.WriteString(f.oid + "\n")
	}
	reader, writer := io.Pipe()
	read := make(chan error, 1)
	go func() {
		err := readBlobs(ctx, reader, files, visit)
		_ = reader.CloseWithError(err)
		read <- err
	}()
	err := git.stream(ctx, strings.NewReader(oids.String()), writer, "cat-file", "--batch")
	_ = writer.CloseWithError(io.ErrUnexpectedEOF)
	if failed := <-read; failed != nil {
		return errors.Join(failed, err)
	}
	return err
}

func readBlobs(ctx context.Context, from io.Reader, files []capturedFile, visit func(capturedFile, io.Reader) error) error {
	in := bufio.NewReaderSize(from, 64<<10)
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != f.oid || fields[1] != "blob" {
			return fmt.Errorf("git cat-file answered %q", line)
		}
		size, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return err
		}
		content := io.LimitReader(in, size)
		if err := visit(f, content); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			return err
		}
		if end, err := in.ReadByte(); err != nil || end != '\n' {
			return errors.Join(err, fmt.Errorf("git cat-file answered more than %d bytes", size))
		}
	}
	return nil
}

// packerFor opens the directory that holds the files.
func (e *Engine) packerFor(ctx context.Context, git *repositoryGit, dir string, hooks Hooks, work func(*packer) error) error {
	newHash, err := objectHash(ctx, git)
	if err != nil {
		return err
	}
	fd, err := openRetry(atCurrent, dir)
	if err != nil {
		return err
	}
	root := os.NewFile(uintptr(fd), dir)
	defer root.Close()
	return work(&packer{git: git, root: int(root.Fd()), newHash: newHash, progress: hooks.report})
}
