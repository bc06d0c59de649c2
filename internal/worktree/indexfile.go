package worktree

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"strconv"
	"time"
)

// writeIndex writes an index in git's format, version 2, with the given entries
// and no flags. A file that is proven to be identical gets its stat data, so that
// git reads every other one, and none twice.
func writeIndex(path string, entries []indexEntry, proofs []proof, newHash func() hash.Hash) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(file, 256<<10)
	checksum := newHash()
	out := io.MultiWriter(buffered, checksum)
	header := binary.BigEndian.AppendUint32([]byte("DIRC\x00\x00\x00\x02"), uint32(len(entries)))
	_, err = out.Write(header)
	var line []byte
	for i := range entries {
		if err != nil {
			break
		}
		if line, err = appendEntry(line[:0], &entries[i], &proofs[i]); err == nil {
			_, err = out.Write(line)
		}
	}
	if err == nil {
		_, err = buffered.Write(checksum.Sum(nil))
	}
	if err == nil {
		err = buffered.Flush()
	}
	return errors.Join(err, file.Close())
}

const maxNameInFlags = 0xfff

func appendEntry(line []byte, e *indexEntry, p *proof) ([]byte, error) {
	mode, err := strconv.ParseUint(e.mode, 8, 32)
	if err != nil {
		return nil, err
	}
	oid, err := hex.DecodeString(e.oid)
	if err != nil {
		return nil, err
	}
	var s stat
	if p.likeness == identical {
		s = p.stat
	}
	put := func(n uint64) { line = binary.BigEndian.AppendUint32(line, uint32(n)) }
	for _, at := range []int64{s.ctime, s.mtime} {
		put(uint64(at / int64(time.Second)))
		put(uint64(at % int64(time.Second)))
	}
	put(s.id.dev)
	put(s.id.ino)
	put(mode)
	put(uint64(s.uid))
	put(uint64(s.gid))
	put(uint64(s.size))
	line = append(line, oid...)
	line = binary.BigEndian.AppendUint16(line, uint16(e.stage-'0')<<12|uint16(min(len(e.path), maxNameInFlags)))
	line = append(line, e.path...)
	for pad := 8 - len(line)%8; pad > 0; pad-- {
		line = append(line, 0)
	}
	return line, nil
}
