package telemetry_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"

	"unwind/internal/telemetry"
	"unwind/internal/temporalclient"
	"unwind/teardown"
	"unwind/test/devserver"
)

func unset(string) string { return "" }

func start(t *testing.T, o telemetry.Options) *telemetry.Telemetry {
	t.Helper()
	o.Program, o.Version, o.Logger = "unwind-test", "v0", slog.New(slog.DiscardHandler)
	started, err := telemetry.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, started.Stop(ctx))
	})
	return started
}

func TestNothingByDefault(t *testing.T) {
	t.Parallel()
	started := start(t, telemetry.Options{Getenv: unset})
	require.Nil(t, started.Metrics)
	require.Empty(t, started.Interceptors)
	require.Empty(t, started.MetricsAddress)
}

func TestMetricsOfTheSDK(t *testing.T) {
	t.Parallel()
	server := devserver.Start(t)
	started := start(t, telemetry.Options{Getenv: unset, MetricsAddress: "127.0.0.1:0"})
	connection, err := client.Dial(client.Options{HostPort: server.Address, MetricsHandler: started.Metrics})
	require.NoError(t, err)
	defer connection.Close()

	page := scrape(t, started.MetricsAddress)
	require.Contains(t, page, `temporal_request_total{`)
	require.Regexp(t, `temporal_request_latency_seconds_bucket\{[^}]*le="0.005"\}`, page)
	require.Contains(t, page, "go_goroutines")
	require.Contains(t, page, "process_open_fds")
}

func scrape(t *testing.T, address string) string {
	t.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	require.Equal(t, http.StatusOK, response.StatusCode)
	page, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(page)
}

func TestABusyAddressIsRefused(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })

	_, err = telemetry.Start(t.Context(), telemetry.Options{
		Getenv: unset, MetricsAddress: listener.Addr().String(), Logger: slog.New(slog.DiscardHandler)})
	require.Equal(t, teardown.CodeInvalidConfig, teardown.CodeOf(err))
	require.ErrorContains(t, err, "metrics cannot be served on "+listener.Addr().String()+"; set UNWIND_METRICS_ADDRESS")
}

// collector receives traces as an OpenTelemetry collector does.
type collector struct {
	v1.UnimplementedTraceServiceServer
	spans chan string
}

func (c *collector) Export(_ context.Context, r *v1.ExportTraceServiceRequest) (*v1.ExportTraceServiceResponse, error) {
	for _, resource := range r.GetResourceSpans() {
		for _, attribute := range resource.GetResource().GetAttributes() {
			if attribute.GetKey() == "service.name" {
				c.spans <- "service " + attribute.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans <- span.GetName()
			}
		}
	}
	return &v1.ExportTraceServiceResponse{}, nil
}

// Not parallel: the exporter reads the process's own environment.
func TestTracesOfTheSDK(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	received := &collector{spans: make(chan string, 100)}
	server := grpc.NewServer()
	v1.RegisterTraceServiceServer(server, received)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	endpoint := "http://" + listener.Addr().String()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)

	started := start(t, telemetry.Options{Getenv: func(name string) string {
		return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}[name]
	}})
	connection, err := temporalclient.Dial(t.Context(), temporalclient.Options{
		Program: "unwind-test", Interceptors: started.Interceptors,
		Env: environment{"TEMPORAL_ADDRESS": devserver.Start(t).Address, "TEMPORAL_CONFIG_FILE": filepath.Join(t.TempDir(), "none")},
	})
	require.NoError(t, err)
	t.Cleanup(connection.Close)
	_, err = teardown.Start(t.Context(), connection.Client, "q", teardown.FinalizeSessionInput{SessionID: "s1"})
	require.NoError(t, err)
	require.NoError(t, started.Stop(t.Context()))

	close(received.spans)
	var got []string
	for name := range received.spans {
		got = append(got, name)
	}
	require.Contains(t, got, "service unwind-test")
	require.Contains(t, got, "StartWorkflow:FinalizeSession")
}

func TestAnotherProtocolIsRefused(t *testing.T) {
	t.Parallel()
	_, err := telemetry.Start(t.Context(), telemetry.Options{Logger: slog.New(slog.DiscardHandler), Getenv: func(name string) string {
		return map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}[name]
	}})
	require.Equal(t, teardown.CodeInvalidConfig, teardown.CodeOf(err))
	require.ErrorContains(t, err, "only grpc is spoken")
}

type environment map[string]string

func (e environment) Environ() []string { return nil }

func (e environment) LookupEnv(name string) (string, bool) { value, ok := e[name]; return value, ok }
