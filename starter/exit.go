package main

import (
	"errors"

	"unwind/teardown"
)

// exitCode is how a command ends. When several things ended in different ways,
// the worst one counts; see worst.
type exitCode int

const (
	exitDone        exitCode = 0
	exitPreserved   exitCode = 3  // something could be lost; a person decides
	exitFailed      exitCode = 4  // attempts are used up, or an error of ours
	exitUsage       exitCode = 64 // what was asked is ill-formed or contradicts itself
	exitRefused     exitCode = 65 // understood, and not done
	exitUnavailable exitCode = 69 // Temporal or the database does not answer
	exitRetryable   exitCode = 75 // try again, or still under way
)

// precedence: of several codes, the first that occurs.
var precedence = []exitCode{exitUsage, exitUnavailable, exitRefused, exitFailed, exitRetryable, exitPreserved, exitDone}

func worst(codes ...exitCode) exitCode {
	for _, candidate := range precedence {
		for _, code := range codes {
			if code == candidate {
				return code
			}
		}
	}
	return exitDone
}

// verdict ends a command whose output has said everything already.
type verdict exitCode

func (v verdict) Error() string { return "ended otherwise than done" }

// asVerdict is nil for exitDone.
func asVerdict(code exitCode) error {
	if code == exitDone {
		return nil
	}
	return verdict(code)
}

func exitOf(err error) exitCode {
	var v verdict
	var own *teardown.Error
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &v):
		return exitCode(v)
	case errors.As(err, &own):
		return exitOfCode(own.Code, own.Retryable)
	}
	return exitFailed
}

func exitOfCode(code teardown.Code, retryable bool) exitCode {
	switch code {
	case codeUsage, teardown.CodeInvalidID, teardown.CodeInvalidManifest, teardown.CodePathNotUTF8, teardown.CodeInvalidConfig:
		return exitUsage
	case teardown.CodeTemporalUnavailable, teardown.CodeDatabaseUnavailable:
		return exitUnavailable
	}
	if retryable {
		return exitRetryable
	}
	switch code {
	case teardown.CodeInternal, teardown.CodeIOError, teardown.CodePermissionDenied, teardown.CodeTimeout, teardown.CodeGitFailed:
		return exitFailed
	}
	return exitRefused
}

// exitOfDisposition is for a worktree that was dealt with by hand: there is
// nobody else who would try again.
func exitOfDisposition(disposition teardown.Disposition, retryable bool) exitCode {
	switch disposition {
	case teardown.DispositionPreserved:
		return exitPreserved
	case teardown.DispositionRefused:
		return exitRefused
	case teardown.DispositionFailed:
		if retryable {
			return exitRetryable
		}
		return exitFailed
	case teardown.DispositionPending, teardown.DispositionSuperseded:
		return exitRetryable
	}
	return exitDone
}

// exitOfResult is for a finalization that ended or waits for a person.
func exitOfResult(result teardown.Result) exitCode {
	codes := []exitCode{exitOfOutcome(result.Outcome)}
	for _, runtime := range result.Runtimes {
		if runtime.Outcome == teardown.RuntimeRefused {
			codes = append(codes, exitRefused)
		}
	}
	for _, worktree := range result.Worktrees {
		switch worktree.Disposition {
		case teardown.DispositionPreserved, teardown.DispositionRefused:
			codes = append(codes, exitOfDisposition(worktree.Disposition, false))
		case teardown.DispositionFailed:
			codes = append(codes, exitFailed)
		}
	}
	if result.Resources.Refused > 0 {
		codes = append(codes, exitRefused)
	}
	return worst(codes...)
}

func exitOfOutcome(outcome teardown.Outcome) exitCode {
	switch outcome {
	case teardown.OutcomeFinalized, teardown.OutcomeRestored:
		return exitDone
	case teardown.OutcomePreserved:
		return exitPreserved
	case teardown.OutcomeFailed:
		return exitFailed
	}
	return exitRetryable
}
