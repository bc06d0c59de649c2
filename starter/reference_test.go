package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const referenceHead = `# Command line

This page is made from the commands' own help (` + "`go test ./starter -run TestReference -update`" + `).

` + "`--json`" + ` goes with every command: one object a line on standard output. Progress and hints go to standard error. An error is one
sentence on standard error, beginning with ` + "`unwind: `" + `, that says what to do; with ` + "`--json`" + ` standard output has it, too, as
` + "`{\"error\":{\"code\":\"…\",\"message\":\"…\",\"retryable\":false}}`" + `. Tables are aligned and coloured on a terminal only (` + "`NO_COLOR`" + ` turns
colours off); when piped, columns are separated by tabs, without a heading.

## Exit codes

| code | means |
| --- | --- |
| 0 | done: removed, released, already gone, restored |
| 3 | a worktree was preserved, because something could be lost |
| 4 | failed: the attempts are used up, or an error of unwind's own |
| 64 | usage: a command line, setting, id or manifest that is ill-formed or contradicts itself |
| 65 | refused: understood, and not done (unknown session, conflict, live session, main working tree, outside of the roots, another host's, another schema version, a runtime's identity) |
| 69 | Temporal or the database does not answer |
| 75 | try again, or still under way (also held, or superseded by a newer generation) |

Of several, the first of 64, 69, 65, 4, 75, 3, 0 that occurs.

Every setting has a flag, too; see [configuration](configuration.md) or ` + "`unwind help settings`" + `.
`

// reference is docs/cli.md.
func reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(referenceHead)
	for _, command := range commands(root) {
		level := strings.Repeat("#", 1+strings.Count(command.CommandPath(), " "))
		fmt.Fprintf(&b, "\n%s %s\n\n", level, command.CommandPath())
		fmt.Fprintf(&b, "%s.\n", command.Short)
		if command.HasSubCommands() {
			fmt.Fprintf(&b, "\n```text\n%s\n```\n", command.Long)
			continue
		}
		fmt.Fprintf(&b, "\n```text\n%s\n", command.UseLine())
		if command.Long != "" {
			fmt.Fprintf(&b, "\n%s\n", command.Long)
		}
		if flags := flagLines(command.LocalNonPersistentFlags()); flags != "" {
			fmt.Fprintf(&b, "\nFlags:\n%s", flags)
		}
		fmt.Fprintf(&b, "\nExamples:\n%s\n```\n", command.Example)
	}
	return b.String()
}

func flagLines(flags *pflag.FlagSet) string {
	flags.SortFlags = true
	var b strings.Builder
	for _, line := range strings.SplitAfter(flags.FlagUsagesWrapped(helpWidth), "\n") {
		if !strings.Contains(line, "--help") {
			b.WriteString(line)
		}
	}
	return b.String()
}
