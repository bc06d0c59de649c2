package worktree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"unwind/teardown"
)

// savedRefs is the namespace of uncommitted work that was saved. Nothing in it
// is ever overwritten or deleted by unwind.
const savedRefs = "refs/unwind/saved"

// SavedRef is where the uncommitted work of a session's worktree is saved; of a
// task's, holder is "task=" and its id. Work that differs from what is there already goes to the same name with "-2", "-3"
// and so on.
func SavedRef(holder string, generation int64, worktreeID string) string {
	return savedRefs + "/" + holder + "/" + strconv.FormatInt(generation, 10) + "/" + worktreeID
}

// savedByHand is where a worktree's work is saved without a session.
func savedByHand(path string) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		if r < 0x80 && teardown.ValidateID("x"+string(r)) == nil {
			return r
		}
		return '-'
	}, filepath.Base(path)), "-_")
	// A number could be a generation of a session called by-hand.
	if len(name) > 64 {
		name = name[:64]
	}
	if strings.Trim(name, "0123456789") == "" {
		name = "worktree-" + name
	}
	return savedRefs + "/by-hand/" + name
}

// A saved state is a commit of the shape of git's stash, so that git alone can
// bring it back, too:
//
//	work   tree: every file on disk that git does not ignore, with its raw bytes
//	├── head, if there was a commit
//	└── index   tree: the index
//	    ├── head, if there was a commit
//	    └── about   tree: one file, savedAbout
//
// work has index as its last parent, index has about.
const aboutFile = "unwind-saved"

// savedAbout is what the trees of a saved state cannot say.
type savedAbout struct {
	path, branch string // branch "" if HEAD was detached
	intents      []intent
	flags        []flagged
	perms        []permission
}

// intent is an entry of `git add --intent-to-add`.
type intent struct{ mode, path string }

// flagged is an entry with a flag; see indexEntry.flags.
type flagged struct{ flags, path string }

// permission is that of a file, where it is not the usual one of its mode (0644,
// 0755).
type permission struct {
	perm uint32
	path string
}

func (a *savedAbout) sort() {
	slices.SortFunc(a.intents, func(x, y intent) int { return cmp.Compare(x.path, y.path) })
	slices.SortFunc(a.flags, func(x, y flagged) int { return cmp.Compare(x.path, y.path) })
	slices.SortFunc(a.perms, func(x, y permission) int { return cmp.Compare(x.path, y.path) })
}

// format is a list of records that end in NUL, each a word, a space and its
// value. Paths may hold any bytes but NUL.
func (a savedAbout) format() []byte {
	var b strings.Builder
	record := func(format string, args ...any) { fmt.Fprintf(&b, format+"\x00", args...) }
	record("version 1")
	record("path %s", a.path)
	if a.branch != "" {
		record("branch %s", a.branch)
	}
	for _, i := range a.intents {
		record("intent %s\t%s", i.mode, i.path)
	}
	for _, f := range a.flags {
		record("flags %s\t%s", f.flags, f.path)
	}
	for _, p := range a.perms {
		record("perm %04o\t%s", p.perm, p.path)
	}
	return []byte(b.String())
}

func parseAbout(text string) (savedAbout, error) {
	var a savedAbout
	all, err := records(text)
	if err != nil || len(all) == 0 || all[0] != "version 1" {
		return a, fmt.Errorf("it was not saved by this version of unwind")
	}
	for _, record := range all[1:] {
		word, value, _ := strings.Cut(record, " ")
		first, path, tabbed := strings.Cut(value, "\t")
		tabbed = tabbed && first != "" && path != ""
		switch {
		case word == "path" && filepath.IsAbs(value):
			a.path = value
		case word == "branch" && value != "":
			a.branch = value
		case word == "intent" && tabbed && (first == plainMode || first == executableMode || first == linkMode):
			a.intents = append(a.intents, intent{mode: first, path: path})
		case word == "flags" && tabbed && strings.Trim(first, "as") == "":
			a.flags = append(a.flags, flagged{flags: first, path: path})
		case word == "perm" && tabbed:
			perm, err := strconv.ParseUint(first, 8, 16)
			if err != nil || perm > 0o777 {
				return a, fmt.Errorf("its record %q is not understood", record)
			}
			a.perms = append(a.perms, permission{perm: uint32(perm), path: path})
		default:
			return a, fmt.Errorf("its record %q is not understood", record)
		}
	}
	if a.path == "" {
		return a, fmt.Errorf("it does not say where it was saved from")
	}
	return a, nil
}

