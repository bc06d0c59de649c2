package main

import "github.com/spf13/cobra"

func newHookCommand(p *program) *cobra.Command {
	command := &cobra.Command{
		Use:   "hook",
		Short: "Tell of a session's end, from the hooks of tmux and of coding agents",
		Long:  "Commands to be named in the hooks of other programs. They record facts and destroy nothing.",
	}
	command.AddCommand(newHookExitCommand(p))
	group(command)
	return command
}
