// Command unwind-worker carries out what unwind's workflows decide, on the
// machine it runs on, and takes its turn in running the workflows themselves.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"unwind/internal/config"
	"unwind/internal/version"
	"unwind/teardown"
)

const program = "unwind-worker"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal stops in order; a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(command(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// command reads flags and settings, runs the worker, and answers the exit code.
func command(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet(program, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.SortFlags = false
	settings := config.AddFlags(flags)
	showVersion := flags.Bool("version", false, "print the version and exit")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		usage(stdout, flags)
		return exitDone
	case err == nil && *showVersion:
		fmt.Fprintln(stdout, program, version.String())
		return exitDone
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("it takes flags only, not %q", flags.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v; see %s --help\n", program, err, program)
		return exitUsage
	}
	env := environment(environ)
	cfg, err := config.Load(settings.Over(env.get))
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", program, err)
		return exitOf(err)
	}
	logger := newLogger(cfg, stderr)
	for _, name := range config.Unknown(environ) {
		logger.Warn("This variable is no setting of unwind's; is it misspelt?", "variable", name)
	}
	if err := run(ctx, cfg, env, logger); err != nil {
		report(cfg, logger, stderr, err)
		return exitOf(err)
	}
	return exitDone
}

const introduction = `unwind-worker releases what terminated sessions held on this machine, and runs unwind's workflows.
Run one on each machine that holds sessions; several on one machine do no harm.

Usage:
  unwind-worker [flags]

Each flag has a variable; a flag that is given wins. The address, namespace, TLS and API key of Temporal are read from
TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_TLS… and TEMPORAL_API_KEY, or from a profile in temporal.toml
(TEMPORAL_PROFILE). Traces go to OTEL_EXPORTER_OTLP_ENDPOINT, if that is set.

SIGTERM and SIGINT let the steps that run finish; a second one does not.

Exit codes: 0 stopped, 4 failed, 64 usage, 65 database of another schema version, 69 Temporal or the database is not
reachable, 75 try again.

Flags:
`

// helpWidth is where the descriptions of flags are wrapped.
const helpWidth = 120

func usage(out io.Writer, flags *pflag.FlagSet) {
	fmt.Fprint(out, introduction+flags.FlagUsagesWrapped(helpWidth))
}

func newLogger(cfg config.Config, out io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == config.LogJSON {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}

// report writes why the worker ends: to people as a plain sentence, to programs
// as one more record.
func report(cfg config.Config, logger *slog.Logger, stderr io.Writer, err error) {
	if cfg.LogFormat == config.LogJSON {
		logger.Error("The worker ends", "code", teardown.CodeOf(err), "error", err)
		return
	}
	fmt.Fprintf(stderr, "%s: %v\n", program, err)
}
