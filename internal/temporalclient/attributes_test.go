package temporalclient_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"unwind/internal/temporalclient"
	"unwind/teardown"
)

// namespace makes a namespace of the test's own.
func namespace(t *testing.T, name string) *temporalclient.Connection {
	t.Helper()
	connection := dial(t, at(t, server.Address))
	_, err := connection.Client.WorkflowService().RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: name, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour)})
	require.NoError(t, err)
	other := dial(t, at(t, server.Address, "TEMPORAL_NAMESPACE", name))
	require.Eventually(t, func() bool {
		_, err := other.Client.WorkflowService().DescribeNamespace(t.Context(), &workflowservice.DescribeNamespaceRequest{Namespace: name})
		return err == nil
	}, 30*time.Second, 50*time.Millisecond)
	return other
}

func TestEnsureSearchAttributes(t *testing.T) {
	t.Parallel()
	connection := namespace(t, "fresh")
	require.NoError(t, connection.EnsureSearchAttributes(t.Context()))

	have, err := connection.Client.OperatorService().ListSearchAttributes(t.Context(), &operatorservice.ListSearchAttributesRequest{Namespace: "fresh"})
	require.NoError(t, err)
	for _, name := range temporalclient.Attributes {
		require.Equal(t, enumspb.INDEXED_VALUE_TYPE_KEYWORD, have.GetCustomAttributes()[name], name)
	}
	_, err = connection.Client.CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{
		Namespace: "fresh", Query: `UnwindPhase = "parked" AND UnwindHost = "h1"`})
	require.NoError(t, err)

	require.NoError(t, connection.EnsureSearchAttributes(t.Context()), "again")
}

func TestEnsureSearchAttributesAddsWhatIsMissing(t *testing.T) {
	t.Parallel()
	connection := namespace(t, "half")
	_, err := connection.Client.OperatorService().AddSearchAttributes(t.Context(), &operatorservice.AddSearchAttributesRequest{
		Namespace: "half", SearchAttributes: map[string]enumspb.IndexedValueType{teardown.HostAttribute: enumspb.INDEXED_VALUE_TYPE_KEYWORD}})
	require.NoError(t, err)
	require.NoError(t, connection.EnsureSearchAttributes(t.Context()))
}

func TestEnsureSearchAttributesRefusesAnotherType(t *testing.T) {
	t.Parallel()
	connection := namespace(t, "clash")
	_, err := connection.Client.OperatorService().AddSearchAttributes(t.Context(), &operatorservice.AddSearchAttributesRequest{
		Namespace: "clash", SearchAttributes: map[string]enumspb.IndexedValueType{teardown.PhaseAttribute: enumspb.INDEXED_VALUE_TYPE_INT}})
	require.NoError(t, err)

	err = connection.EnsureSearchAttributes(t.Context())
	requireCode(t, err, teardown.CodeInvalidConfig, false)
	require.ErrorContains(t, err, `namespace "clash" already has a search attribute UnwindPhase of type Int, unwind needs it as Keyword`)
	require.ErrorContains(t, err, "UNWIND_SEARCH_ATTRIBUTES=off")
}

func TestEnsureSearchAttributesSaysThatThereIsNoRoom(t *testing.T) {
	t.Parallel()
	connection := namespace(t, "full")
	taken := map[string]enumspb.IndexedValueType{}
	for _, name := range []string{"A", "B", "C", "D", "E", "F", "G", "H", "I", "J"} {
		taken[name] = enumspb.INDEXED_VALUE_TYPE_KEYWORD
	}
	_, err := connection.Client.OperatorService().AddSearchAttributes(t.Context(), &operatorservice.AddSearchAttributesRequest{
		Namespace: "full", SearchAttributes: taken})
	require.NoError(t, err)

	err = connection.EnsureSearchAttributes(t.Context())
	requireCode(t, err, teardown.CodeInvalidConfig, false)
	require.ErrorContains(t, err, `namespace "full" does not take the search attributes`)
	require.ErrorContains(t, err, "UNWIND_SEARCH_ATTRIBUTES=off")
}

func TestEnsureSearchAttributesWithoutNamespace(t *testing.T) {
	t.Parallel()
	connection := dial(t, at(t, server.Address, "TEMPORAL_NAMESPACE", "absent"))
	err := connection.EnsureSearchAttributes(t.Context())
	requireCode(t, err, teardown.CodeTemporalUnavailable, false)
	require.ErrorContains(t, err, `has no namespace "absent"; create it with`)
}

// cloud is a server whose operator service is closed, as Temporal Cloud's is. It
// stands in for one because none can be had.
type cloud struct {
	workflowservice.UnimplementedWorkflowServiceServer
	operatorservice.UnimplementedOperatorServiceServer
	refusal error

	mu    sync.Mutex
	known bool
}

func (c *cloud) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{}, nil
}

func (c *cloud) ListSearchAttributes(context.Context, *operatorservice.ListSearchAttributesRequest) (*operatorservice.ListSearchAttributesResponse, error) {
	return nil, serviceerror.ToStatus(c.refusal).Err()
}

func (c *cloud) CountWorkflowExecutions(context.Context, *workflowservice.CountWorkflowExecutionsRequest) (*workflowservice.CountWorkflowExecutionsResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return nil, serviceerror.ToStatus(serviceerror.NewInvalidArgument("invalid search attribute: UnwindHost")).Err()
	}
	return &workflowservice.CountWorkflowExecutionsResponse{}, nil
}

func (c *cloud) serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(server, c)
	operatorservice.RegisterOperatorServiceServer(server, c)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func TestEnsureSearchAttributesWhereAnOperatorRegistersThem(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{
		"permission denied": serviceerror.NewPermissionDenied("no", ""),
		"unimplemented":     serviceerror.NewUnimplemented("no"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &cloud{refusal: refusal}
			connection := dial(t, at(t, server.serve(t)))
			err := connection.EnsureSearchAttributes(t.Context())
			requireCode(t, err, teardown.CodeInvalidConfig, false)
			require.ErrorContains(t, err, "have an operator add UnwindSession, UnwindTask, UnwindHost, UnwindPhase, UnwindReason (each of type Keyword), or set UNWIND_SEARCH_ATTRIBUTES=off")

			server.mu.Lock()
			server.known = true
			server.mu.Unlock()
			require.NoError(t, connection.EnsureSearchAttributes(t.Context()))
		})
	}
}
