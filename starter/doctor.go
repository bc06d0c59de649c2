package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"

	"unwind/internal/config"
	"unwind/internal/store"
	"unwind/internal/temporalclient"
	"unwind/teardown"
)

type doctorOptions struct {
	*program
	Compose []string
}

func newDoctorCommand(p *program) *cobra.Command {
	o := &doctorOptions{program: p}
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Check what unwind needs on this machine, and say what to do",
		Long: `Check what unwind needs on this machine: git and tmux, the settings, the state
directory, the database, Temporal, and a worker of this host; and what in all this
contradicts itself. Nothing is changed, except that a host that has no id yet gets
one.

With --compose it checks a Compose file instead: the settings of the services that
run unwind, where they lead, and what they see of the host.

Exit codes: 0 all is well or only warnings, 65 something has to be put right, 69
the database or Temporal does not answer.`,
		Example: `  unwind doctor
  unwind doctor --json | jq -r 'select(.result != "ok") | .message'
  unwind doctor --compose docker-compose.yml`,
		Args: noArgs,
		RunE: runs(o.run),
	}
	command.Flags().StringArrayVar(&o.Compose, "compose", nil, "check this Compose `file` instead of this machine; a further one goes over it")
	return command
}

// Results of a check.
const (
	checkOK   = "ok"
	checkWarn = "warn"
	checkFail = "fail"
)

// check is one line of the doctor's.
type check struct {
	Check   string `json:"check"`
	Result  string `json:"result"`
	Message string `json:"message"`
}

// examination collects what the doctor found.
type examination struct {
	*program
	codes []exitCode
}

func (o *doctorOptions) run(ctx context.Context) error {
	e := &examination{program: o.program, codes: []exitCode{exitDone}}
	if len(o.Compose) > 0 {
		e.composeFiles(ctx, o.Compose)
		return asVerdict(worst(e.codes...))
	}
	e.git(ctx)
	e.tmux(ctx)
	for _, variable := range config.Unknown(o.environment) {
		e.warn("settings", "%s is no setting of %s; is it misspelt? See `%s help settings`", variable, name, name)
	}
	c, err := o.config()
	if err != nil {
		e.fail("settings", exitRefused, "%s", sentence(err.Error()))
		return asVerdict(worst(e.codes...))
	}
	e.ok("settings", "all settings can be used")
	e.machine(c)
	here := placeAt("/")
	e.seesHost(c, here, isMounted)
	e.databaseURL(c, here)
	opened := e.database(ctx, c, here)
	server := e.temporal(ctx, here)
	defer server.Close()
	if server.away == nil {
		e.namespace(ctx, server, c)
		e.webUI(ctx, server, c, here)
	}
	e.unit(c, e.systemd(ctx))
	if opened != nil {
		defer func() { _ = opened.Close() }()
		e.worker(ctx, opened, c)
	}
	return asVerdict(worst(e.codes...))
}

func (e *examination) ok(what, format string, args ...any) {
	e.print(check{what, checkOK, fmt.Sprintf(format, args...)}, green)
}

func (e *examination) warn(what, format string, args ...any) {
	e.print(check{what, checkWarn, fmt.Sprintf(format, args...)}, yellow)
}

func (e *examination) fail(what string, code exitCode, format string, args ...any) {
	e.codes = append(e.codes, code)
	e.print(check{what, checkFail, fmt.Sprintf(format, args...)}, red)
}

func (e *examination) print(c check, as style) {
	if e.json {
		e.printJSON(c)
		return
	}
	if !e.outTerminal {
		e.say("%s\t%s\t%s", c.Result, c.Check, c.Message)
		return
	}
	e.say("%s  %-14s %s", e.styled(fmt.Sprintf("%-4s", c.Result), as), c.Check, c.Message)
}

// oldestGit knows all that the inspection of worktrees asks of it.
var oldestGit = [2]int{2, 36}

