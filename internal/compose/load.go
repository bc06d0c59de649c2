// Package compose reads Compose files that run unwind, and finds where they
// contradict themselves.
package compose

import (
	"context"
	"fmt"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"unwind/teardown"
)

// Load reads Compose files as `docker compose -f` does: a later one over an
// earlier one, variables from environ ("NAME=value") and from the file .env
// beside the first. The error has code invalid_config.
func Load(ctx context.Context, environ []string, files ...string) (*types.Project, error) {
	options, err := cli.NewProjectOptions(files, cli.WithEnv(environ), cli.WithEnvFiles(), cli.WithDotEnv, cli.WithProfiles([]string{"*"}))
	if err != nil {
		return nil, unusable(files, err)
	}
	project, err := options.LoadProject(ctx)
	if err != nil {
		return nil, unusable(files, err)
	}
	return project, nil
}

func unusable(files []string, err error) error {
	return &teardown.Error{Code: "invalid_config", Cause: err,
		Message: fmt.Sprintf("The Compose file %s cannot be used; correct what is named", strings.Join(files, ", "))}
}
