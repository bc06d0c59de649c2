// Package devserver runs Temporal's development server for tests: real, private,
// on free loopback ports, and gone with the test that started it.
package devserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
)

const (
	readyLimit = 90 * time.Second
	stopLimit  = 20 * time.Second
	// portTries: a free port may be somebody else's by the time it is used, by
	// this server or for one of the ports that it picks itself.
	portTries = 5
)

// Server is one server. Its methods are for one goroutine at a time.
type Server struct {
	// Address is the host and port of the frontend; the same after a restart.
	Address string
	// UI is the address of the web UI, http://…, or "" without one.
	UI string

	binary  string
	dir     string // log and home
	file    string // database; "" keeps it in memory
	withUI  bool
	marker  string // a namespace by which the server is told from others
	process *exec.Cmd
	exited  chan struct{}
}

// Option changes what Start starts.
type Option func(*Server)

// File keeps the server's data in a file, so that it outlives a restart.
func File(path string) Option { return func(s *Server) { s.file = path } }

// WithUI serves the web UI, too.
func WithUI() Option { return func(s *Server) { s.withUI = true } }

// Start starts a server that ends with the test. The test fails if there is no
// server to start.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	s, err := Launch(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Launch is Start for a TestMain, whose tests share a server. The caller calls
// Close.
func Launch(options ...Option) (*Server, error) {
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	s := &Server{binary: binary, marker: "devserver-" + strings.ToLower(rand.Text())}
	for _, option := range options {
		option(s)
	}
	if s.dir, err = os.MkdirTemp("", "devserver-"); err != nil {
		return nil, err
	}
	for range portTries {
		if err = s.choosePorts(); err != nil {
			break
		}
		if err = s.start(); err == nil {
			return s, nil
		}
	}
	s.Close()
	return nil, err
}

func (s *Server) choosePorts() (err error) {
	if s.Address, err = freeAddress(); err != nil || !s.withUI {
		return err
	}
	address, err := freeAddress()
	s.UI = "http://" + address
	return err
}

// Client returns a client of the default namespace, closed with the test.
func (s *Server) Client(t testing.TB) client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{HostPort: s.Address, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Resume starts a stopped server again, at the same address.
func (s *Server) Resume() (err error) {
	if s.process != nil {
		return errors.New("the server runs already")
	}
	for try := range portTries {
		time.Sleep(time.Duration(try) * time.Second) // whoever has a port may let go of it
		if err = s.start(); err == nil {
			return nil
		}
	}
	return err
}

func (s *Server) start() error {
	if err := s.run(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyLimit)
	defer cancel()
	if err := s.awaitReady(ctx); err != nil {
		s.Kill()
		return fmt.Errorf("temporal's server did not start: %w\n%s", err, s.logTail())
	}
	return nil
}

// Stop lets the server end in order. What was in memory is lost.
func (s *Server) Stop() error {
	if s.process == nil {
		return nil
	}
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-s.exited:
		s.process = nil
		return nil
	case <-time.After(stopLimit):
		s.Kill()
		return fmt.Errorf("temporal's server did not stop within %s\n%s", stopLimit, s.logTail())
	}
}

// Kill ends the server at once, as a crash would.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Kill()
	<-s.exited
	s.process = nil
}

// LoseData kills the server and deletes its database file; Resume then starts an
// empty one.
func (s *Server) LoseData() error {
	s.Kill()
	if s.file == "" {
		return nil
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(s.file + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Close kills the server and removes what it left.
func (s *Server) Close() {
	s.Kill()
	_ = os.RemoveAll(s.dir)
}

func (s *Server) run() error {
	logFile, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	process := exec.Command(s.binary, s.arguments()...)
	process.Dir = s.dir
	process.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "TMPDIR=" + s.dir} // no settings of the user's
	process.Stdout, process.Stderr = logFile, logFile
	endWithParent(process)
	if err := process.Start(); err != nil {
		return err
	}
	s.process, s.exited = process, make(chan struct{})
	go func(exited chan struct{}) {
		_ = process.Wait()
		close(exited)
	}(s.exited)
	return nil
}

func (s *Server) arguments() []string {
	host, port, _ := net.SplitHostPort(s.Address)
	arguments := []string{"server", "start-dev", "--ip", host, "--port", port, "--namespace", s.marker, "--log-level", "warn"}
	for _, setting := range []string{
		// Unlimited, the server looks for work every 50 ms only, which makes a
		// workflow of three activities take 350 ms.
		"history.transferProcessorMaxPollRPS=2000",
		"history.timerProcessorMaxPollRPS=2000",
		"history.visibilityProcessorMaxPollRPS=2000",
		// A search attribute that was added is there at once.
		"system.forceSearchAttributesCacheRefreshOnRead=true",
	} {
		arguments = append(arguments, "--dynamic-config-value", setting)
	}
	if s.withUI {
		_, uiPort, _ := net.SplitHostPort(strings.TrimPrefix(s.UI, "http://"))
		arguments = append(arguments, "--ui-port", uiPort)
	} else {
		arguments = append(arguments, "--headless")
	}
	if s.file != "" {
		arguments = append(arguments, "--db-filename", s.file,
			"--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=off") // ten times as fast
	}
	return arguments
}

// awaitReady returns when this very server answers.
func (s *Server) awaitReady(ctx context.Context) error {
	namespaces, err := client.NewNamespaceClient(client.Options{HostPort: s.Address, Logger: quiet()})
	if err != nil {
		return err
	}
	defer namespaces.Close()
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := namespaces.Describe(attempt, s.marker)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("it ended: %s", s.process.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("it did not answer at %s within %s: %w", s.Address, readyLimit, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "server.log") }

// logTail returns the end of the log, or of a crash its beginning, which says why.
func (s *Server) logTail() string {
	const most = 4000
	content, _ := os.ReadFile(s.logPath())
	if at := bytes.LastIndex(content, []byte("\npanic: ")); at >= 0 {
		content = content[at:]
		return string(content[:min(most, len(content))])
	}
	return string(content[max(0, len(content)-most):])
}

// Binary finds Temporal's CLI: TEMPORAL_CLI, or bin/temporal of this project.
func Binary() (string, error) {
	path := os.Getenv("TEMPORAL_CLI")
	if path == "" {
		root, err := moduleRoot()
		if err != nil {
			return "", err
		}
		path = filepath.Join(root, "bin", "temporal")
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("temporal's CLI is needed and is not at %s: run `make bin/temporal`, or set TEMPORAL_CLI", path)
	}
	return path, nil
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("temporal's CLI is needed: set TEMPORAL_CLI to its path")
		}
		dir = parent
	}
}

// freeAddress picks a port below those that the kernel gives away to whoever
// asks for any (ip_local_port_range, from 32768 on Linux): so that nobody has it
// while the server is stopped, either.
func freeAddress() (string, error) {
	const lowest, number = 15_000, 15_000
	var err error
	for range 100 {
		var listener net.Listener
		if listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", lowest+mathrand.IntN(number))); err == nil {
			defer listener.Close()
			return listener.Addr().String(), nil
		}
	}
	return "", err
}

func quiet() log.Logger {
	return log.NewStructuredLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
}
