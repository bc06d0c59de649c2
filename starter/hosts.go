package main

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

type hostsOptions struct{ *program }

func newHostsCommand(p *program) *cobra.Command {
	o := &hostsOptions{program: p}
	return &cobra.Command{
		Use:   "hosts",
		Short: "List the hosts, when their workers were seen, and what waits for them",
		Long: `List the hosts whose workers were seen or that have sessions, when they were seen,
and how many sessions wait for them: live ones; those under way, which are terminated
and not done; those parked until the host answers, which go on by themselves then; and
those parked until a person does something. Held ones are counted apart, with --json.
When piped, the columns are separated by tabs: id, name, version, last seen, live, under
way, away, parked, "this" for this host.`,
		Example: `  unwind hosts
  unwind hosts --json`,
		Args: noArgs,
		RunE: runs(o.run),
	}
}

// hostReport is one host with --json.
type hostReport struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Version string `json:"version"`
	// LastSeen is null if no worker of the host was ever seen.
	LastSeen    *time.Time `json:"last_seen"`
	This        bool       `json:"this"`
	Live        int        `json:"live"`
	Held        int        `json:"held"`
	UnderWay    int        `json:"under_way"`
	Unreachable int        `json:"unreachable"`
	Parked      int        `json:"parked"`
}

func (o *hostsOptions) run(ctx context.Context) error {
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	reports, err := hostReports(ctx, f)
	if err != nil {
		return err
	}
	if o.json {
		for _, r := range reports {
			o.printJSON(r)
		}
		return nil
	}
	if len(reports) == 0 {
		if o.outTerminal {
			o.note("No worker was seen yet. Start one with unwind-worker, or `%s dev`.", name)
		}
		return nil
	}
	t := newTable(o.streams, "ID", "NAME", "VERSION", "LAST SEEN", "LIVE", "UNDER WAY", "AWAY", "PARKED", "")
	for _, r := range reports {
		mark := ""
		if r.This {
			mark = "this"
		}
		t.add(cell{r.ID, bold}, cell{text: r.Name}, cell{text: r.Version}, o.seen(r.LastSeen), count(r.Live, plain), count(r.UnderWay, plain),
			count(r.Unreachable, yellow), count(r.Parked, yellow), cell{text: mark})
	}
	t.print()
	return nil
}

// hostReports are those that were seen, and those that only have sessions.
func hostReports(ctx context.Context, f *facts) ([]hostReport, error) {
	hosts, err := f.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	loads, err := f.HostLoads(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string]*hostReport{}
	for _, host := range hosts {
		known[host.ID] = &hostReport{ID: host.ID, Name: host.Name, Version: host.Version, LastSeen: &host.LastSeen}
	}
	for _, load := range loads {
		r := known[load.Host]
		if r == nil {
			r = &hostReport{ID: load.Host}
			known[load.Host] = r
		}
		r.Live, r.Held, r.UnderWay, r.Unreachable, r.Parked = load.Live, load.Held, load.UnderWay, load.Unreachable, load.Parked
	}
	var reports []hostReport
	for _, id := range slices.Sorted(maps.Keys(known)) {
		known[id].This = id == f.config.Host
		reports = append(reports, *known[id])
	}
	return reports, nil
}

func (o *hostsOptions) seen(at *time.Time) cell {
	switch {
	case at == nil:
		return cell{"never", yellow}
	case !o.outTerminal:
		return cell{text: at.UTC().Format(time.RFC3339)}
	case now().Sub(*at) > hostSeenWithin:
		return cell{ago(*at, now()), yellow}
	}
	return cell{text: ago(*at, now())}
}

// count is emphasized unless it is 0.
func count(n int, as style) cell {
	if n == 0 {
		as = plain
	}
	return cell{strconv.Itoa(n), as}
}
