// Package worktree inspects and removes linked git worktrees without losing
// anything that a person could miss. It is the only package that touches git.
//
// A worktree is removed only after everything in it was proved to be safe
// elsewhere, by content and with git hardened against the repository's own
// configuration. What could not be inspected is not clean. The directory is
// moved aside in one rename, looked at again, and deleted by descriptor without
// following links or crossing mounts; a crash at any point leaves it as it was
// or is resumed. A branch is never deleted, no process is killed, and nothing
// that the repository names is run, but for the filters that a checkout needs
// when a worktree is made.
package worktree

import (
	"context"
	"os"
	"time"

	"unwind/internal/lock"
	"unwind/teardown"
)

// IgnoredPolicy says what git-ignored files are worth.
type IgnoredPolicy string

const (
	// IgnoredKeepPrecious, the default: a worktree goes only if each ignored
	// file lies below a directory with a well-known regenerable name, is a link,
	// or equals the main checkout's file at the same path.
	IgnoredKeepPrecious IgnoredPolicy = "keep_precious"
	// IgnoredDiscard: ignored files are not precious (git's own rule). Nested
	// repositories still are.
	IgnoredDiscard IgnoredPolicy = "discard"
	// IgnoredPreserve: any ignored file keeps the worktree.
	IgnoredPreserve IgnoredPolicy = "preserve"
)

// DefaultGitLimit bounds one run of git when Engine.GitLimit is zero.
const DefaultGitLimit = 10 * time.Minute

// DefaultLockWait is how long to wait for a lock when Engine.LockWait is zero.
const DefaultLockWait = 30 * time.Second

// Engine inspects and removes worktrees. Its methods may be called at the same
// time. The process should have "/" as its working directory, or a directory
// that holds no target.
type Engine struct {
	// Roots are the directories below which targets must lie, strictly. With
	// none, every target is refused.
	Roots []string
	// Home is never removed, nor anything above it. Empty means the user's.
	Home string
	// Ignored is IgnoredKeepPrecious if empty.
	Ignored IgnoredPolicy
	Locks   lock.Dir
	// Git is the program, "git" if empty.
	Git string
	// GitLimit bounds one run of git.
	GitLimit time.Duration
	// LockWait bounds the wait for a repository lock, and in RemoveAll for a
	// path lock.
	LockWait time.Duration

	// answerIn is defaultPatience if zero. Tests set it.
	answerIn time.Duration
	// coarseAt is coarse if zero. Tests set it.
	coarseAt time.Duration
	// reached is called at each step boundary of a removal. Tests set it.
	reached func(step string)
}

// Target is one worktree to look at.
type Target struct {
	// Repository is any directory of the repository: its main worktree, a linked
	// one, or its common directory. Empty means the one that Path's .git file
	// names.
	Repository string
	// Path is absolute, and may hold any bytes except NUL.
	Path string
	// Nonce is the one that Register returned. Empty (by hand) means that only
	// the two-way link between directory and registry decides.
	Nonce string
	// Parent is the path of the target that contains this one. Only InspectAll
	// and RemoveAll use it, beside what the paths tell.
	Parent string
}

// Finding is one thing that was found, in the policy's order.
type Finding struct {
	Code teardown.Code
	// Paths names what was found: paths relative to the worktree, commits,
	// processes or refs, made printable; at most teardown.MaxDetails.
	Paths []string
	// Total counts what was found when Paths lists only the first.
	Total int
	// Note is a sentence for a person.
	Note string
	// Retryable: it may pass by itself.
	Retryable bool
}

// Report is everything that was found about one target, and what was done.
type Report struct {
	// Path is the target's path as it was given.
	Path string
	// Repository is the main checkout, or the common directory if there is none.
	Repository string
	// Branch is the short name of the checked-out branch, "" if detached.
	Branch string
	// Head is the checked-out commit, "" if there is none.
	Head string
	// Disposition of an inspection is what a removal would come to: removed
	// means "would be removed".
	Disposition teardown.Disposition
	// Code is the first finding's.
	Code      teardown.Code
	Retryable bool
	// Details says what was found, at most teardown.MaxDetails entries and one
	// that counts the rest. Entries that belong to another code than Code begin
	// with it.
	Details []string
	// Bytes and Files are the sizes of all regular files and their number, as
	// found, also of what was removed.
	Bytes, Files int64
	Findings     []Finding
	// Unanchored lists commits that only this worktree reaches. They never keep
	// it: a removal makes a rescue ref for each.
	Unanchored []string
	// Rescued lists the refs that were made for them.
	Rescued []string
	// SavedRef is where uncommitted work was saved, by this attempt or an earlier
	// one. "" if none was.
	SavedRef string
	// Quarantine is where the directory stays, if it was moved aside and not put
	// back.
	Quarantine string
	// Notes says what else a person may want to know, such as processes that
	// could not be looked at.
	Notes []string
	// Message is a sentence for a person.
	Message string
}

// Journal keeps the facts of one removal. Each is written before the effect
// that it announces.
type Journal interface {
	// Quarantine answers what an earlier attempt wrote; "" if nothing.
	Quarantine() (path string, condemned bool)
	// SavedRef answers where an earlier attempt saved uncommitted work; "" if
	// nowhere.
	SavedRef() string
	// Saved is called when uncommitted work is in a ref, before MovingAside. On
	// an error nothing is renamed.
	Saved(ctx context.Context, ref string) error
	// MovingAside is called before the rename. In the same write it takes back
	// an earlier Condemned. On an error nothing is renamed.
	MovingAside(ctx context.Context, quarantinePath string) error
	// Condemned is called before anything is deleted. On an error the directory
	// is put back.
	Condemned(ctx context.Context) error
}

// Hooks connects a removal to its caller.
type Hooks struct {
	// Name names the quarantine and the rescue refs and follows the rules of an
	// id: the row's id, or random if empty.
	Name string
	// SaveRef asks to save uncommitted work before the worktree is removed, and
	// says where; see SaveOptions.Ref. Empty: uncommitted work keeps the worktree.
	SaveRef string
	// RuntimeEnds: processes that work in the worktree are going to be ended
	// before its removal. Only inspections heed it.
	RuntimeEnds bool
	// Progress is called often during walks, deletion and waiting.
	Progress func(teardown.Progress)
	// Inherit are open lock files that the git children get, so that they hold
	// the lock even if this process is killed.
	Inherit []*os.File
}

// Registered is what Register found and made.
type Registered struct {
	Path      string // canonical
	CommonDir string
	AdminDir  string
	Branch    string // short name, "" if detached
	Nonce     string
}

// Entry is one worktree in a repository's list, the main one first.
type Entry struct {
	Path       string
	Head       string
	Branch     string // short name
	Bare       bool
	Detached   bool
	Locked     bool
	LockReason string
	Prunable   bool
}
