package worktree

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unwind/teardown"
)

func (w *world) write(path, content string) {
	w.t.Helper()
	w.do(os.MkdirAll(filepath.Dir(path), 0o755))
	w.do(os.WriteFile(path, []byte(content), 0o644))
}

// TestConversions: git calls a file unchanged when it would store the same; but
// only what it would check out again is safe.
func TestConversions(t *testing.T) {
	t.Parallel()
	const committed = "one\ntwo $Id$\nthree\n"
	utf16 := func(text, mark string) string {
		var b strings.Builder
		b.WriteString(mark)
		for _, r := range text {
			b.WriteString(string([]byte{byte(r), 0}))
		}
		return b.String()
	}
	for _, s := range []struct {
		name, attributes string
		settings         []string
		change           string // the file's new bytes; "" for those that git checks out
		want             string
	}{
		{name: "line ends as checked out", attributes: "*.txt text eol=crlf", want: "removed"},
		{name: "line ends by setting", settings: []string{"core.autocrlf=true"}, want: "removed"},
		{name: "a line with another end", attributes: "*.txt text eol=crlf", change: "one\r\ntwo $Id$\nthree\r\n", want: "preserved:modified"},
		{name: "line ends that git stores otherwise", attributes: "*.txt text", change: "one\r\ntwo $Id$\r\nthree\r\n", want: "preserved:modified"},
		{name: "line ends with autocrlf=input", settings: []string{"core.autocrlf=input"}, change: "one\r\ntwo $Id$\nthree\r\n", want: "preserved:modified"},
		{name: "ident as checked out", attributes: "*.txt ident", want: "removed"},
		{name: "words where ident's are", attributes: "*.txt ident", change: "one\ntwo $Id: a thought of mine $\nthree\n", want: "preserved:modified"},
		{name: "encoding as checked out", attributes: "*.txt working-tree-encoding=UTF-16LE-BOM", want: "removed"},
		{name: "encoding without its mark", attributes: "*.txt working-tree-encoding=UTF-16", change: utf16(committed, "\xff\xfe"), want: "preserved:modified"},
		{name: "a filter that is not known", attributes: "*.txt filter=unknown ident", want: "removed"},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.write(filepath.Join(w.repo, "doc.txt"), committed)
			w.save(w.repo, "doc")
			a := w.worktree("a")
			file := filepath.Join(a, "doc.txt")
			w.write(filepath.Join(w.repo, ".git/info/attributes"), s.attributes+"\n")
			for _, setting := range s.settings {
				name, value, _ := strings.Cut(setting, "=")
				w.git(w.repo, "config", name, value)
			}
			if s.change != "" {
				w.write(file, s.change)
				w.keep(file)
			} else {
				w.do(os.Remove(file))
				w.git(a, "checkout", "-q", "--", "doc.txt")
			}
			if status := w.git(a, "status", "--porcelain"); status != "" {
				t.Skipf("this git says %q", status)
			}
			expect(t, w.removeAll(), s.want)
			if s.want == "removed" {
				return
			}
			// It can be saved, though.
			before := w.stateOf(a)
			report := w.engine.RemoveAll(t.Context(), w.targets, AllHooks{SaveChanges: true})[0]
			expect(t, []Report{report}, "removed")
			recovered, err := w.engine.Recover(t.Context(), RecoverOptions{Repository: w.repo, Ref: report.SavedRef})
			w.do(err)
			w.requireState(before, w.stateOf(recovered.Path))
		})
	}
}

// TestManyConversions has more files than are checked out at a time.
func TestManyConversions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range checkoutBatch + 50 {
		w.write(filepath.Join(w.repo, fmt.Sprintf("many/%d/%d\n.txt", i%7, i)), fmt.Sprintf("%d\nx\n", i))
	}
	w.write(filepath.Join(w.repo, ".gitattributes"), "*.txt text eol=crlf\n")
	w.save(w.repo, "many")
	a := w.worktree("a")
	last := filepath.Join(a, fmt.Sprintf("many/%d/%d\n.txt", 1001%7, 1001))
	content, err := os.ReadFile(last)
	w.do(err)
	w.write(last, strings.Replace(string(content), "\r", "", 1))
	report := w.engine.InspectAll(t.Context(), w.targets, AllHooks{})[0]
	expect(t, []Report{report}, "preserved:modified")
	if len(report.Details) != 1 {
		t.Errorf("details %q", report.Details)
	}
	w.write(last, string(content))
	expect(t, w.removeAll(), "removed")
}

