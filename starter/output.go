package main

import (
	"encoding/json"
	"fmt"
)

// printJSON prints one object on a line of its own.
func (p *program) printJSON(object any) {
	encoder := json.NewEncoder(p.out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(object); err != nil {
		fmt.Fprintf(p.err, "%s: the output could not be written: %v\n", name, err)
	}
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

// ask prints a question to standard error, with the cursor behind it.
func (p *program) ask(question string) { fmt.Fprint(p.err, question) }
