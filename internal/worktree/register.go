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
	"unicode/utf8"

	"unwind/teardown"
)

// Register makes sure that a target is a linked worktree that could be removed
// one day, and gives it a nonce by which it can be told from a later worktree
// at the same path; one that has a nonce keeps it. The caller holds the path
// lock. Errors are *teardown.Error: path_not_utf8, the refusals (main_worktree,
// unsafe_target, outside_roots), those of the identity check, worktree_missing,
// and the retryable ones.
func (e *Engine) Register(_ context.Context, target Target) (Registered, error) {
	if !utf8.ValidString(target.Path) {
		return Registered{}, &teardown.Error{Code: teardown.CodePathNotUTF8, Message: fmt.Sprintf(
			"the path %s is not UTF-8; a worktree with such a path cannot be registered", printable(target.Path))}
	}
	path, stop := e.checkTarget(target.Path)
	if stop != nil {
		return Registered{}, stop.err()
	}
	target.Nonce = ""
	place, stop := identify(target, path, path)
	if stop == nil && !place.missing() {
		nonce, err := giveNonce(place, NewNonce())
		if err != nil {
			return Registered{}, &teardown.Error{Code: errnoCode(err), Retryable: true, Cause: err,
				Message: fmt.Sprintf("the worktree could not be marked in %s", printable(place.admin))}
		}
		return Registered{Path: path, CommonDir: place.repo.common, AdminDir: place.admin, Branch: branchOf(place.admin), Nonce: nonce}, nil
	}
	if stop == nil || stop.disposition == teardown.DispositionAlreadyGone {
		return Registered{}, &teardown.Error{Code: teardown.CodeWorktreeMissing, Message: fmt.Sprintf(
			"there is no worktree at %s; make one with `git worktree add`", printable(target.Path))}
	}
	return Registered{}, stop.err()
}

// NewNonce makes a nonce that no other worktree has.
func NewNonce() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

// giveNonce writes a nonce as a whole or finds the one that is there.
func giveNonce(p place, nonce string) (string, error) {
	if p.nonce != "" {
		return p.nonce, nil
	}
	path := filepath.Join(p.admin, nonceFile)
	temporary := path + "." + nonce
	defer os.Remove(temporary)
	if err := writeDurably(temporary, []byte(nonce+"\n")); err != nil {
		return "", err
	}
	err := os.Link(temporary, path)
	if errors.Is(err, fs.ErrExist) {
		return readNonce(p.admin)
	}
	return nonce, err
}
