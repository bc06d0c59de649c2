// Package temporalclient connects unwind's programs to Temporal in one way:
// settings from the SDK's own environment and profiles, an identity that a
// person recognises, a bounded wait, and errors that say what to do.
package temporalclient

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"

	"unwind/teardown"
)

// connectLimit bounds Dial: a server that does not answer for this long is away.
const connectLimit = 5 * time.Second

// Options of Dial. Only Program is needed.
type Options struct {
	// Program is the first part of the identity, "unwind" or "unwind-worker".
	Program string
	// Logger takes what the SDK reports; nil drops it.
	Logger       *slog.Logger
	Metrics      client.MetricsHandler
	Interceptors []interceptor.ClientInterceptor
	// Env is where TEMPORAL_… variables are looked up; nil is the process's
	// environment.
	Env envconfig.EnvLookup
}

// Connection is a client and what it is connected to.
type Connection struct {
	Client    client.Client
	Address   string
	Namespace string
}

// Dial connects to the Temporal that the SDK's own variables and profiles name
// (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS…,
// TEMPORAL_PROFILE), by default to localhost:7233 and namespace default. It
// waits for at most 5 s. Errors have code invalid_config, if a setting cannot be
// used, or temporal_unavailable.
func Dial(ctx context.Context, o Options) (*Connection, error) {
	options, err := envconfig.LoadClientOptions(envconfig.LoadClientOptionsRequest{EnvLookup: o.Env})
	if err != nil {
		return nil, &teardown.Error{Code: teardown.CodeInvalidConfig, Cause: err,
			Message: "Temporal's settings cannot be used; correct the TEMPORAL_… variables or the profile in temporal.toml"}
	}
	connection := &Connection{Address: options.HostPort, Namespace: options.Namespace}
	if connection.Address == "" {
		connection.Address = client.DefaultHostPort
	}
	if connection.Namespace == "" {
		// Requests to the operator service take no default of their own.
		connection.Namespace = client.DefaultNamespace
	}
	options.HostPort, options.Namespace = connection.Address, connection.Namespace
	options.Identity = Identity(o.Program)
	options.Logger = log.NewStructuredLogger(logger(o.Logger))
	options.MetricsHandler = o.Metrics
	options.Interceptors = o.Interceptors

	bounded, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	connection.Client, err = client.DialContext(bounded, options)
	if err != nil {
		return nil, connection.Explain(err)
	}
	return connection, nil
}

// Close ends the connection. It may be called on nil.
func (c *Connection) Close() {
	if c != nil {
		c.Client.Close()
	}
}

// Identity is the name under which a program appears in Temporal's web UI:
// program@host:pid.
func Identity(program string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s@%s:%d", program, host, os.Getpid())
}

func logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}
