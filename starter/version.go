package main

import (
	"context"
	"runtime"

	"github.com/spf13/cobra"

	"unwind/internal/version"
)

type versionOptions struct{ *program }

func newVersionCommand(p *program) *cobra.Command {
	o := &versionOptions{program: p}
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  unwind version\n  unwind version --json",
		Args:    noArgs,
		RunE:    runs(o.run),
	}
}

// build is what version prints with --json.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (o *versionOptions) run(context.Context) error {
	b := build{Version: version.String(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if o.json {
		o.printJSON(b)
		return nil
	}
	o.say("%s %s (%s, %s)", name, b.Version, b.Go, b.Platform)
	return nil
}
