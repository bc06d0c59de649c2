package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/api/workflowservice/v1"

	"unwind/internal/config"
	"unwind/internal/lock"
	"unwind/internal/runtime/proctable"
	"unwind/internal/store"
	"unwind/internal/temporalclient"
	"unwind/teardown"
)

type devOptions struct {
	*program
	Port      int
	UIPort    int
	Ephemeral bool
	portGiven bool
	uiGiven   bool
}

const (
	defaultPort = 7233
	// uiOffset is where Temporal's dev server puts its web UI: its own port plus
	// this.
	uiOffset = 1000
	loopback = "127.0.0.1"
)

func newDevCommand(p *program) *cobra.Command {
	o := &devOptions{program: p}
	command := &cobra.Command{
		Use:   "dev",
		Short: "Run Temporal, a worker and the sessions' page on this machine, with no set-up",
		Long: `Run Temporal's development server, a worker and what serve does on this machine until
Ctrl-C, with all data below the state directory. A healthy server that is already at
the address is used, and left running. If UNWIND_LISTEN is taken, the page gets a free
port.

A server that an earlier dev with this state directory had started, and that does not
answer, is ended and replaced. Nothing else that holds the port is touched: it is named,
and the exit code is 69.

The worker's log goes to standard error, the server's to dev/temporal.log in the
state directory.`,
		Example: `  unwind dev
  unwind dev --port 0 --ui-port 0 --ephemeral`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.portGiven, o.uiGiven = cmd.Flags().Changed("port"), cmd.Flags().Changed("ui-port")
			return runs(o.run)(cmd, args)
		},
	}
	flags := command.Flags()
	flags.IntVar(&o.Port, "port", defaultPort, "port of Temporal on the loopback address, 0 for a free one (default: that of TEMPORAL_ADDRESS, or 7233)")
	// pflag shows no default of 0; the help says the real one.
	flags.Lookup("port").DefValue = "0"
	flags.IntVar(&o.UIPort, "ui-port", 0, "port of the web UI, 0 for a free one (default: --port plus 1000)")
	flags.BoolVar(&o.Ephemeral, "ephemeral", false, "keep Temporal's data in memory only; the facts stay in the database")
	return command
}

// ready is what dev prints, once, when all is up.
type ready struct {
	Address string `json:"temporal_address"`
	WebUI   string `json:"web_ui"`
	// Sessions is the address of the page and the API.
	Sessions string `json:"sessions"`
	Host     string `json:"host"`
	// Reused: the server was already there and will be left running.
	Reused bool `json:"reused"`
	// Replaced is the pid of a wedged server in whose place this one is.
	Replaced  int `json:"replaced_pid,omitempty"`
	ServerPID int `json:"server_pid,omitempty"`
	WorkerPID int `json:"worker_pid"`
}

func (o *devOptions) run(ctx context.Context) error {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	c, err := o.config()
	if err != nil {
		return err
	}
	if err := o.choosePorts(); err != nil {
		return err
	}
	workerPath, err := o.find("unwind-worker", "build it beside "+name+" with `make`")
	if err != nil {
		return err
	}
	held, err := c.Locks().Host(ctx, "dev", lock.Wait{Limit: time.Second})
	if teardown.CodeOf(err) == teardown.CodeBusy {
		return &teardown.Error{Code: teardown.CodeConflict, Message: fmt.Sprintf(
			"`%s dev` is already running with the state directory %s; use that one, or set UNWIND_STATE_DIR for another", name, shown(c.StateDir))}
	}
	if err != nil {
		return err
	}
	defer held.Release()
	d := &development{devOptions: o, config: c, address: net.JoinHostPort(loopback, strconv.Itoa(o.Port))}
	defer d.stop()
	for _, start := range []func(context.Context) error{d.startServer, func(ctx context.Context) error { return d.startWorker(ctx, workerPath) }, d.startPage} {
		if err := start(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return d.interrupted()
		}
	}
	d.announce()
	return d.untilEnd(ctx)
}

