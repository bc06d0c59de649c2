package devserver_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/client"

	"unwind/test/devserver"
)

const role = "UNWIND_DEVSERVER_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "" {
		os.Exit(m.Run())
	}
	server, err := devserver.Launch()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(server.Address)
	select {} // until it is killed
}

func TestRegistersASearchAttributeAndSetsIt(t *testing.T) {
	t.Parallel()
	c := devserver.Start(t).Client(t)
	_, err := c.OperatorService().AddSearchAttributes(t.Context(), &operatorservice.AddSearchAttributesRequest{
		Namespace: "default", SearchAttributes: map[string]enums.IndexedValueType{"UnwindPhase": enums.INDEXED_VALUE_TYPE_KEYWORD}})
	require.NoError(t, err)
	listed, err := c.OperatorService().ListSearchAttributes(t.Context(), &operatorservice.ListSearchAttributesRequest{Namespace: "default"})
	require.NoError(t, err)
	require.Equal(t, enums.INDEXED_VALUE_TYPE_KEYWORD, listed.GetCustomAttributes()["UnwindPhase"])
}

func TestDataOutlivesARestartUnlessItIsLost(t *testing.T) {
	t.Parallel()
	server := devserver.Start(t, devserver.File(filepath.Join(t.TempDir(), "temporal.db")))
	c := server.Client(t)
	_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "w1", TaskQueue: "nobody"}, "Anything")
	require.NoError(t, err)

	require.NoError(t, server.Stop())
	require.NoError(t, server.Resume())
	require.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, statusOf(t, c))

	server.Kill()
	require.NoError(t, server.Resume())
	require.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, statusOf(t, c))

	require.NoError(t, server.LoseData())
	require.NoError(t, server.Resume())
	require.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED, statusOf(t, c))
}

// A port of a stopped server is somebody else's for a moment.
func TestResumesOnceItsPortIsFreeAgain(t *testing.T) {
	t.Parallel()
	server := devserver.Start(t)
	require.NoError(t, server.Stop())
	other, err := net.Listen("tcp", server.Address)
	require.NoError(t, err)
	go func() {
		connection, err := other.Accept() // the first try is under way
		if err == nil {
			_ = connection.Close()
		}
		time.Sleep(time.Second)
		_ = other.Close()
	}()
	require.NoError(t, server.Resume())
}

func statusOf(t *testing.T, c client.Client) enums.WorkflowExecutionStatus {
	t.Helper()
	// The client's connection recovers by itself, but not at once.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		described, err := c.DescribeWorkflow(ctx, "w1", "")
		switch {
		case err == nil:
			return described.Status
		case strings.Contains(err.Error(), "not found"):
			return enums.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED
		case ctx.Err() != nil:
			require.NoError(t, err)
		}
	}
}

func TestServesTheWebUI(t *testing.T) {
	t.Parallel()
	server := devserver.Start(t, devserver.WithUI())
	require.Eventually(t, func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.UI, nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, time.Minute, 50*time.Millisecond)
}

func TestEndsWithAKilledTest(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends children of a killed process")
	}
	temp := t.TempDir() // for what the killed one cannot remove
	test := exec.Command(os.Args[0])
	test.Env = append(os.Environ(), role+"=killed", "TMPDIR="+temp)
	output, err := test.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, test.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	address := strings.TrimSpace(line)
	c, err := client.Dial(client.Options{HostPort: address})
	require.NoError(t, err, line)
	defer c.Close()

	require.NoError(t, test.Process.Kill())
	require.Error(t, test.Wait())
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.CheckHealth(ctx, nil)
		return err != nil
	}, time.Minute, 50*time.Millisecond)
}

func TestMissingBinarySaysWhatToDo(t *testing.T) {
	t.Setenv("TEMPORAL_CLI", filepath.Join(t.TempDir(), "temporal"))
	_, err := devserver.Launch()
	require.ErrorContains(t, err, "make bin/temporal")
}
