package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// streams are what a command reads and writes, and what it may assume of them.
type streams struct {
	in  io.Reader
	out io.Writer // what was asked for
	err io.Writer // errors, progress and hints

	inTerminal  bool
	outTerminal bool
	errTerminal bool
	width       int // columns of the terminal at out, 0 if it is none
	height      int // lines of it
	colour      bool
}

func systemStreams(getenv func(string) string) streams {
	s := streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	s.width, s.height, s.outTerminal = terminal(os.Stdout)
	_, _, s.errTerminal = terminal(os.Stderr)
	_, _, s.inTerminal = terminal(os.Stdin)
	s.colour = s.outTerminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
	return s
}

// terminal reports whether a file is one, and its size.
func terminal(file *os.File) (columns, lines int, is bool) {
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return int(size.Col), int(size.Row), true
}

// style is a colour or weight of text on a terminal.
type style string

const (
	plain  style = ""
	bold   style = "1"
	faint  style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

func (s streams) styled(text string, as style) string {
	if !s.colour || as == plain || text == "" {
		return text
	}
	return "\x1b[" + string(as) + "m" + text + "\x1b[0m"
}