// savedState is a saved state as the repository holds it.
type savedState struct {
	commit       string
	head         string // "" if there was no commit
	work, index  string // trees
	about        savedAbout
	formatted    string // about as it is stored
	indexHistory string // the commit of the index
}

// same: the state is saved there, byte for byte and mode for mode.
func (s savedState) same(c *capture) bool {
	return s.head == c.head && s.work == c.work && s.index == c.index && s.formatted == string(c.about)
}

var errNotSaved = errors.New("it is not a state that unwind saved")

// readSaved reads the saved state that a commit holds.
func readSaved(ctx context.Context, git *repositoryGit, commit string) (savedState, error) {
	s := savedState{commit: commit}
	var parents []string
	var err error
	if s.work, parents, err = readCommit(ctx, git, commit); err != nil {
		return s, err
	}
	if len(parents) == 0 || len(parents) > 2 {
		return s, errNotSaved
	}
	s.indexHistory = parents[len(parents)-1]
	if len(parents) == 2 {
		s.head = parents[0]
	}
	var about string
	if s.index, parents, err = readCommit(ctx, git, s.indexHistory); err != nil {
		return s, err
	}
	if len(parents) == 0 {
		return s, errNotSaved
	}
	about = parents[len(parents)-1]
	s.formatted, err = git.run(ctx, nil, "cat-file", "blob", about+":"+aboutFile)
	if exitedWith(err, 128) {
		return s, errNotSaved
	}
	if err == nil {
		s.about, err = parseAbout(s.formatted)
	}
	return s, err
}

func readCommit(ctx context.Context, git *repositoryGit, commit string) (tree string, parents []string, err error) {
	text, err := git.run(ctx, nil, "cat-file", "commit", commit)
	if err != nil {
		return "", nil, err
	}
	for line := range strings.Lines(text) {
		word, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case word == "tree" && isOID(value):
			tree = value
		case word == "parent" && isOID(value):
			parents = append(parents, value)
		case word == "author":
			return tree, parents, nil
		}
	}
	return "", nil, fmt.Errorf("git cat-file answered a commit without an author")
}

// savedUnder lists what was saved under a ref's name, the newest first.
func savedUnder(ctx context.Context, git *repositoryGit, base string) ([]refTip, error) {
	out, err := git.run(ctx, nil, "for-each-ref", "--format=%(objecttype) %(objectname) %(refname)", base, base+"-*")
	if err != nil {
		return nil, err
	}
	all, err := parseRefTips(out)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(tip refTip) bool { return tip.kind != "commit" || savedNumber(tip.name, base) == 0 })
	slices.SortFunc(all, func(a, b refTip) int { return savedNumber(b.name, base) - savedNumber(a.name, base) })
	return all, nil
}

// savedNumber is 1 for the base itself, 2 for its first other, 0 for a ref that
// is neither.
func savedNumber(ref, base string) int {
	if ref == base {
		return 1
	}
	number, found := strings.CutPrefix(ref, base+"-")
	n, err := strconv.Atoi(number)
	if !found || err != nil || n < 2 || strconv.Itoa(n) != number {
		return 0
	}
	return n
}

func savedName(base string, number int) string {
	if number == 1 {
		return base
	}
	return base + "-" + strconv.Itoa(number)
}
