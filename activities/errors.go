package activities

import (
	"context"
	"errors"

	"go.temporal.io/sdk/temporal"

	"unwind/teardown"
)

// failure turns an error into what Temporal reads: an application error at the
// top level whose type is the code, non-retryable only when trying again cannot
// help. An error without a code of ours is retryable.
func failure(err error) error {
	if err == nil {
		return nil
	}
	var application *temporal.ApplicationError
	if errors.As(err, &application) {
		return application
	}
	coded := coded(err)
	category := temporal.ApplicationErrorCategoryUnspecified
	if coded.Retryable && expected(coded.Code) {
		category = temporal.ApplicationErrorCategoryBenign
	}
	options := temporal.ApplicationErrorOptions{NonRetryable: !coded.Retryable, Cause: err, Category: category}
	if len(coded.Details) > 0 {
		options.Details = []any{bounded(coded.Details)}
	}
	return temporal.NewApplicationErrorWithOptions(coded.Error(), string(coded.Code), options)
}

// coded answers err as our own error type.
func coded(err error) *teardown.Error {
	var own *teardown.Error
	switch {
	case errors.As(err, &own) && own.Code == teardown.CodeSchemaVersion:
		// The database answers to workers of another version, and the step is theirs.
		return &teardown.Error{Code: teardown.CodeDatabaseUnavailable, Message: own.Message, Retryable: true, Cause: err}
	case errors.As(err, &own):
		return own
	case errors.Is(err, context.DeadlineExceeded):
		return &teardown.Error{Code: teardown.CodeTimeout, Message: "The step ran out of time", Retryable: true, Cause: err}
	case errors.Is(err, context.Canceled):
		return &teardown.Error{Code: teardown.CodeTimeout, Message: "The worker stopped before the step was done", Retryable: true, Cause: err}
	}
	return &teardown.Error{Code: teardown.CodeIOError, Message: "The step failed", Retryable: true, Cause: err}
}

// expected codes are part of the ordinary course: they neither alarm in the log
// nor count as failures in the metrics.
func expected(code teardown.Code) bool {
	switch code {
	case teardown.CodeBusy, teardown.CodeInUse, teardown.CodeIndexLocked,
		teardown.CodeRuntimeStillAlive, teardown.CodeRuntimeSurvivors, teardown.CodeRuntimeUnreachable:
		return true
	}
	return false
}

func bounded(details []string) []string {
	return details[:min(len(details), teardown.MaxDetails)]
}