var versionPattern = regexp.MustCompile(`(\d+)\.(\d+)`)

func (e *examination) git(ctx context.Context) {
	text, err := e.output(ctx, "git", "--version")
	if err != nil {
		e.fail("git", exitRefused, "git cannot be run (%v); install it", err)
		return
	}
	if found := versionPattern.FindStringSubmatch(text); found != nil {
		major, _ := strconv.Atoi(found[1])
		minor, _ := strconv.Atoi(found[2])
		if major < oldestGit[0] || major == oldestGit[0] && minor < oldestGit[1] {
			e.warn("git", "%s is older than %d.%d, with which %s is tested; worktrees may be kept that could go", text, oldestGit[0], oldestGit[1], name)
			return
		}
	}
	e.ok("git", "%s", text)
}

func (e *examination) tmux(ctx context.Context) {
	text, err := e.output(ctx, "tmux", "-V")
	if err != nil {
		e.warn("tmux", "tmux cannot be run (%v); install it if sessions of this host run in tmux", err)
		return
	}
	e.ok("tmux", "%s", text)
}

// programLimit bounds a program that only says its version.
const programLimit = 10 * time.Second

func (e *examination) output(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, programLimit)
	defer cancel()
	command := exec.CommandContext(ctx, program, args...)
	command.Env = e.environment
	text, err := command.Output()
	var missing *exec.Error
	if errors.As(err, &missing) {
		err = missing.Err
	}
	return sentence(string(text)), err
}

// machine checks what lies on this machine's disk.
func (e *examination) machine(c config.Config) {
	if err := writable(c.StateDir); err != nil {
		e.fail("state directory", exitRefused, "%s cannot be written (%v); correct its owner or mode, or set UNWIND_STATE_DIR", shown(c.StateDir), err)
	} else {
		e.ok("state directory", "%s", shown(c.StateDir))
	}
	e.ok("host", "%s", c.Host)
	for _, root := range c.Roots {
		info, err := os.Stat(root)
		switch {
		case err != nil:
			e.warn("roots", "%s cannot be used (%v); worktrees below it are left alone until it can", shown(root), errors.Unwrap(err))
		case !info.IsDir():
			e.warn("roots", "%s is not a directory; correct UNWIND_ROOTS", shown(root))
		default:
			e.ok("roots", "%s", shown(root))
		}
	}
}

func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

func (e *examination) database(ctx context.Context, c config.Config, here place) *store.Store {
	e.databaseFile(c)
	have, want, err := store.SchemaVersion(ctx, c.DatabaseURL)
	switch {
	case err != nil:
		e.fail("database", databaseExit(err), "%s", sentence(err.Error()))
		if u, err := url.Parse(c.DatabaseURL); err == nil {
			e.unreachable(u.Hostname(), here)
		}
		return nil
	case have == 0 && mayMake(c) != nil:
		e.fail("database", exitUnavailable, "%s", sentence(mayMake(c).Error()))
		return nil
	case have == 0 && strings.HasPrefix(c.DatabaseURL, "sqlite:"):
		e.ok("database", "%s is made when it is first used", c.Database())
		return nil
	case have != want:
		e.fail("database", exitRefused, "%s has schema version %d and this program needs %d; %s", c.Database(), have, want, schemaAdvice(have, want))
		return nil
	}
	opened, err := store.Open(ctx, c.DatabaseURL)
	if err != nil {
		e.fail("database", databaseExit(err), "%s", sentence(err.Error()))
		return nil
	}
	if err := opened.Writable(ctx); err != nil {
		e.fail("database", databaseExit(err), "%s", sentence(err.Error()))
		return opened
	}
	e.ok("database", "%s, schema version %d", c.Database(), have)
	return opened
}

func databaseExit(err error) exitCode {
	if code := exitOf(err); code == exitUnavailable {
		return code
	}
	return exitRefused
}

