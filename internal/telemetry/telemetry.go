// Package telemetry exports what Temporal's SDK measures and traces: metrics on
// a Prometheus endpoint, spans by OTLP.
package telemetry

import (
	"context"
	"errors"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	sdkresource "go.opentelemetry.io/otel/sdk/resource"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
)

// Options of Start.
type Options struct {
	Program string // names the service in traces, unless OTEL_SERVICE_NAME does
	Version string
	// MetricsAddress is host:port of the Prometheus endpoint; "" = none.
	MetricsAddress string
	// Getenv reads OTEL_… variables.
	Getenv func(string) string
	Logger *slog.Logger
}

// Telemetry is what a client is given, and what is to be ended with the program.
type Telemetry struct {
	Metrics      client.MetricsHandler           // nil without an address
	Interceptors []interceptor.ClientInterceptor // empty without a collector
	// MetricsAddress is where the endpoint listens, with the port that a zero
	// port was replaced by; "" = nowhere.
	MetricsAddress string

	stops []func(context.Context) error
}

// Start serves metrics if an address is given, and sends traces if
// OTEL_EXPORTER_OTLP_ENDPOINT (or its form for traces) is set. Errors have code
// invalid_config. A collector that is away is not an error; it is logged.
func Start(ctx context.Context, o Options) (*Telemetry, error) {
	t := &Telemetry{}
	if err := t.serveMetrics(o); err != nil {
		return nil, err
	}
	if err := t.sendTraces(ctx, o); err != nil {
		return nil, errors.Join(err, t.Stop(ctx))
	}
	return t, nil
}

// Stop sends what is left and ends the endpoint. ctx bounds it.
func (t *Telemetry) Stop(ctx context.Context) error {
	var errs []error
	for _, stop := range t.stops {
		errs = append(errs, stop(ctx))
	}
	t.stops = nil
	return errors.Join(errs...)
}

func (o Options) resource(ctx context.Context) *sdkresource.Resource {
	// The environment comes last, so that OTEL_SERVICE_NAME wins. What could not
	// be detected is left out.
	r, _ := sdkresource.New(ctx, sdkresource.WithTelemetrySDK(), sdkresource.WithHost(),
		sdkresource.WithAttributes(attribute.String("service.name", o.Program), attribute.String("service.version", o.Version)),
		sdkresource.WithFromEnv())
	return r
}