// TestChangesThatKeepSizeAndTime: a stamp is believed only if it cannot lie.
func TestChangesThatKeepSizeAndTime(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"moving aside", "moved aside"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			w.at(step, func() {
				dir := a
				if left := quarantinesAt(a); len(left) > 0 {
					dir = left[0]
				}
				path := filepath.Join(dir, "src/app.txt")
				info, err := os.Stat(path)
				w.do(err)
				w.write(path, "APP V2\n")
				w.do(os.Chtimes(path, info.ModTime(), info.ModTime()))
			})
			expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}), "preserved:modified")
			if content, err := os.ReadFile(filepath.Join(a, "src/app.txt")); err != nil || string(content) != "APP V2\n" {
				t.Errorf("%q %v", content, err)
			}
		})
	}
}

// TestConfigurationChangesAllTheTime: whatever is written into it while we look,
// no program that it names is run.
func TestConfigurationChangesAllTheTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	trap := w.trap()
	a := w.worktree("a")
	w.write(filepath.Join(w.repo, ".git/info/attributes"), "* filter=one ident\n*.md filter=two\n")
	w.appendTo(filepath.Join(a, "src/app.txt"), "edit")
	config := filepath.Join(w.repo, ".git/config")
	plain, err := os.ReadFile(config)
	w.do(err)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-stop:
				_ = os.WriteFile(config, plain, 0o600)
				return
			default:
			}
			text := string(plain)
			for _, name := range []string{"one", "two"} {
				if i%2 == 0 {
					text += fmt.Sprintf("[filter \"%s\"]\n\tclean = %s\n\tsmudge = %s\n\tprocess = %s\n", name, trap, trap, trap)
				}
			}
			draft := fmt.Sprintf("%s.%d", config, i%2)
			_ = os.WriteFile(draft, []byte(text), 0o600)
			_ = os.Rename(draft, config)
			time.Sleep(time.Millisecond)
		}
	}()
	var ref string
	for range 5 {
		report := w.engine.InspectAll(t.Context(), w.targets, AllHooks{})[0]
		expect(t, []Report{report}, "preserved:modified")
	}
	report := w.engine.RemoveAll(t.Context(), w.targets, AllHooks{SaveChanges: true})[0]
	expect(t, []Report{report}, "removed")
	if ref = report.SavedRef; ref != "" {
		_, err := w.engine.Recover(t.Context(), RecoverOptions{Repository: w.repo, Ref: ref})
		w.do(err)
	}
	close(stop)
	<-ended
	w.checkNothingLost(nil)
}

// TestPatternsThatNeverEnd: git would read them until the memory is used up.
func TestPatternsThatNeverEnd(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"core.attributesFile", "core.excludesFile"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.sparse("a")
			w.git(w.repo, "config", setting, "/dev/zero")
			expect(t, w.removeAll(), "preserved:cannot_inspect")
			w.git(w.repo, "config", setting, "/dev/null")
			expect(t, w.removeAll(), "removed")
		})
	}
	for _, name := range []string{"attributes", "exclude"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.sparse("a")
			path := filepath.Join(w.repo, ".git/info", name)
			_ = os.Remove(path)
			w.do(os.Symlink("/dev/zero", path))
			expect(t, w.removeAll(), "preserved:cannot_inspect")
		})
	}
}

func TestComparingShowsProgress(t *testing.T) {
	t.Parallel()
	var reports int
	zeros := strings.NewReader(strings.Repeat("x", 3*reportEvery))
	same, err := sameContent(t.Context(), zeros, strings.NewReader(strings.Repeat("x", 3*reportEvery)), func(teardown.Progress) { reports++ })
	if err != nil || !same || reports != 3 {
		t.Errorf("same %v, %d reports, %v", same, reports, err)
	}
}

// TestContentThatTheRepositoryHasLost: the worktree's file is the last there is.
func TestContentThatTheRepositoryHasLost(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		name  string
		build func(w *world, a string)
	}{
		{"as committed", func(*world, string) {}},
		{"with ignored files", func(w *world, a string) { w.put(filepath.Join(a, "build/out"), "out") }},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.engine.coarseAt = time.Nanosecond
			a := w.worktree("a")
			s.build(w, a)
			w.keep(filepath.Join(a, "src/app.txt"))
			oid := w.git(w.repo, "rev-parse", "main:src/app.txt")
			w.do(os.Remove(filepath.Join(w.repo, ".git/objects", oid[:2], oid[2:])))
			expect(t, w.removeAll(), "preserved:modified")
			// To save it mends the repository.
			clear(w.precious)
			expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{SaveChanges: true}), "removed")
			if text := w.git(w.repo, "cat-file", "blob", oid); text != "app v1" {
				t.Errorf("the content is %q", text)
			}
		})
	}
}
