package tmux

import "testing"

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		success bool
		stderr  string
		want    answer
	}{
		{true, "", answered},
		{true, "access not allowed", denied},
		{true, "something new", unknown},
		{false, "", unknown},
		{false, "something new", unknown},
		{false, "error connecting to /s (No such file or directory)", noSocket},
		{false, "error connecting to /s (Not a directory)", noSocket},
		{false, "error connecting to /s (File name too long)", unknown},
		{false, "error connecting to /s (Permission denied)", denied},
		{false, "error connecting to /s (Connection refused)", noServer},
		{false, "no server running on /s", noServer},
		{false, "directory /d has unsafe permissions", denied},
		{false, "server exited unexpectedly", exiting},
		{false, "lost server", exiting},
		{false, "no current target", noSessions},
		{false, "can't find session: $1", noSession},
		{false, "unknown variable: X", unsetVariable},
	} {
		if have := classify(c.success, c.stderr); have != c.want {
			t.Errorf("success %v, %q: %v, want %v", c.success, c.stderr, have, c.want)
		}
	}
}

func TestListingThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, out := range []string{"", "\n", "x\n", "7\n$1|1|8|tag||name\n", "7\nagent|1|7|tag||name\n", "7\n$1|x|7|tag||name\n", "7\n$1|1|7|tag|name\n", "7\n$1|1|7|tag||na\nme\n"} {
		if l, err := parseListing(out); err == nil {
			t.Errorf("%q was read as %+v", out, l)
		}
	}
	l, err := parseListing("7\n$1|1|7|tag||a|b\n$2|2|7||g|c\n")
	if found, ok := l.byID("$1"); err != nil || !ok || found.name != "a|b" || found.tag != "tag" || len(l.sessions) != 2 {
		t.Errorf("%+v %v", l, err)
	}
}
