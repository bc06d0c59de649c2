// The bench measures unwind against plain commands that do the same work, in
// one run on one machine, and prints a table. Run it with `make bench`.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"text/tabwriter"
	"time"
)

// row is one line of the table. Ratio is unwind's figure over the baseline's.
type row struct {
	what, unwind, baseline, ratio string
}

type options struct {
	programs string
	sessions int
	singles  int
	files    int
	only     string
	sizes    string
	backlog  int
	database string
}

func main() {
	var o options
	flag.StringVar(&o.programs, "programs", "bin", "directory of unwind and unwind-worker")
	flag.IntVar(&o.sessions, "sessions", 100, "sessions terminated at once")
	flag.IntVar(&o.singles, "singles", 40, "sessions terminated one at a time")
	flag.IntVar(&o.files, "files", 200, "files in each worktree")
	flag.StringVar(&o.only, "only", "", "one part: finalizations, statements, removals, passes, runtimes, notices, or backlog, which takes a quarter of an hour and is none of the others")
	flag.StringVar(&o.sizes, "sizes", "20000,100000", "files in the worktrees that are removed one at a time")
	flag.IntVar(&o.backlog, "backlog", 10_000, "sessions of the backlog")
	flag.StringVar(&o.database, "database", "", "the backlog's database alone: sqlite or postgres")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	programs, err := filepath.Abs(o.programs)
	if err != nil {
		return err
	}
	o.programs = programs
	var rows []row
	for _, part := range []struct {
		name    string
		measure func(context.Context, options) ([]row, error)
	}{{"finalizations", finalizations}, {"statements", statements}, {"removals", removals}, {"passes", passes}, {"runtimes", runtimes}, {"notices", notices}, {"backlog", backlog}} {
		if o.only != part.name && (o.only != "" || part.name == "backlog") {
			continue
		}
		more, err := part.measure(ctx, o)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "WHAT\tUNWIND\tBASELINE\tRATIO")
	for _, r := range rows {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.what, r.unwind, r.baseline, r.ratio)
	}
	return table.Flush()
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func perSecond(n int, took time.Duration) float64 { return float64(n) / took.Seconds() }

func times(unwind, baseline float64) string { return fmt.Sprintf("%.2f", unwind/baseline) }
