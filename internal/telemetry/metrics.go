package telemetry

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.temporal.io/sdk/contrib/opentelemetry"

	"unwind/teardown"
)

// latencies, in seconds: from a database step to the removal of a big worktree.
var latencies = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}

const headerTimeout = 10 * time.Second

func (t *Telemetry) serveMetrics(o Options) error {
	if o.MetricsAddress == "" {
		return nil
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return unservable(o, err)
	}
	listener, err := net.Listen("tcp", o.MetricsAddress)
	if err != nil {
		return unservable(o, err)
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter), metric.WithView(metric.NewView(
		metric.Instrument{Kind: metric.InstrumentKindHistogram},
		metric.Stream{Aggregation: metric.AggregationExplicitBucketHistogram{Boundaries: latencies}})))
	t.Metrics = opentelemetry.NewMetricsHandler(opentelemetry.MetricsHandlerOptions{
		Meter:                provider.Meter("temporal-sdk-go"),
		UseMonotonicCounters: true,
		OnError:              func(err error) { o.Logger.Warn("A metric could not be recorded", "error", err) },
	})
	t.MetricsAddress = listener.Addr().String()

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn)}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			o.Logger.Error("The metrics are no longer served", "error", err)
		}
	}()
	t.stops = append(t.stops, server.Shutdown, provider.Shutdown)
	return nil
}

func unservable(o Options, err error) error {
	return &teardown.Error{Code: teardown.CodeInvalidConfig, Cause: err, Message: fmt.Sprintf(
		"metrics cannot be served on %s; set UNWIND_METRICS_ADDRESS (--metrics-address) to a free host:port, or off", o.MetricsAddress)}
}
