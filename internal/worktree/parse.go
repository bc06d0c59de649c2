package worktree

import (
	"errors"
	"fmt"
	"strings"
)

var errCutOff = errors.New("output of git ends within a record")

// records splits output of git's -z options. Every record ends in NUL; anything
// else means that the output was cut off.
func records(out string) ([]string, error) {
	if out == "" {
		return nil, nil
	}
	if !strings.HasSuffix(out, "\x00") {
		return nil, errCutOff
	}
	return strings.Split(out[:len(out)-1], "\x00"), nil
}

const gitlinkMode = "160000"

// indexEntry is one line of `git ls-files -v -s -z`.
type indexEntry struct {
	path  string
	mode  string
	oid   string
	tag   byte // H, S (skip-worktree), M (unmerged); in lower case: assume-unchanged
	stage byte
}

func (e indexEntry) skipWorktree() bool { return e.tag == 'S' || e.tag == 's' }

// hidden: a flag tells git not to look at the file.
func (e indexEntry) hidden() bool { return e.skipWorktree() || e.tag >= 'a' && e.tag <= 'z' }

// flags are the letters of the flags that the entry has: "a" assume-unchanged,
// "s" skip-worktree.
func (e indexEntry) flags() string {
	flags := ""
	if e.tag >= 'a' && e.tag <= 'z' {
		flags = "a"
	}
	if e.skipWorktree() {
		flags += "s"
	}
	return flags
}

// info is the entry as `git update-index -z --index-info` reads it.
func (e indexEntry) info() string {
	return e.mode + " " + e.oid + " " + string(e.stage) + "\t" + e.path + "\x00"
}

// isListedAs reports whether the entry is this record of `git ls-tree -r -z`.
func (e *indexEntry) isListedAs(record string) bool {
	rest, ok := strings.CutPrefix(record, e.mode+" blob ")
	oid, path, found := strings.Cut(rest, "\t")
	return ok && found && oid == e.oid && path == e.path
}

func parseIndexEntry(record string) (indexEntry, error) {
	head, path, found := strings.Cut(record, "\t")
	// T MODE.. OID S
	end := len(head) - 2
	if !found || path == "" || end < 9 || head[1] != ' ' || head[8] != ' ' || head[end] != ' ' ||
		strings.ContainsRune(head[2:8], ' ') || !isOID(head[9:end]) || head[end+1] < '0' || head[end+1] > '3' {
		return indexEntry{}, fmt.Errorf("git ls-files answered %q", record)
	}
	return indexEntry{tag: head[0], mode: head[2:8], oid: head[9:end], stage: head[end+1], path: path}, nil
}

// statusEntry is one record of `git status --porcelain=v1 -z --no-renames`.
type statusEntry struct {
	index, tree byte
	path        string
}

func (s statusEntry) untracked() bool { return s.index == '?' }
func (s statusEntry) ignored() bool   { return s.index == '!' }

func (s statusEntry) unmerged() bool {
	return s.index == 'U' || s.tree == 'U' || s.index == s.tree && (s.index == 'A' || s.index == 'D')
}

func parseStatus(out string) ([]statusEntry, error) {
	all, err := records(out)
	if err != nil {
		return nil, err
	}
	entries := make([]statusEntry, len(all))
	for i, record := range all {
		if len(record) < 4 || record[2] != ' ' {
			return nil, fmt.Errorf("git status answered %q", record)
		}
		entries[i] = statusEntry{index: record[0], tree: record[1], path: record[3:]}
	}
	return entries, nil
}

// parseRawDiff answers the paths in the -z output of `git diff-index`.
func parseRawDiff(out string) ([]string, error) {
	all, err := records(out)
	if err != nil {
		return nil, err
	}
	if len(all)%2 != 0 {
		return nil, fmt.Errorf("git diff-index answered %d records, not pairs", len(all))
	}
	paths := make([]string, 0, len(all)/2)
	for i := 0; i < len(all); i += 2 {
		if !strings.HasPrefix(all[i], ":") || all[i+1] == "" {
			return nil, fmt.Errorf("git diff-index answered %q", all[i])
		}
		paths = append(paths, all[i+1])
	}
	return paths, nil
}

// parseWorktreeList reads `git worktree list --porcelain -z`.
func parseWorktreeList(out string) ([]Entry, error) {
	all, err := records(out)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	var current *Entry
	for _, record := range all {
		key, value, _ := strings.Cut(record, " ")
		if key == "worktree" {
			entries = append(entries, Entry{Path: value})
			current = &entries[len(entries)-1]
			continue
		}
		if current == nil {
			return nil, fmt.Errorf("git worktree list begins with %q", record)
		}
		switch key {
		case "HEAD":
			current.Head = value
		case "branch":
			current.Branch = strings.TrimPrefix(value, "refs/heads/")
		case "bare":
			current.Bare = true
		case "detached":
			current.Detached = true
		case "locked":
			current.Locked, current.LockReason = true, value
		case "prunable":
			current.Prunable = true
		}
	}
	return entries, nil
}

// refTip is one line of for-each-ref with the format objecttype objectname
// refname.
type refTip struct{ kind, oid, name string }

func parseRefTips(out string) ([]refTip, error) {
	var tips []refTip
	for line := range strings.Lines(out) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
		if len(fields) != 3 || !isOID(fields[1]) || fields[2] == "" {
			return nil, fmt.Errorf("git for-each-ref answered %q", line)
		}
		tips = append(tips, refTip{kind: fields[0], oid: fields[1], name: fields[2]})
	}
	return tips, nil
}

// parseTips reads `git rev-list --parents` and answers the listed commits that
// are no listed commit's parent, in their order.
func parseTips(out string) ([]string, error) {
	parents := map[string]bool{}
	var commits []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			return nil, fmt.Errorf("git rev-list answered an empty line")
		}
		for _, oid := range fields {
			if !isOID(oid) {
				return nil, fmt.Errorf("git rev-list answered %q", line)
			}
		}
		commits = append(commits, fields[0])
		for _, parent := range fields[1:] {
			parents[parent] = true
		}
	}
	var tips []string
	for _, commit := range commits {
		if !parents[commit] {
			tips = append(tips, commit)
		}
	}
	return tips, nil
}

// reflogOIDs answers the object ids in the text of a reflog: the old and the
// new value of each line, without those that mean "none".
func reflogOIDs(text string) []string {
	var oids []string
	for line := range strings.Lines(text) {
		fields := strings.SplitN(line, " ", 3)
		if len(fields) < 3 {
			continue
		}
		for _, oid := range fields[:2] {
			if isOID(oid) && strings.Trim(oid, "0") != "" {
				oids = append(oids, oid)
			}
		}
	}
	return oids
}

func isOID(text string) bool {
	if len(text) != 40 && len(text) != 64 {
		return false
	}
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// parseTree reads `git ls-tree -r -z`.
func parseTree(out string) (map[string]treeEntry, error) {
	all, err := records(out)
	if err != nil {
		return nil, err
	}
	entries := make(map[string]treeEntry, len(all))
	for _, record := range all {
		head, path, found := strings.Cut(record, "\t")
		fields := strings.Split(head, " ")
		if !found || path == "" || len(fields) != 3 || len(fields[0]) != 6 || !isOID(fields[2]) {
			return nil, fmt.Errorf("git ls-tree answered %q", record)
		}
		entries[path] = treeEntry{mode: fields[0], oid: fields[2]}
	}
	return entries, nil
}
