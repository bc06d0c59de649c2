package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

type hostsOptions struct{ *program }

func newHostsCommand(p *program) *cobra.Command {
	o := &hostsOptions{program: p}
	return &cobra.Command{
		Use:   "hosts",
		Short: "List the hosts whose workers were seen",
		Long: `List the hosts whose workers were seen, and when.

When piped, the columns are separated by tabs: id, name, version, last seen, "this"
for this host.`,
		Example: `  unwind hosts
  unwind hosts --json`,
		Args: noArgs,
		RunE: runs(o.run),
	}
}

// hostReport is one host with --json.
type hostReport struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	LastSeen time.Time `json:"last_seen"`
	This     bool      `json:"this"`
}

func (o *hostsOptions) run(ctx context.Context) error {
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	hosts, err := f.Hosts(ctx)
	if err != nil {
		return err
	}
	t := newTable(o.streams, "ID", "NAME", "VERSION", "LAST SEEN", "")
	for _, host := range hosts {
		this := host.ID == f.config.Host
		if o.json {
			o.printJSON(hostReport{ID: host.ID, Name: host.Name, Version: host.Version, LastSeen: host.LastSeen, This: this})
			continue
		}
		seen, as := host.LastSeen.UTC().Format(time.RFC3339), plain
		if o.outTerminal {
			seen = ago(host.LastSeen, now())
			if now().Sub(host.LastSeen) > hostSeenWithin {
				as = yellow
			}
		}
		mark := ""
		if this {
			mark = "this"
		}
		t.add(cell{host.ID, bold}, cell{text: host.Name}, cell{text: host.Version}, cell{seen, as}, cell{text: mark})
	}
	if o.json {
		return nil
	}
	if len(hosts) > 0 {
		t.print()
	} else if o.outTerminal {
		o.note("No worker was seen yet. Start one with unwind-worker, or `%s dev`.", name)
	}
	return nil
}
