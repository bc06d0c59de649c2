package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
)

// output is the standard output of one command line. It remembers the first
// write that failed and tries no other, so that a command need not look at each.
type output struct {
	to     io.Writer
	failed error
}

func (o *output) Write(text []byte) (int, error) {
	if o.failed != nil {
		return 0, o.failed
	}
	n, err := o.to.Write(text)
	o.failed = err
	return n, err
}

// lost is the failure that a person has to hear of: not that of a reader who has
// seen enough.
func (o *output) lost() error {
	if errors.Is(o.failed, syscall.EPIPE) {
		return nil
	}
	return o.failed
}

// printJSON prints one object on a line of its own.
func (p *program) printJSON(object any) {
	encoder := json.NewEncoder(p.out)
	encoder.SetEscapeHTML(false)
	// What is printed is always fit for JSON, and the output remembers its own
	// failure.
	_ = encoder.Encode(object)
}

// say prints a line for a person to standard output, unless --json is on.
func (p *program) say(format string, args ...any) {
	if !p.json {
		fmt.Fprintf(p.out, format+"\n", args...)
	}
}

// note prints a line for a person to standard error.
func (p *program) note(format string, args ...any) {
	fmt.Fprintf(p.err, format+"\n", args...)
}

// agreed asks on standard error and reads the answer, which is no unless it is yes;
// then it says that nothing was done.
func (p *program) agreed(question, nothing string) bool {
	fmt.Fprint(p.err, question+" [y/N] ")
	if line := bufio.NewScanner(p.in); line.Scan() {
		switch strings.ToLower(strings.TrimSpace(line.Text())) {
		case "y", "yes":
			return true
		}
	}
	p.note("%s", nothing)
	return false
}