// choosePorts settles on the ports, so that the address is the one under which
// the other commands look for Temporal.
func (o *devOptions) choosePorts() error {
	if o.Port < 0 || o.Port > 65535 || o.UIPort < 0 || o.UIPort > 65535 {
		return usageError("--port and --ui-port take a number from 0 to 65535")
	}
	if address := o.environment.get("TEMPORAL_ADDRESS"); address != "" && !o.portGiven {
		host, port, err := net.SplitHostPort(address)
		number, numberErr := strconv.Atoi(port)
		if ip := net.ParseIP(host); err != nil || numberErr != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return usageError("TEMPORAL_ADDRESS is %s, which is not on this machine; unset it, or run unwind-worker against that server", address)
		}
		o.Port = number
	}
	wantUI := o.UIPort
	if !o.uiGiven && o.Port > 0 && o.Port+uiOffset <= 65535 {
		wantUI = o.Port + uiOffset
	}
	var err error
	if o.Port, err = freePort(o.Port); err == nil {
		o.UIPort, err = freePort(wantUI)
	}
	return err
}

// freePort answers the port itself, or a free one for 0.
func freePort(port int) (int, error) {
	if port != 0 {
		return port, nil
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// find looks for a program beside this one, then in the PATH.
func (o *devOptions) find(program, advice string) (string, error) {
	beside := filepath.Join(o.beside, program)
	if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
		return beside, nil
	}
	for _, dir := range filepath.SplitList(o.environment.get("PATH")) {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return path, nil
		}
	}
	return "", &teardown.Error{Code: teardown.CodeInvalidConfig, Message: fmt.Sprintf(
		"%s is neither beside this program nor in the PATH; %s", program, advice)}
}

// development is a server and a worker that run.
type development struct {
	*devOptions
	config  config.Config
	address string
	reused  bool
	// replaced is the pid of the server that was ended because it did not answer,
	// or 0.
	replaced int
	server   *child
	worker   *child
	page     *devPage
}

// child is a process that we started.
type child struct {
	*exec.Cmd
	ended chan struct{} // closed when it has
	err   error         // how, from then on
}

// startChild starts a process that ends with us, however we end. The caller keeps
// its thread locked for as long as the child shall live; see endWithParent.
func startChild(command *exec.Cmd, name string) (*child, error) {
	// A group of its own: Ctrl-C is for us, and we end the children in order.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(command.SysProcAttr)
	command.Dir = "/"
	if err := command.Start(); err != nil {
		return nil, &teardown.Error{Code: teardown.CodeIOError, Cause: err, Message: name + " cannot be started"}
	}
	c := &child{Cmd: command, ended: make(chan struct{})}
	go func() {
		if c.err = command.Wait(); c.err == nil {
			c.err = errors.New("it exited with code 0")
		}
		close(c.ended)
	}()
	return c, nil
}

// stop asks the process to end and kills it when it has not in time, or when we
// are asked to stop once more.
func (c *child) stop(limit time.Duration, again <-chan os.Signal) {
	if c == nil {
		return
	}
	_ = c.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.ended:
		return
	case <-again:
	case <-time.After(limit):
	}
	_ = c.Process.Kill()
	<-c.ended
}

const (
	serverStartLimit = 90 * time.Second
	serverStopLimit  = 15 * time.Second
	workerStartLimit = 60 * time.Second
	// workerStopSlack comes on top of the time that the worker gives its steps.
	workerStopSlack = 10 * time.Second
	pollInterval    = 100 * time.Millisecond
)

func (d *development) stop() {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	d.page.stop()
	d.worker.stop(d.config.StopTimeout+workerStopSlack, again)
	if d.server != nil {
		d.server.stop(serverStopLimit, again)
		d.forgetServer()
	}
}

// childEnvironment is what the worker, and whoever asks for Temporal at this
// address, has to have set.
func (d *development) childEnvironment() environment {
	return d.environment.with("TEMPORAL_ADDRESS="+d.address, "UNWIND_UI_URL="+d.webUI())
}

// webUI is empty if a server that was already there has it somewhere else.
func (d *development) webUI() string {
	switch {
	case d.reused && d.config.UIURL != "":
		return d.config.UIURL
	case d.reused && !listening(context.Background(), net.JoinHostPort(loopback, strconv.Itoa(d.UIPort))):
		return ""
	}
	return "http://" + net.JoinHostPort("localhost", strconv.Itoa(d.UIPort))
}

