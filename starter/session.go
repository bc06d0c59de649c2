package main

import "github.com/spf13/cobra"

func newSessionCommand(p *program) *cobra.Command {
	command := &cobra.Command{
		Use:   "session",
		Short: "Register and start sessions, share their worktrees, and forget them",
		Long:  "Register what a session holds, or start one, so that it can be given back when the session ends.",
	}
	command.AddCommand(newSessionAddCommand(p), newSessionStartCommand(p), newSessionAttachCommand(p), newSessionForkCommand(p),
		newSessionDeleteCommand(p))
	group(command)
	return command
}
