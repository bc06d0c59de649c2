package main

import (
	"errors"

	"unwind/teardown"
)

// Exit codes, as those of the unwind command.
const (
	exitDone        = 0
	exitFailed      = 4
	exitUsage       = 64
	exitRefused     = 65
	exitUnavailable = 69
	exitRetryable   = 75
)

func exitOf(err error) int {
	var own *teardown.Error
	if !errors.As(err, &own) {
		return exitFailed
	}
	switch own.Code {
	case teardown.CodeInvalidConfig, teardown.CodeInvalidID:
		return exitUsage
	case teardown.CodeSchemaVersion:
		return exitRefused
	case teardown.CodeDatabaseUnavailable, teardown.CodeTemporalUnavailable:
		return exitUnavailable
	}
	if own.Retryable {
		return exitRetryable
	}
	return exitFailed
}