// databaseFile warns of a SQLite file that others can write: what is in it
// decides what is removed.
func (e *examination) databaseFile(c config.Config) {
	path, isFile := sqlitePath(c.DatabaseURL)
	if !isFile {
		return
	}
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o022 != 0 {
		e.warn("database", "others can write %s, which decides what is removed; run chmod go-w on it", shown(path))
	}
}

func (e *examination) temporal(ctx context.Context, here place) temporal {
	server := e.dial(ctx)
	if server.away == nil {
		e.ok("temporal", "%s answers", server.Address)
		return server
	}
	code := exitUnavailable
	if exitOf(server.away) == exitUsage {
		code = exitRefused
	}
	e.fail("temporal", code, "%s", sentence(server.away.Error()))
	if host, _, err := net.SplitHostPort(e.environment.get("TEMPORAL_ADDRESS")); err == nil {
		e.unreachable(host, here)
	}
	return server
}

func (e *examination) namespace(ctx context.Context, server temporal, c config.Config) {
	ctx, cancel := context.WithTimeout(ctx, programLimit)
	defer cancel()
	_, err := server.Client.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: server.Namespace})
	if err != nil {
		e.fail("namespace", exitUnavailable, "%s", sentence(server.Explain(err).Error()))
		return
	}
	e.ok("namespace", "%s", server.Namespace)
	if !c.SearchAttributes {
		e.ok("attributes", "search attributes are off")
		return
	}
	have, err := server.Client.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: server.Namespace})
	if err != nil {
		e.warn("attributes", "the search attributes cannot be listed (%v); an operator has to add %s", err, strings.Join(temporalclient.Attributes, ", "))
		return
	}
	known := slices.Collect(maps.Keys(have.GetCustomAttributes()))
	missing := of(temporalclient.Attributes, func(attribute string) bool { return !slices.Contains(known, attribute) })
	if len(missing) > 0 {
		e.warn("attributes", "search attributes %s are not registered yet; a worker does that when it starts", strings.Join(missing, ", "))
		return
	}
	e.ok("attributes", "all search attributes are registered")
}

func (e *examination) worker(ctx context.Context, opened *store.Store, c config.Config) {
	host, found, err := opened.Host(ctx, c.Host)
	switch {
	case err != nil:
		e.fail("worker", databaseExit(err), "%s", sentence(err.Error()))
	case !found:
		e.warn("worker", "no worker of this host was ever seen; start unwind-worker, or `%s dev`", name)
	case !host.SeenWithin(hostSeenWithin, now()):
		e.warn("worker", "the worker of this host was last seen %s; start unwind-worker", lastSeen(host, now()))
	default:
		e.ok("worker", "seen %s, version %s", ago(host.LastSeen, now()), host.Version)
	}
	e.leftOvers(ctx, opened, c)
	if opened.Dialect() == store.SQLite {
		e.severalHosts(ctx, opened, c)
	}
}

// leftOvers warns of worktrees that nobody holds and that are kept.
func (e *examination) leftOvers(ctx context.Context, opened *store.Store, c config.Config) {
	page, err := opened.Strays(ctx, c.Host, "", teardown.MaxDetails)
	if err != nil {
		e.fail("left-overs", databaseExit(err), "%s", sentence(err.Error()))
		return
	}
	kept := of(page.Rows, func(stray store.Stray) bool { return stray.State == store.WorktreePreserved && stray.KeptCode != "" })
	for _, stray := range kept {
		e.warn("left-overs", "%s", sentence(stray.Why().Message))
	}
	if page.Next != "" {
		e.warn("left-overs", "there may be more; `%s reconcile` says", name)
	}
}

// sqlitePath is the file of a SQLite database.
func sqlitePath(databaseURL string) (string, bool) {
	u, err := url.Parse(databaseURL)
	if err != nil || u.Scheme != "sqlite" {
		return "", false
	}
	return filepath.Clean(u.Path), true
}
