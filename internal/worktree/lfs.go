package worktree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// maxPointer bounds the size of a Git LFS pointer.
const maxPointer = 1024

// forgiveLFS takes files back out of the modified ones whose committed content
// is a Git LFS pointer that names exactly the file's bytes. With filters
// switched off git compares the bytes with the pointer.
func (c *contents) forgiveLFS(ctx context.Context) error {
	wanted := map[string]bool{}
	for _, path := range append(c.tracked.modified, c.tracked.hidden...) {
		wanted[path] = true
	}
	if len(wanted) == 0 {
		return nil
	}
	pointers, err := c.pointers(ctx, c.index.find(wanted))
	if err != nil || len(pointers) == 0 {
		return err
	}
	root, err := openRetry(atCurrent, c.dir)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(root), c.dir)
	defer dir.Close()
	still := func(paths []string) (kept []string) {
		for _, path := range paths {
			pointer, found := pointers[path]
			if !found || !pointer.names(int(dir.Fd()), path) {
				kept = append(kept, path)
			}
		}
		return kept
	}
	c.tracked.modified, c.tracked.hidden = still(c.tracked.modified), still(c.tracked.hidden)
	return nil
}

// pointers answers which of the entries hold an LFS pointer.
func (c *contents) pointers(ctx context.Context, entries []indexEntry) (map[string]lfsPointer, error) {
	small, err := c.smallBlobs(ctx, entries)
	if err != nil || len(small) == 0 {
		return nil, err
	}
	var oids strings.Builder
	for _, entry := range small {
		oids.WriteString(entry.oid + "\n")
	}
	out, err := c.git.run(ctx, strings.NewReader(oids.String()), "cat-file", "--batch")
	if err != nil {
		return nil, err
	}
	blobs, err := parseBatch(out)
	if err != nil {
		return nil, err
	}
	pointers := map[string]lfsPointer{}
	for _, entry := range small {
		if pointer, ok := parsePointer(blobs[entry.oid]); ok {
			pointers[entry.path] = pointer
		}
	}
	return pointers, nil
}

func (c *contents) smallBlobs(ctx context.Context, entries []indexEntry) ([]indexEntry, error) {
	var oids strings.Builder
	for _, entry := range entries {
		oids.WriteString(entry.oid + "\n")
	}
	out, err := c.git.run(ctx, strings.NewReader(oids.String()), "cat-file", "--batch-check")
	if err != nil {
		return nil, err
	}
	small := map[string]bool{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[1] != "blob" {
			continue
		}
		if size, err := strconv.Atoi(fields[2]); err == nil && size <= maxPointer {
			small[fields[0]] = true
		}
	}
	var found []indexEntry
	for _, entry := range entries {
		if entry.stage == '0' && small[entry.oid] {
			found = append(found, entry)
		}
	}
	return found, nil
}

// parseBatch reads `git cat-file --batch`: objects by id.
func parseBatch(out string) (map[string]string, error) {
	objects := map[string]string{}
	for out != "" {
		head, rest, found := strings.Cut(out, "\n")
		fields := strings.Fields(head)
		if found && len(fields) == 2 && fields[1] == "missing" {
			out = rest
			continue
		}
		if !found || len(fields) != 3 {
			return nil, fmt.Errorf("git cat-file answered %q", head)
		}
		size, err := strconv.Atoi(fields[2])
		if err != nil || size < 0 || size >= len(rest) || rest[size] != '\n' {
			return nil, fmt.Errorf("git cat-file answered %q and %d bytes", head, len(rest))
		}
		objects[fields[0]], out = rest[:size], rest[size+1:]
	}
	return objects, nil
}

// lfsPointer names the content of a file that Git LFS keeps elsewhere.
type lfsPointer struct {
	sha256 string
	size   int64
}

func parsePointer(text string) (lfsPointer, bool) {
	if !strings.HasPrefix(text, "version https://git-lfs.github.com/spec/v1\n") {
		return lfsPointer{}, false
	}
	pointer := lfsPointer{size: -1}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch key {
		case "oid":
			pointer.sha256, _ = strings.CutPrefix(value, "sha256:")
		case "size":
			size, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return lfsPointer{}, false
			}
			pointer.size = size
		}
	}
	return pointer, len(pointer.sha256) == 2*sha256.Size && pointer.size >= 0
}

func (p lfsPointer) names(root int, path string) bool {
	file, s, err := openRegular(root, path, nil)
	if err != nil {
		return false
	}
	defer file.Close()
	if s.size != p.size {
		return false
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return false
	}
	return hex.EncodeToString(hash.Sum(nil)) == p.sha256
}
