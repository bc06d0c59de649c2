package worktree

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"unwind/teardown"
)

// recoverReason is how the registration of a recovery that is under way is
// locked; the saved ref follows.
const recoverReason = "unwind recover is not finished: "

var errOthers = errors.New("something in it is not of the saved work")

// clearUnfinished deletes what a recovery of the same ref to the same path left
// when it was killed. It deletes nothing else: if anything there is not the
// beginning of what was saved, all stays. The path lock and the repository's are
// held.
func (r *recovery) clearUnfinished(ctx context.Context, path string) error {
	entries, err := r.repo.registrations()
	if err != nil {
		return err
	}
	here := at(entries, path)
	if len(here) != 1 {
		return nil
	}
	reason, err := readSmall(filepath.Join(here[0].admin, lockFile))
	if err != nil || reason != recoverReason+r.options.Ref {
		return ignoreAbsent(err)
	}
	err = r.checkUnfinished(ctx, path)
	if errors.Is(err, errOthers) {
		return nil
	}
	if err != nil {
		return err
	}
	r.admin = here[0].admin
	defer func() { r.admin = "" }()
	return r.undo(path)
}

// checkUnfinished: the directory is not there, or every file in it is a file of
// the saved work, as far as it was written.
func (r *recovery) checkUnfinished(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return ignoreAbsent(err)
	}
	var visits atomic.Int64
	found, err := walk(ctx, path, idOf(info), nil, &visits, r.hooks.report)
	if err != nil {
		return err
	}
	if len(found.nested) > 0 || len(found.mounts) > 0 || len(found.unreadable) > 0 {
		return errOthers
	}
	git := r.git()
	saved, err := listTree(ctx, git, r.state.work)
	if err != nil {
		return err
	}
	var files []capturedFile
	for i := range found.nodes {
		dir := found.path(int32(i))
		found.nodes[i].each(func(_ byte, name string) {
			entry, known := saved[join(dir, name)]
			if !known {
				err = errOthers
			}
			files = append(files, capturedFile{path: join(dir, name), mode: entry.mode, oid: entry.oid})
		})
	}
	if err != nil {
		return err
	}
	root, err := openRetry(atCurrent, path)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(root) }()
	return eachBlob(ctx, git, files, func(f capturedFile, content io.Reader) error {
		return isBeginning(ctx, root, f, content, r.hooks.report)
	})
}

func isBeginning(ctx context.Context, root int, f capturedFile, content io.Reader, progress func(teardown.Progress)) error {
	if f.mode == linkMode {
		target, err := readLink(root, f.path)
		if err != nil {
			return errOthers
		}
		return unlessSame(ctx, strings.NewReader(target), content, progress)
	}
	file, s, err := openRegular(root, f.path, nil)
	if errors.Is(err, fs.ErrPermission) {
		return err
	}
	if err != nil {
		return errOthers
	}
	defer file.Close()
	return unlessSame(ctx, file, io.LimitReader(content, s.size), progress)
}

func unlessSame(ctx context.Context, a, b io.Reader, progress func(teardown.Progress)) error {
	same, err := sameContent(ctx, a, b, progress)
	if err == nil && !same {
		err = errOthers
	}
	return err
}
