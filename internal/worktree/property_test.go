package worktree

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"unwind/teardown"
)

// change is one thing that a person or an agent does to a worktree. What is not
// possible in its state does nothing.
type change struct {
	What, Path, Text string
}

func (c change) String() string { return fmt.Sprintf("%s %q %q", c.What, c.Path, c.Text) }

var changePaths = []string{
	"README.md", "src/app.txt", "src/lib.txt", "src", "new", "dir/new", "dir/deep/er", "dir", "tab\there", "line\nbreak",
	"\xff\xfe", "-dash", "ü", "with space", "*", ".gitignore", "app.log", ".env", "node_modules/m.js", "build/out.txt", "src/build",
}

var changeTexts = []string{"", "one\n", "two\r\n", "\x00\x01\xff", "app v1\n", "lib v1\n", strings.Repeat("long", 50), "*.txt\n", "!.env\n"}

// changes are drawn by their weight.
var changes = []string{
	"write", "write", "write", "append", "append", "delete", "delete", "link", "mode", "mode", "directory", "rename", "pipe",
	"stage", "stage", "stage all", "announce", "unstage", "forget", "assume", "skip", "look again", "commit", "chmod in the index", "repository",
}

func (w *world) change(dir string, c change) {
	path := filepath.Join(dir, c.Path)
	if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeNamedPipe != 0 && (c.What == "write" || c.What == "append") {
		return // it would wait for a reader
	}
	git := func(args ...string) { _, _ = w.tryGit(dir, append([]string{"--literal-pathspecs"}, args...)...) }
	switch c.What {
	case "write":
		_ = os.MkdirAll(filepath.Dir(path), 0o755)
		_ = os.WriteFile(path, []byte(c.Text), 0o644)
	case "append":
		if file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0); err == nil {
			_, _ = file.WriteString("more\n")
			_ = file.Close()
		}
	case "delete":
		_ = os.RemoveAll(path)
	case "link":
		_ = os.MkdirAll(filepath.Dir(path), 0o755)
		_ = os.Remove(path)
		_ = os.Symlink("to "+c.Path, path)
	case "mode":
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
			_ = os.Chmod(path, []os.FileMode{0o644, 0o755, 0o600, 0o700}[len(c.Text)%4])
		}
	case "directory":
		_ = os.MkdirAll(path, 0o755)
	case "rename":
		_ = os.Rename(path, filepath.Join(dir, "renamed"))
	case "pipe":
		_ = unix.Mkfifo(path, 0o600)
	case "repository":
		if len(c.Text) == 0 {
			_ = os.MkdirAll(filepath.Join(dir, "vendor"), 0o755)
			_, _ = w.tryGit(filepath.Join(dir, "vendor"), "init", "-q", ".")
		}
	case "stage":
		git("add", "-f", "--", c.Path)
	case "stage all":
		git("add", "-A")
	case "announce":
		git("add", "-N", "--", c.Path)
	case "unstage":
		git("reset", "-q", "--", c.Path)
	case "forget":
		git("rm", "-rfq", "--cached", "--", c.Path)
	case "assume":
		git("update-index", "--assume-unchanged", "--", c.Path)
	case "skip":
		git("update-index", "--skip-worktree", "--", c.Path)
	case "look again":
		git("update-index", "--no-assume-unchanged", "--no-skip-worktree", "--", c.Path)
	case "commit":
		git("commit", "-q", "--no-verify", "-m", "done")
	case "chmod in the index":
		git("update-index", "--chmod=+x", "--", c.Path)
	}
}

