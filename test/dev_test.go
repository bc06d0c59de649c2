package test

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"golang.org/x/sys/unix"

	"unwind/internal/runtime/proctable"
	"unwind/test/devserver"
)

// dev is a running `unwind dev`.
type dev struct {
	cmd   *exec.Cmd
	log   *syncBuffer
	ended chan struct{}
	up    struct {
		Address  string `json:"temporal_address"`
		WebUI    string `json:"web_ui"`
		Sessions string `json:"sessions"`
		Reused   bool   `json:"reused"`
		Replaced int    `json:"replaced_pid"`
		Server   int    `json:"server_pid"`
	}
}

// dev starts `unwind dev` and returns when all is up.
func (i *installation) dev(args ...string) *dev {
	i.t.Helper()
	temporal, err := devserver.Binary()
	require.NoError(i.t, err)
	tools := filepath.Join(i.dir, "tools")
	require.NoError(i.t, os.MkdirAll(tools, 0o700))
	if _, err := os.Lstat(filepath.Join(tools, "temporal")); err != nil {
		require.NoError(i.t, os.Symlink(temporal, filepath.Join(tools, "temporal")))
	}
	d := &dev{cmd: exec.Command(filepath.Join(programs, "unwind"), append([]string{"dev", "--json", "--ephemeral"}, args...)...),
		log: &syncBuffer{}, ended: make(chan struct{})}
	d.cmd.Env = i.environment("PATH="+tools+":"+os.Getenv("PATH"), "TEMPORAL_ADDRESS=", "UNWIND_LISTEN=127.0.0.1:0")
	d.cmd.Stderr = d.log
	out, err := d.cmd.StdoutPipe()
	require.NoError(i.t, err)
	require.NoError(i.t, d.cmd.Start())
	i.t.Cleanup(func() { _ = d.cmd.Process.Signal(syscall.SIGTERM); <-d.ended })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	go func() { _ = d.cmd.Wait(); close(d.ended) }()
	require.NoError(i.t, err, d.log)
	require.NoError(i.t, json.Unmarshal(line, &d.up))
	return d
}

// hold takes hold of dev's server and kills it at the end of the test, if it is
// still there.
func (d *dev) hold(t *testing.T) *proctable.Handle {
	t.Helper()
	p, err := proctable.Read(d.up.Server)
	require.NoError(t, err)
	server, err := proctable.Open(p.Ref)
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Signal(unix.SIGKILL); server.Close() })
	return server
}

func port(t *testing.T, address string) string {
	t.Helper()
	_, number, err := net.SplitHostPort(address)
	require.NoError(t, err)
	return number
}

func TestDevReplacesItsWedgedServer(t *testing.T) {
	t.Parallel()
	i := install(t)
	record := filepath.Join(i.dir, "state-h1", "dev", "server.json")
	first := i.dev("--port", "0", "--ui-port", "0")
	server := first.hold(t)
	info, err := os.Stat(record)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	// A stopped server outlives the dev that is killed, for it hears no SIGTERM. The
	// kernel would wake it if its process group had no parent left in the session.
	member := exec.Command("sleep", "600")
	member.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: first.up.Server}
	require.NoError(t, member.Start())
	t.Cleanup(func() { _ = member.Process.Kill(); _ = member.Wait() })
	require.NoError(t, server.Signal(unix.SIGSTOP))
	require.NoError(t, first.cmd.Process.Kill())
	<-first.ended
	require.False(t, server.Ended())

	second := i.dev("--port", port(t, first.up.Address), "--ui-port", port(t, first.up.WebUI[len("http://"):]))
	require.True(t, server.Ended())
	require.False(t, second.up.Reused)
	require.Equal(t, first.up.Address, second.up.Address)
	require.Equal(t, first.up.Server, second.up.Replaced)
	require.NotEqual(t, first.up.Server, second.up.Server)
	require.Contains(t, second.log.String(), "does not answer; it is ended, and another one started")

	require.Contains(t, i.get(second.up.Sessions), "<title>")

	require.NoError(t, second.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-second.ended:
	case <-time.After(patience):
		t.Fatal("dev does not end")
	}
	require.Equal(t, 0, second.cmd.ProcessState.ExitCode(), second.log)
	require.NoFileExists(t, record)
}

func TestDevReusesAHealthyServer(t *testing.T) {
	t.Parallel()
	i := install(t)
	d := i.dev("--port", port(t, i.server.Address))
	require.True(t, d.up.Reused)
	require.Zero(t, d.up.Server)
	require.Zero(t, d.up.Replaced)
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
	<-d.ended
	require.Equal(t, 0, d.cmd.ProcessState.ExitCode(), d.log)
	_, err := i.client.CheckHealth(t.Context(), &client.CheckHealthRequest{})
	require.NoError(t, err, "it is left running")
}
