package worktree

import (
	"strings"
	"testing"
)

func FuzzStatus(f *testing.F) {
	for _, seed := range []string{"", "?? a\x00", " M src/app.txt\x00!! build/\x00", "UU a b\nc\x00", "?? cut", "AM \x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, out string) {
		entries, err := parseStatus(out)
		if err != nil {
			return
		}
		var again strings.Builder
		for _, e := range entries {
			again.WriteString(string([]byte{e.index, e.tree}) + " " + e.path + "\x00")
		}
		if again.String() != out {
			t.Errorf("%q was read as %q", out, again.String())
		}
	})
}

func FuzzIndexEntry(f *testing.F) {
	oid := strings.Repeat("a1", 20)
	for _, seed := range []string{"H 100644 " + oid + " 0\ta", "s 160000 " + oid + " 2\tnew\nline\tb", "H 100644 " + oid + " 0", "? x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		entry, err := parseIndexEntry(line)
		if err == nil && string(entry.tag)+" "+entry.info() != line+"\x00" {
			t.Errorf("%q was read as %q", line, entry.info())
		}
	})
}

func FuzzRawDiff(f *testing.F) {
	for _, seed := range []string{"", ":100644 000000 a b D\x00src/app.txt\x00", ":x\x00\x00", "x\x00y\x00", ":x\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, out string) {
		paths, err := parseRawDiff(out)
		if err == nil && strings.Count(out, "\x00") != 2*len(paths) {
			t.Errorf("%q has paths %q", out, paths)
		}
	})
}

func FuzzWorktreeList(f *testing.F) {
	for _, seed := range []string{"", "worktree /a\x00HEAD 1\x00branch refs/heads/a\x00\x00", "worktree /b\x00bare\x00\x00worktree /c\nd\x00detached\x00locked why\x00prunable\x00\x00", "HEAD 1\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, out string) {
		entries, err := parseWorktreeList(out)
		if err == nil && len(entries) > strings.Count(out, "worktree") {
			t.Errorf("%q lists %d worktrees", out, len(entries))
		}
	})
}

func FuzzTips(f *testing.F) {
	a, b, c := strings.Repeat("a", 40), strings.Repeat("b", 40), strings.Repeat("c", 64)
	for _, seed := range []string{"", a + " " + b + "\n" + b + "\n", a + "\n" + b + " " + c + "\n", "\n", "-" + a + "\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, out string) {
		tips, err := parseTips(out)
		if err != nil {
			return
		}
		for _, tip := range tips {
			if strings.Contains(out, " "+tip) {
				t.Errorf("%q is a tip and a parent in %q", tip, out)
			}
		}
	})
}

func FuzzRefTips(f *testing.F) {
	for _, seed := range []string{"", "commit " + strings.Repeat("a", 40) + " refs/worktree/x\n", "tag 1 refs/x\n", "commit\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, out string) {
		tips, err := parseRefTips(out)
		for _, tip := range tips {
			if err == nil && (!isOID(tip.oid) || tip.name == "") {
				t.Errorf("%q was read as %+v", out, tip)
			}
		}
	})
}

func FuzzReflog(f *testing.F) {
	a, b := strings.Repeat("a", 40), strings.Repeat("0", 40)
	for _, seed := range []string{"", b + " " + a + " T <t@x> 1 +0000\tcommit: x\n", "garbage\n", a + " " + a} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, oid := range reflogOIDs(text) {
			if !isOID(oid) || strings.Trim(oid, "0") == "" {
				t.Errorf("%q is no object", oid)
			}
		}
	})
}

func FuzzBatch(f *testing.F) {
	for _, seed := range []string{"", "a blob 3\nabc\n", "a missing\n", "a blob 9\nabc\n", "a blob -1\n\n", "a blob 0\n\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, out string) {
		objects, err := parseBatch(out)
		total := 0
		for _, content := range objects {
			total += len(content)
		}
		if err == nil && total > len(out) {
			t.Errorf("%d bytes came out of %d", total, len(out))
		}
	})
}

func FuzzPointer(f *testing.F) {
	for _, seed := range []string{lfsPointerText("x"), "version https://git-lfs.github.com/spec/v1\nsize 1\n", "", "version https://git-lfs.github.com/spec/v1\noid sha256:x\nsize -1\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if pointer, ok := parsePointer(text); ok && (len(pointer.sha256) != 64 || pointer.size < 0) {
			t.Errorf("%q was read as %+v", text, pointer)
		}
	})
}

func FuzzSettings(f *testing.F) {
	for _, seed := range []string{"", "core.eol\ncrlf\x00filter.x.clean\nrm\x00", "core.filemode\x00core.excludesfile\na\"b\\c\nd\te#;\x00", "core.eol\ncut"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, out string) {
		settings, err := parseSettings(out)
		if err != nil {
			return
		}
		for _, s := range settings {
			if !contentSettings[s.key] || s.value != "" && !s.valued {
				t.Errorf("%+v was read from %q", s, out)
			}
		}
		// One line for the section and one for the setting.
		if lines := strings.Count(settings.format(), "\n"); lines != 2*len(settings) {
			t.Errorf("%d lines for %d settings", lines, len(settings))
		}
	})
}

func FuzzTree(f *testing.F) {
	oid := strings.Repeat("a1", 20)
	for _, seed := range []string{"", "100644 blob " + oid + "\ta\x00120000 blob " + oid + "\tnew\nline\x00", "100644 blob " + oid + "\t\x00", "x\x00", "cut"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, out string) {
		entries, err := parseTree(out)
		if err == nil && len(entries) > strings.Count(out, "\x00") {
			t.Errorf("%q has %d entries", out, len(entries))
		}
	})
}

func FuzzAbout(f *testing.F) {
	for _, seed := range []string{"", "version 1\x00", "version 1\x00path /a\x00branch b\x00intent 100644\ta\x00flags as\tb\x00perm 0600\tc\x00", "version 1\x00perm 1\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		about, err := parseAbout(text)
		if err != nil {
			return
		}
		again, err := parseAbout(string(about.format()))
		if err != nil || string(again.format()) != string(about.format()) {
			t.Errorf("%q was read as %+v, %v", text, about, err)
		}
	})
}

func FuzzKept(f *testing.F) {
	oid := strings.Repeat("a1", 20)
	for _, seed := range []string{"", oid + " refs/unwind/rescue/a/1 1700000000 a subject\n", oid + " refs/unwind/rescue/a/1  \n", oid + "\n", "x refs/y 1 z\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, out string) {
		kept, err := parseKept(out)
		for _, ref := range kept {
			if err == nil && (!isOID(ref.Commit) || ref.Ref == "" || strings.ContainsAny(ref.Ref, " \n")) {
				t.Errorf("%q was read as %+v", out, ref)
			}
		}
	})
}
