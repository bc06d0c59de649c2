package main

import (
	"context"

	"github.com/spf13/cobra"

	"unwind/internal/store"
	"unwind/teardown"
)

type migrateOptions struct {
	*program
	Status bool
}

func newMigrateCommand(p *program) *cobra.Command {
	o := &migrateOptions{program: p}
	command := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema to the version of this program",
		Long: `Bring the database's schema to the version of this program. A SQLite database is
made when it is first used; a Postgres database has to exist.

Stop the workers first: all that is missing is one transaction, which fails, leaving
the database as it was, if a fact was lost or changed while it ran. A SQLite database
is copied to a file beside it before. One process migrates at a time.

With --status, only say which version it has: exit code 0 if it fits, 65 if not.`,
		Example: `  unwind migrate
  unwind migrate --status`,
		Args: noArgs,
		RunE: runs(o.run),
	}
	command.Flags().BoolVar(&o.Status, "status", false, "only say which version the schema has")
	return command
}

// migration is what migrate prints with --json.
type migration struct {
	Have    int64    `json:"have"`
	Want    int64    `json:"want"`
	Applied []string `json:"applied,omitempty"`
	// Snapshot is a copy of a SQLite database as it was before.
	Snapshot string `json:"snapshot,omitempty"`
}

func (o *migrateOptions) run(ctx context.Context) error {
	c, err := o.config()
	if err != nil {
		return err
	}
	if o.Status {
		return o.status(ctx, c.DatabaseURL)
	}
	if err := mayMake(c); err != nil {
		return err
	}
	report, err := store.Migrate(ctx, c.DatabaseURL)
	if err != nil {
		return err
	}
	if o.json {
		o.printJSON(migration{Have: report.To, Want: report.To, Applied: listed(report.Applied), Snapshot: report.Snapshot})
		return nil
	}
	if len(report.Applied) == 0 {
		o.say("The database has schema version %d; nothing to do.", report.To)
		return nil
	}
	o.say("The database went from schema version %d to %d:", report.From, report.To)
	for _, file := range report.Applied {
		o.say("  %s", file)
	}
	if report.Snapshot != "" {
		o.say("The database as it was before is at %s; delete that when you are sure.", shown(report.Snapshot))
	}
	return nil
}

func (o *migrateOptions) status(ctx context.Context, url string) error {
	have, want, err := store.SchemaVersion(ctx, url)
	if err != nil {
		return err
	}
	if o.json {
		o.printJSON(migration{Have: have, Want: want})
	} else {
		o.say("The database has schema version %d; this program needs %d.", have, want)
	}
	if have == want {
		return nil
	}
	o.note("%s: %s", name, schemaAdvice(have, want).Message)
	return verdict(exitRefused)
}

func schemaAdvice(have, want int64) *teardown.Error {
	advice := "run `" + name + " migrate`"
	if have > want {
		advice = "use a newer " + name
	}
	return &teardown.Error{Code: teardown.CodeSchemaVersion, Message: "the schema has another version than this program; " + advice}
}
