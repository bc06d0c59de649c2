package temporalclient

import (
	"errors"
	"fmt"

	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unwind/teardown"
)

// Explain turns an error of the SDK's client into one with code
// temporal_unavailable and a sentence that says what to do. An error that has a
// code already, and nil, are returned as they are.
func (c *Connection) Explain(err error) error {
	if err == nil || teardown.CodeOf(err) != "" {
		return err
	}
	message, retryable := c.advice(err)
	return &teardown.Error{Code: teardown.CodeTemporalUnavailable, Message: message, Retryable: retryable, Cause: err}
}

func (c *Connection) advice(err error) (message string, retryable bool) {
	switch {
	case noNamespace(err):
		return fmt.Sprintf("Temporal at %s has no namespace %q; create it with `temporal operator namespace create -n %s`, or set TEMPORAL_NAMESPACE",
			c.Address, c.Namespace, c.Namespace), false
	case refused(err):
		return fmt.Sprintf("Temporal at %s refuses these credentials for namespace %q; set TEMPORAL_API_KEY, the TEMPORAL_TLS_… variables or TEMPORAL_PROFILE",
			c.Address, c.Namespace), false
	case answered(err):
		return fmt.Sprintf("Temporal at %s answered with an error", c.Address), true
	}
	return fmt.Sprintf("Temporal at %s cannot be reached; start one with `make dev` or `unwind dev`, or set TEMPORAL_ADDRESS", c.Address), true
}

func noNamespace(err error) bool {
	var notFound *serviceerror.NamespaceNotFound
	return errors.As(err, &notFound)
}

func refused(err error) bool {
	switch code(err) {
	case codes.PermissionDenied, codes.Unauthenticated:
		return true
	}
	return false
}

// Away reports whether the server could not be asked at all, so that asking it
// something else would not help either.
func Away(err error) bool { return err != nil && !answered(err) }

func answered(err error) bool {
	switch code(err) {
	case codes.Unknown, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return false
	}
	return true
}

// code finds the gRPC code below what the SDK wrapped around it.
func code(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	var service serviceerror.ServiceError
	if errors.As(err, &service) {
		return service.Status().Code()
	}
	var grpc interface{ GRPCStatus() *status.Status }
	if errors.As(err, &grpc) {
		return grpc.GRPCStatus().Code()
	}
	return codes.Unknown
}

// Ended reports whether what was asked of a run came too late: it has just
// ended, and the next request starts another one.
func Ended(err error) bool {
	var notFound *serviceerror.NotFound
	var aborted *serviceerror.WorkflowNotReady
	return errors.As(err, &notFound) || errors.As(err, &aborted)
}