// healthy reports whether Temporal answers at the address with our namespace.
func (d *development) healthy(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	connection, err := temporalclient.Dial(ctx, temporalclient.Options{Program: name, Env: d.childEnvironment()})
	if err != nil {
		return false
	}
	defer connection.Close()
	_, err = connection.Client.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: connection.Namespace})
	return err == nil
}

// listening reports whether something holds the address.
func listening(ctx context.Context, address string) bool {
	dialer := net.Dialer{Timeout: time.Second}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		// Nobody refuses, but a program that hangs takes no more connections.
		var refusal net.Error
		return errors.As(err, &refusal) && refusal.Timeout()
	}
	_ = connection.Close()
	return true
}

func (d *development) startServer(ctx context.Context) error {
	var wedged *proctable.Handle
	if listening(ctx, d.address) {
		if d.healthy(ctx) {
			d.reused = true
			return nil
		}
		if wedged = d.wedgedServer(); wedged == nil {
			return d.notOurs()
		}
		defer wedged.Close()
	}
	// Nothing is ended for which there is no replacement.
	binary, err := d.find("temporal", "run `make bin/temporal`, or install Temporal's command line tool")
	if err != nil {
		return err
	}
	if wedged != nil {
		if err := d.clearPort(ctx, wedged); err != nil || d.reused || ctx.Err() != nil {
			return err
		}
	}
	if ui := net.JoinHostPort(loopback, strconv.Itoa(d.UIPort)); listening(ctx, ui) {
		return portTaken(d.UIPort, "--ui-port", "")
	}
	log, err := d.serverLog()
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	// The command's context is not ours: it ends the children in order.
	command := exec.CommandContext(context.WithoutCancel(ctx), binary, d.serverArgs()...)
	command.Env = d.environment
	command.Stdout, command.Stderr = log, log
	if d.server, err = startChild(command, "Temporal's server"); err != nil {
		return err
	}
	if err := d.recordServer(); err != nil {
		return err
	}
	return d.awaitServer(ctx, log.Name())
}

func (d *development) serverArgs() []string {
	args := []string{"server", "start-dev", "--ip", loopback, "--port", strconv.Itoa(d.Port), "--ui-port", strconv.Itoa(d.UIPort),
		// The default of 20 polls a second makes each step wait for 50 ms.
		"--dynamic-config-value", "history.transferProcessorMaxPollRPS=2000", "--log-level", "warn"}
	if !d.Ephemeral {
		args = append(args, "--db-filename", filepath.Join(d.config.StateDir, "dev", "temporal.db"),
			"--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=normal")
	}
	if namespace := d.environment.get("TEMPORAL_NAMESPACE"); namespace != "" {
		args = append(args, "--namespace", namespace)
	}
	return args
}

func (d *development) serverLog() (*os.File, error) {
	dir := filepath.Join(d.config.StateDir, "dev")
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		var log *os.File
		if log, err = os.Create(filepath.Join(dir, "temporal.log")); err == nil {
			return log, nil
		}
	}
	return nil, &teardown.Error{Code: teardown.CodePermissionDenied, Cause: err,
		Message: "the state directory cannot be written; correct its owner or mode, or set UNWIND_STATE_DIR"}
}

func (d *development) awaitServer(ctx context.Context, log string) error {
	d.progress("Starting Temporal at %s …", d.address)
	limit := time.After(serverStartLimit)
	for !d.healthy(ctx) {
		select {
		case <-ctx.Done():
			return nil
		case <-d.server.ended:
			return &teardown.Error{Code: teardown.CodeTemporalUnavailable, Cause: d.server.err, Message: "Temporal's server ended at once; see " + log}
		case <-limit:
			return &teardown.Error{Code: teardown.CodeTemporalUnavailable,
				Message: fmt.Sprintf("Temporal's server does not answer at %s after %s; see %s", d.address, durationText(serverStartLimit), log)}
		case <-time.After(pollInterval):
		}
	}
	return nil
}

