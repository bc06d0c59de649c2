package main

import (
	"errors"
	"fmt"

	"unwind/teardown"
)

// codeUsage is the code of a command line that makes no sense.
const codeUsage teardown.Code = "usage"

// codeInterrupted is the code of a command that was stopped before it was done.
const codeInterrupted teardown.Code = "interrupted"

func usageError(format string, args ...any) *teardown.Error {
	return &teardown.Error{Code: codeUsage, Message: fmt.Sprintf(format, args...)}
}

// failed is an error that a command's run answered, as opposed to one of cobra's
// own, which are all about the command line.
type failed struct{ error }

func (f failed) Unwrap() error { return f.error }

// printedError is what --json prints in the place of the output.
type printedError struct {
	Error errorObject `json:"error"`
}

type errorObject struct {
	Code      teardown.Code `json:"code"`
	Message   string        `json:"message"`
	Retryable bool          `json:"retryable"`
	Details   []string      `json:"details,omitempty"`
}

func errorObjectOf(err error) errorObject {
	object := errorObject{Code: teardown.CodeInternal, Message: sentence(err.Error())}
	var own *teardown.Error
	if errors.As(err, &own) {
		object.Code, object.Retryable, object.Details = own.Code, own.Retryable, own.Details
	}
	return object
}

// end prints what is left to be said of err and answers the exit code.
func (p *program) end(err error) int {
	if err == nil {
		return int(exitDone)
	}
	var ran failed
	if !errors.As(err, &ran) {
		var own *teardown.Error
		if !errors.As(err, &own) {
			err = usageError("%s; see %s --help", err.Error(), name)
		}
	}
	code := exitOf(err)
	var said verdict
	if errors.As(err, &said) {
		return int(code)
	}
	fmt.Fprintf(p.err, "%s: %s\n", name, sentence(err.Error()))
	if p.json {
		p.printJSON(printedError{errorObjectOf(err)})
	}
	return int(code)
}

// brief is an error inside of another sentence: what to do, without the cause.
func brief(err error) string {
	var own *teardown.Error
	if errors.As(err, &own) {
		return sentence(own.Message)
	}
	return sentence(err.Error())
}
