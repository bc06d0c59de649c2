package worktree

import (
	"errors"
	"io/fs"
	"os"

	"unwind/teardown"
)

// Whereabouts says where the directory of a registered worktree is.
type Whereabouts int

const (
	// Absent: neither at its path nor in quarantine; what is at the path, if
	// anything, is another one.
	Absent Whereabouts = iota
	// AtPath: at its path. A directory that could not be told from it counts as
	// the worktree, for what could not be told is not gone.
	AtPath
	// Aside: in quarantine, and its path is free, so that PutBack can put it back.
	Aside
)

// Locate finds a registered worktree's directory; quarantine is where its row
// says that it was moved, "" if nowhere. It changes nothing. The caller holds
// the path lock. Codes: path_occupied if it is in quarantine and something else
// at its path, and the retryable ones.
func (e *Engine) Locate(target Target, quarantine string) (Whereabouts, error) {
	path, err := CanonicalPath(target.Path)
	if err != nil {
		return Absent, err
	}
	if quarantine != "" {
		if err := checkQuarantine(quarantine, path); err != nil {
			return Absent, err
		}
		aside, err := exists(quarantine)
		if err != nil {
			return Absent, err
		}
		taken, err := exists(path)
		switch {
		case err != nil:
			return Absent, err
		case aside && taken:
			return Aside, pathTaken(path, quarantine)
		case aside:
			return Aside, nil
		}
	}
	place, stop := identify(target, path, path)
	switch {
	case stop == nil && place.missing():
		return Absent, nil
	case stop == nil:
		return AtPath, nil
	case stop.disposition == teardown.DispositionFailed:
		return Absent, stop.err()
	case stop.disposition != teardown.DispositionPreserved:
		return Absent, nil
	}
	// A worktree that was moved is found by its nonce, but not at its path.
	if there, err := exists(path); err != nil || !there {
		return Absent, err
	}
	return AtPath, nil
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err == nil, nil
	}
	return false, &teardown.Error{Code: errnoCode(err), Retryable: true, Cause: err, Message: "it could not be told what is at " + printable(path)}
}