func (d *development) startWorker(ctx context.Context, path string) error {
	began := now()
	command := exec.CommandContext(context.WithoutCancel(ctx), path, d.settingFlags()...)
	command.Env = d.childEnvironment()
	command.Stdout, command.Stderr = d.err, d.err
	var err error
	if d.worker, err = startChild(command, "unwind-worker"); err != nil {
		return err
	}
	d.progress("Starting unwind-worker …")
	limit := time.After(workerStartLimit)
	for !d.workerSeen(ctx, began) {
		select {
		case <-ctx.Done():
			return nil
		case <-d.worker.ended:
			return d.workerEnded()
		case <-limit:
			d.note("%s: unwind-worker did not report in %s; its log is above.", name, durationText(workerStartLimit))
			return nil
		case <-time.After(pollInterval):
		}
	}
	return nil
}

// settingFlags hands on the settings that were given as flags.
func (d *development) settingFlags() []string {
	var args []string
	overlaid := d.flags.Over(func(string) string { return "" })
	for _, setting := range config.Settings() {
		if value := overlaid(setting.Variable); value != "" && setting.Variable != "UNWIND_UI_URL" {
			args = append(args, "--"+setting.Flag+"="+value)
		}
	}
	return args
}

// workerSeen: the worker records that it was seen when it takes up its work.
func (d *development) workerSeen(ctx context.Context, since time.Time) bool {
	have, want, err := store.SchemaVersion(ctx, d.config.DatabaseURL)
	if err != nil || have != want {
		return false
	}
	opened, err := store.Open(ctx, d.config.DatabaseURL)
	if err != nil {
		return false
	}
	defer func() { _ = opened.Close() }()
	host, found, err := opened.Host(ctx, d.config.Host)
	return err == nil && found && host.LastSeen.After(since)
}

// workerEnded passes on what the worker's exit code says.
func (d *development) workerEnded() error {
	ended := &teardown.Error{Code: teardown.CodeInternal, Cause: d.worker.err, Message: "unwind-worker ended; its log is above"}
	switch exitCode(d.worker.ProcessState.ExitCode()) {
	case exitUsage:
		ended.Code = teardown.CodeInvalidConfig
	case exitRefused:
		ended.Code = teardown.CodeSchemaVersion
	case exitUnavailable:
		ended.Code = teardown.CodeTemporalUnavailable
	}
	return ended
}

func (d *development) interrupted() error {
	d.progress("Stopping …")
	return nil
}

func (d *development) progress(format string, args ...any) {
	if d.errTerminal {
		d.note(format, args...)
	}
}

func (d *development) announce() {
	r := ready{Address: d.address, WebUI: d.webUI(), Host: d.config.Host, Reused: d.reused, Replaced: d.replaced}
	if d.server != nil {
		r.ServerPID = d.server.Process.Pid
	}
	if d.worker != nil {
		r.WorkerPID = d.worker.Process.Pid
	}
	if d.page != nil {
		r.Sessions = d.page.url
	}
	if d.json {
		d.printJSON(r)
		return
	}
	d.say("Temporal   %s", d.address)
	if d.reused {
		d.say("           it was already running and will be left running")
	}
	if r.WebUI != "" {
		d.say("Web UI     %s", r.WebUI)
	}
	if r.Sessions != "" {
		d.say("Sessions   %s", r.Sessions)
	}
	d.say("Database   %s", d.config.Database())
	d.say("Host       %s", d.config.Host)
	if d.Port != defaultPort {
		d.say("\nIn other terminals:\n  export TEMPORAL_ADDRESS=%s UNWIND_UI_URL=%s", d.address, r.WebUI)
	}
	d.say("\nCtrl-C ends it.")
}

// untilEnd returns when we are asked to stop, or when a part has ended by
// itself.
func (d *development) untilEnd(ctx context.Context) error {
	var serverEnded chan struct{}
	if d.server != nil {
		serverEnded = d.server.ended
	}
	select {
	case <-ctx.Done():
		return d.interrupted()
	case <-serverEnded:
		return &teardown.Error{Code: teardown.CodeTemporalUnavailable, Cause: d.server.err,
			Message: "Temporal's server ended; see dev/temporal.log in the state directory"}
	case <-d.worker.ended:
		return d.workerEnded()
	}
}
