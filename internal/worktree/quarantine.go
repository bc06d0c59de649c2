package worktree

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"unwind/teardown"
)

const (
	quarantineMark = ".unwind-"
	maxName        = 255
	maxID          = 128 // see teardown.ValidateID
)

// quarantineName is a sibling's name that says whose it is.
func quarantineName(base, name string, attempt int) string {
	suffix := quarantineMark + name
	if attempt > 0 {
		suffix += "-" + strconv.Itoa(attempt)
	}
	if room := maxName - len(suffix) - 1; len(base) > room {
		base = base[:max(room, 0)]
	}
	return "." + base + suffix
}

// isQuarantineOf: the name is one that quarantineName gives. A long base was cut
// to make room.
func isQuarantineOf(name, base string) bool {
	end := strings.LastIndex(name, quarantineMark)
	if end < 0 {
		return false
	}
	suffix := name[end+len(quarantineMark):]
	// With the number of an attempt, a long id is longer than an id may be.
	id := suffix[:min(len(suffix), maxID)]
	return teardown.ValidateID(id) == nil && strings.Trim(suffix[len(id):], "-0123456789") == "" &&
		name == quarantineName(base, suffix, 0)
}

// isRemains: nothing is left of a quarantine but its .git file, which goes after
// the registration, so that it leads there until all is done.
func isRemains(quarantine string) bool {
	entries, err := os.ReadDir(quarantine)
	return err == nil && (len(entries) == 0 || len(entries) == 1 && entries[0].Name() == ".git" && entries[0].Type().IsRegular())
}

// freeQuarantine answers a path beside the worktree at which nothing is.
func freeQuarantine(path, name string) (string, error) {
	for attempt := range 100 {
		candidate := filepath.Join(filepath.Dir(path), quarantineName(filepath.Base(path), name, attempt))
		_, err := os.Lstat(candidate)
		if errors.Is(err, fs.ErrNotExist) {
			return candidate, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("a hundred quarantines are beside %s: %w", printable(path), fs.ErrExist)
}

func randomName() string {
	var bytes [8]byte
	_, _ = rand.Read(bytes[:])
	return "hand-" + hex.EncodeToString(bytes[:])
}

// checkQuarantine: only what we could have named ourselves is ever touched.
func checkQuarantine(quarantine, path string) error {
	if filepath.Dir(quarantine) == filepath.Dir(path) && isQuarantineOf(filepath.Base(quarantine), filepath.Base(path)) {
		return nil
	}
	return &teardown.Error{Code: teardown.CodeInternal, Message: fmt.Sprintf(
		"%s is not a quarantine of %s; look at both by hand", printable(quarantine), printable(path))}
}

// PutBack undoes an unfinished removal that was not condemned: it renames the
// quarantined directory back. A quarantine that is not there while the path is
// occupied by the worktree counts as put back. The caller holds the path lock.
// Codes: path_occupied if something else is at the path, worktree_missing if
// the directory is at neither place, those of the identity check, and the
// retryable ones.
func (e *Engine) PutBack(_ context.Context, target Target, quarantine string) error {
	path, err := CanonicalPath(target.Path)
	if err != nil {
		return err
	}
	if err := checkQuarantine(quarantine, path); err != nil {
		return err
	}
	dir := quarantine
	if !isDirectory(quarantine) {
		dir = path
	}
	place, stop := identify(target, path, dir)
	if stop != nil {
		return stop.err()
	}
	if place.missing() {
		return &teardown.Error{Code: teardown.CodeWorktreeMissing, Message: fmt.Sprintf(
			"neither %s nor %s is there", printable(path), printable(quarantine))}
	}
	if dir != path {
		err = putBack(quarantine, path)
	}
	if err == nil {
		unmark(place.admin)
	}
	return err
}

func putBack(quarantine, path string) error {
	err := renameNoReplace(quarantine, path)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist):
		return pathTaken(path, quarantine)
	}
	return &teardown.Error{Code: errnoCode(err), Retryable: true, Details: []string{printable(quarantine)}, Cause: err,
		Message: fmt.Sprintf("the worktree could not be put back from %s", printable(quarantine))}
}

func pathTaken(path, quarantine string) error {
	return &teardown.Error{Code: teardown.CodePathOccupied, Details: []string{printable(quarantine)}, Message: fmt.Sprintf(
		"something else is at %s by now, so the worktree stays at %s; move one of them", printable(path), printable(quarantine))}
}

// err is the verdict as an error, for callers that need the worktree whole.
func (h *halt) err() error {
	return &teardown.Error{Code: h.finding.Code, Message: h.finding.Note, Details: h.finding.Paths, Retryable: h.finding.Retryable}
}
