package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unwind/internal/config"
	"unwind/teardown"
)

// Groups of commands in the help.
const (
	groupSessions     = "sessions"
	groupFinalization = "finalization"
	groupByHand       = "by-hand"
	groupInstallation = "installation"
)

// Commands are listed in the order in which they are added: that of a session's
// life.
func init() { cobra.EnableCommandSorting = false }

// execute runs one command line and answers its exit code.
func (p *program) execute(ctx context.Context, args []string) int {
	out := &output{to: p.out}
	p.out = out
	root := newRootCommand(p)
	root.SetArgs(append([]string{}, args...)) // never nil, or cobra takes the process's own
	ended := root.ExecuteContext(ctx)
	if out.failed != nil && errors.Is(ended, out.failed) {
		ended = nil // said once, below
	}
	code := p.end(ended)
	if err := out.lost(); err != nil {
		p.note("%s: the output is not complete: %s; make room or send it elsewhere, then look again", name, sentence(err.Error()))
		code = int(worst(exitCode(code), exitFailed))
	}
	return code
}

func newRootCommand(p *program) *cobra.Command {
	root := &cobra.Command{
		Use:   name,
		Short: "Give back what finished coding-agent sessions held, and lose nothing",
		Long: `unwind gives back what a finished coding-agent session held (its tmux session or
process, its git worktrees, its agent's files) and loses nothing on the way:
whatever a person could miss is kept, with the reason and the list of it.`,
		Example: `  unwind dev                      # Temporal, a worker, everything on this machine
  unwind session add -f s1.json   # register what session s1 holds
  unwind terminate s1 --wait      # release it
  unwind status s1                # what was kept, and why
  unwind retry s1                 # look again after you settled it`,
		SilenceUsage:               true,
		SilenceErrors:              true,
		SuggestionsMinimumDistance: 2,
	}
	root.SetUsageTemplate(usageTemplate(root.UsageTemplate()))
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError("%s; see %s --help", err.Error(), cmd.CommandPath())
	})
	root.PersistentFlags().BoolVar(&p.json, "json", false, "print JSON, one object a line")
	p.flags = addSettings(root.PersistentFlags())
	root.AddGroup(
		&cobra.Group{ID: groupSessions, Title: "Sessions:"},
		&cobra.Group{ID: groupFinalization, Title: "Finalization:"},
		&cobra.Group{ID: groupByHand, Title: "By hand, without Temporal or a database:"},
		&cobra.Group{ID: groupInstallation, Title: "This installation:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, command := range commands {
			command.GroupID = group
			root.AddCommand(command)
		}
	}
	add(groupSessions, newSessionCommand(p), newTurnCommand(p), newTerminateCommand(p), newStatusCommand(p), newListCommand(p), newWatchCommand(p), newSnapshotCommand(p), newTaskCommand(p))
	add(groupSessions, newHookCommand(p))
	add(groupFinalization, newRetryCommand(p), newRestoreCommand(p), newRecoverCommand(p), newRescueCommand(p), newHoldCommand(p), newPlanCommand(p), newReconcileCommand(p))
	add(groupByHand, newWorktreeCommand(p), newRuntimeCommand(p))
	add(groupInstallation, newDevCommand(p), newDoctorCommand(p), newHostsCommand(p), newMigrateCommand(p), newVersionCommand(p))
	add(groupByHand, newScanCommand(p))
	add(groupSessions, newAdoptCommand(p))
	add(groupInstallation, newServeCommand(p))
	root.AddCommand(newSettingsTopic())
	root.SetHelpCommand(newHelpCommand(root))
	root.SetHelpCommandGroupID(groupInstallation)
	root.SetCompletionCommandGroupID(groupInstallation)
	group(root)
	return root
}

// helpWidth is where the help of flags is wrapped.
const helpWidth = 100

// usageTemplate is cobra's with two changes: flags are wrapped, and a command
// that only holds others, which can be run to hear just that, shows no line of
// its own.
func usageTemplate(cobras string) string {
	return strings.NewReplacer(
		"{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}",
		".FlagUsages ", fmt.Sprintf(".FlagUsagesWrapped %d ", helpWidth),
	).Replace(cobras)
}

// addSettings adds a flag for each setting. They are out of sight in the help of
// the commands, which would hold little else; `unwind help settings` lists them.
func addSettings(set *pflag.FlagSet) config.Flags {
	flags := config.AddFlags(set)
	for _, setting := range config.Settings() {
		set.Lookup(setting.Flag).Hidden = true
	}
	return flags
}

func newSettingsTopic() *cobra.Command {
	var b strings.Builder
	b.WriteString(`Each setting is an environment variable and a flag of every command; the flag
wins. Temporal's own settings are TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE and the
others of its own tools.
`)
	for _, setting := range config.Settings() {
		fmt.Fprintf(&b, "\n%s, --%s\n    %s\n    default: %s\n", setting.Variable, setting.Flag, setting.Help,
			strings.ReplaceAll(setting.Default, "`", ""))
	}
	return &cobra.Command{Use: "settings", Short: "Environment variables and the flags that stand for them", Long: strings.TrimSuffix(b.String(), "\n")}
}

// group makes a command that only holds others answer what they are, and an
// unknown one with suggestions.
func group(command *cobra.Command) {
	command.Args = cobra.ArbitraryArgs
	command.SuggestionsMinimumDistance = 2
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknownCommand(cmd, args[0])
	}
}

func unknownCommand(parent *cobra.Command, word string) error {
	advice := "see " + parent.CommandPath() + " --help"
	if alike := parent.SuggestionsFor(word); len(alike) > 0 {
		advice = "did you mean " + strings.Join(alike, " or ") + "?"
	}
	return usageError("%q is not a command of %s; %s", word, parent.CommandPath(), advice)
}

// newHelpCommand is cobra's own, except that an unknown command is an error.
func newHelpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		Long:  "Show the help of a command or of a topic, as its own --help does.",
		RunE: func(_ *cobra.Command, args []string) error {
			command, rest, err := root.Find(args)
			switch {
			case err != nil:
				return err
			case len(rest) > 0:
				return unknownCommand(command, rest[0])
			}
			command.InitDefaultHelpFlag()
			return command.Help()
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var words []string
			if command, rest, err := root.Find(args); err == nil && len(rest) == 0 {
				for _, below := range command.Commands() {
					if below.IsAvailableCommand() || below.IsAdditionalHelpTopicCommand() {
						words = append(words, below.Name()+"\t"+below.Short)
					}
				}
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// runs makes cobra's function of a command's own.
func runs(run func(context.Context) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		err := run(ctx)
		if err == nil {
			return nil
		}
		var said verdict
		if ctx.Err() != nil && !errors.As(err, &said) {
			err = &teardown.Error{Code: codeInterrupted, Retryable: true, Message: "stopped by a signal; run it again to go on"}
		}
		return failed{err}
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError("%s takes no arguments, %q is one too many; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return nil
}

// takesID puts the one argument, a session's id, into id.
func takesID(id *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return usageError("%s needs the id of a session; see %s list", cmd.CommandPath(), name)
		case 1:
			*id = args[0]
			return teardown.ValidateID(args[0])
		}
		return usageError("%s takes the id of one session, %q is one too many; see %s --help", cmd.CommandPath(), args[1], cmd.CommandPath())
	}
}