// clean is an opinion of its own on whether a worktree holds nothing that its
// commit does not, regenerable files apart.
func (w *world) clean(dir string, s state) bool {
	committed := map[string]string{}
	for _, record := range strings.Split(w.git(dir, "ls-tree", "-r", "-z", "HEAD"), "\x00") {
		if head, path, found := strings.Cut(record, "\t"); found {
			fields := strings.Fields(head)
			committed[path] = fields[0] + " " + fields[2]
		}
	}
	staged := map[string]bool{}
	for _, record := range strings.Split(s.index, "\x00") {
		head, path, found := strings.Cut(record, "\t")
		if !found {
			continue
		}
		fields := strings.Fields(head)
		if committed[path] != fields[1]+" "+fields[2] || fields[3] != "0" {
			return false
		}
		staged[path] = true
		if _, there := s.files[path]; !there && !strings.EqualFold(fields[0], "s") {
			return false
		}
	}
	if len(staged) != len(committed) {
		return false
	}
	for path, is := range s.files {
		mode := plainMode
		switch {
		case is[0] == 'L':
			mode = linkMode
		case is[3] == 'x':
			mode = executableMode
		}
		if committed[path] != mode+" "+w.rawOID(filepath.Join(dir, path)) {
			return false
		}
	}
	for _, path := range strings.Split(w.git(dir, "ls-files", "-o", "-i", "--exclude-standard", "-z"), "\x00") {
		info, err := os.Lstat(filepath.Join(dir, path))
		regenerable := strings.Contains("/"+path, "/node_modules/") || strings.Contains("/"+path, "/build/")
		if path != "" && err == nil && info.Mode().IsRegular() && !regenerable {
			return false
		}
	}
	return true
}

func (w *world) rawOID(path string) string {
	if target, err := os.Readlink(path); err == nil {
		out, _ := w.tryShell("printf %s '" + strings.ReplaceAll(target, "'", `'\''`) + "' | git hash-object --stdin")
		return strings.TrimSpace(out)
	}
	return w.git(w.root, "hash-object", "--no-filters", "--", path)
}

// TestNothingIsLost builds random states. Without saving, exactly the clean ones
// go and the others stay as they are. With saving, what goes can be given back,
// and what stays does so for something that no commit can hold.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	// Each state takes about a second.
	if checks := flag.Lookup("rapid.checks"); checks != nil && checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set("40")
	}
	_ = flag.Set("rapid.nofailfile", "true")
	w := newWorld(t)
	number := 0
	rapid.Check(t, func(rt *rapid.T) {
		all := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) change {
			return change{What: rapid.SampledFrom(changes).Draw(rt, "what"), Path: rapid.SampledFrom(changePaths).Draw(rt, "path"),
				Text: rapid.SampledFrom(changeTexts).Draw(rt, "text")}
		}), 0, 12).Draw(rt, "changes")
		number++
		w.targets = nil
		dir := w.worktree(fmt.Sprintf("w%d", number))
		for _, c := range all {
			w.change(dir, c)
		}
		w.checkNothingIsLost(rt, dir)
	})
}

func (w *world) checkNothingIsLost(rt *rapid.T, dir string) {
	before, disk := w.stateOf(dir), w.snapshot(dir)
	clean := w.clean(dir, before)
	report := w.engine.RemoveAll(rt.Context(), w.targets, AllHooks{})[0]
	if gone := report.Disposition == teardown.DispositionRemoved; gone != clean {
		rt.Fatalf("clean: %v, but %s: %s %q", clean, verdict(report), report.Message, report.Details)
	}
	if clean {
		return
	}
	if changed := differences(disk, w.snapshot(dir)); len(changed) > 0 {
		rt.Fatalf("%s, but changed: %q", verdict(report), changed)
	}
	report = w.removeSaving()
	if report.Disposition != teardown.DispositionRemoved {
		if changed := differences(disk, w.snapshot(dir)); len(changed) > 0 || report.Disposition != teardown.DispositionPreserved || savable(report.Code) {
			rt.Fatalf("%s: %s %q, changed: %q", verdict(report), report.Message, report.Notes, changed)
		}
		_ = os.RemoveAll(dir)
		w.git(w.repo, "worktree", "prune")
		return
	}
	recovered, err := w.engine.Recover(rt.Context(), RecoverOptions{Repository: w.repo, Ref: report.SavedRef})
	if err != nil {
		rt.Fatalf("recover: %v", err)
	}
	if unlike := before.unlike(w.stateOf(recovered.Path)); unlike != "" {
		rt.Fatalf("recovered is not what was saved: %s", unlike)
	}
	if again := w.removeSaving(); again.Disposition != teardown.DispositionRemoved || again.SavedRef != report.SavedRef {
		rt.Fatalf("saved again: %s in %q, not %q", verdict(again), again.SavedRef, report.SavedRef)
	}
}
