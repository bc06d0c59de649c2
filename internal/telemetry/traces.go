package telemetry

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.temporal.io/sdk/contrib/opentelemetry"

	"unwind/teardown"
)

func (t *Telemetry) sendTraces(ctx context.Context, o Options) error {
	if o.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && o.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return nil
	}
	for _, variable := range []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"} {
		if protocol := o.Getenv(variable); protocol != "" && protocol != "grpc" {
			return untraceable(fmt.Errorf("%s is %q; only grpc is spoken", variable, protocol))
		}
	}
	// The exporter reads all other OTEL_EXPORTER_OTLP_… variables by itself.
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return untraceable(err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { o.Logger.Warn("Traces could not be sent", "error", err) }))
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(o.resource(ctx)))
	tracing, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{
		Tracer: provider.Tracer("temporal-sdk-go"),
		// A caller that traces in another way must not fail its finalization.
		AllowInvalidParentSpans: true,
	})
	if err != nil {
		return untraceable(err)
	}
	t.Interceptors = append(t.Interceptors, tracing)
	t.stops = append(t.stops, provider.Shutdown)
	return nil
}

func untraceable(err error) error {
	return &teardown.Error{Code: teardown.CodeInvalidConfig, Cause: err,
		Message: "traces cannot be sent; correct the OTEL_EXPORTER_OTLP_… variables, or unset OTEL_EXPORTER_OTLP_ENDPOINT"}
}
