// Package lsof asks the program of that name what processes have open, for
// systems without /proc.
package lsof

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// limit bounds one run: lsof may hang on a mount that does not answer.
const limit = time.Minute

// ErrMissing: there is no lsof here, so nobody can tell.
var ErrMissing = errors.New("this operating system tells it through the program lsof only, which is not installed")

// File is one file that a process has.
type File struct {
	PID int
	// Command is the process's name, shortened by lsof.
	Command string
	// Descriptor is a number, or one of lsof's words for what is none: cwd, rtd, txt, mem.
	Descriptor string
	Name       string
}

// Files lists what processes have open; descriptors, if given, in lsof's form
// ("cwd"), are all that is listed. What may not be looked into is left out.
func Files(ctx context.Context, descriptors ...string) ([]File, error) {
	program, err := exec.LookPath("lsof")
	if err != nil {
		return nil, ErrMissing
	}
	args := []string{"-w", "-n", "-P", "-F", "pcfn0"}
	if len(descriptors) > 0 {
		args = append(args, "-d", strings.Join(descriptors, ","))
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = "/"
	command.WaitDelay = time.Second
	out, err := command.Output()
	// It exits with 1 when there was anything that it could not list.
	if err != nil && (ctx.Err() != nil || len(bytes.TrimSpace(out)) == 0) {
		return nil, errors.Join(errors.New("lsof failed"), ctx.Err(), err)
	}
	return parse(string(out)), nil
}

// parse reads `lsof -F pcfn0`: fields that begin with a letter and end in NUL; p
// begins a process, f a file, and each set of fields ends in a line feed.
func parse(out string) []File {
	var files []File
	var current File
	for field := range strings.SplitSeq(strings.ReplaceAll(out, "\x00\n", "\x00"), "\x00") {
		if field == "" {
			continue
		}
		switch value := field[1:]; field[0] {
		case 'p':
			pid, _ := strconv.Atoi(value)
			current = File{PID: pid}
		case 'c':
			current.Command = unescaped(value)
		case 'f':
			current.Descriptor = value
		case 'n':
			current.Name = unescaped(value)
			files = append(files, current)
		}
	}
	return files
}

var escapes = map[byte]byte{'\\': '\\', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unescaped undoes what lsof does to bytes that are not printable in the locale:
// \xNN, and C's short ones.
func unescaped(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var plain []byte
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			plain = append(plain, text[i])
			continue
		}
		if code, err := strconv.ParseUint(text[min(i+2, len(text)):min(i+4, len(text))], 16, 8); text[i+1] == 'x' && err == nil {
			plain = append(plain, byte(code))
			i += 3
			continue
		}
		short, known := escapes[text[i+1]]
		if !known {
			plain = append(plain, '\\')
			continue
		}
		plain = append(plain, short)
		i++
	}
	return string(plain)
}
