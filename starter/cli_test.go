package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"unwind/teardown"
)

var update = flag.Bool("update", false, "write docs/cli.md anew")

// commands lists all that a person can run.
func commands(root *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, command := range root.Commands() {
		if command.Name() != "completion" && command.Name() != "help" && command.IsAvailableCommand() {
			all = append(append(all, command), commands(command)...)
		}
	}
	return all
}

func TestEveryCommandHasHelpWithExamples(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _, _ := b.program("")
	for _, command := range commands(newRootCommand(p)) {
		help := b.must(append(strings.Fields(command.CommandPath())[1:], "--help")...)
		require.Contains(t, help, command.CommandPath())
		require.NotContains(t, help, "--database-url", "settings have a page of their own")
		if !command.HasSubCommands() {
			require.Contains(t, command.Example, command.CommandPath())
		}
		for _, line := range strings.Split(help, "\n") {
			require.LessOrEqual(t, len(line), helpWidth, "%s: %s", command.CommandPath(), line)
		}
	}
	require.Contains(t, b.must(), "Sessions:")
	require.Contains(t, b.must("help", "settings"), "UNWIND_DATABASE_URL, --database-url")
	require.Contains(t, b.must("help", "session", "add"), "unwind session add -f FILE")
	require.Contains(t, b.must("help"), "Sessions:")
	require.Contains(t, b.must("completion", "bash"), "unwind")
	require.NotContains(t, b.must("dev", "--help"), "(default )")
	for _, command := range []string{"list", "retry"} {
		help := b.must(command, "--help")
		for _, reason := range parkedReasons {
			require.Contains(t, help, "\n  "+reason+" ")
		}
	}
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for line, sentence := range map[string]string{
		"terminat s1":                `"terminat" is not a command of unwind; did you mean terminate?`,
		"frobnicate":                 `"frobnicate" is not a command of unwind; see unwind --help`,
		"session ad":                 `"ad" is not a command of unwind session; did you mean add?`,
		"list --stat x":              `unknown flag: --stat; see unwind list --help`,
		"list x":                     `takes no arguments`,
		"help nosuch":                `"nosuch" is not a command of unwind; see unwind --help`,
		"help terminat":              `"terminat" is not a command of unwind; did you mean terminate?`,
		"help session ad":            `"ad" is not a command of unwind session; did you mean add?`,
		"help list x":                `"x" is not a command of unwind list; see unwind list --help`,
		"hold s1 --for long":         `invalid argument "long" for "--for" flag`,
		"terminate s1 --source=":     `--source takes 1 to 100 characters`,
		"retry":                      `name the session to retry, or give --all`,
		"retry s1 --all":             `not both`,
		"retry s1 --reason x":        `--reason and --host go with --all`,
		"retry --all --reason x":     `--reason "x" is not known; use preserved`,
		"retry s1 --save":            `unknown flag: --save`,
		"plan":                       `name the session to plan for`,
		"list --parallel many":       `UNWIND_PARALLEL (--parallel) is "many": use a whole number`,
		"list --host-id a/b":         `UNWIND_HOST (--host-id)`,
		"list --database-url mysql:": `UNWIND_DATABASE_URL`,
	} {
		r := b.run(strings.Fields(line)...)
		require.Equal(t, exitUsage, r.code, line)
		require.Contains(t, r.stderr, sentence)
		require.True(t, strings.HasPrefix(r.stderr, "unwind: "))
		require.Empty(t, r.stdout, line)
	}
	r := b.run("list", "--json", "--nope")
	require.Equal(t, codeUsage, object[printedError](t, r.stdout).Error.Code)
	r = b.run("retry", "--json")
	require.Equal(t, codeUsage, object[printedError](t, r.stdout).Error.Code)
}

func TestCompletionOffersSessions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.add(teardown.Manifest{ID: "s1"})
	require.Contains(t, b.must("__complete", "status", ""), "s1\tLive\n")
	require.Contains(t, b.must("__complete", "list", "--state", ""), "parked\n")
}

func TestWorstExitCode(t *testing.T) {
	t.Parallel()
	require.Equal(t, exitDone, worst())
	require.Equal(t, exitPreserved, worst(exitDone, exitPreserved))
	require.Equal(t, exitRetryable, worst(exitPreserved, exitRetryable, exitDone))
	require.Equal(t, exitFailed, worst(exitRetryable, exitFailed))
	require.Equal(t, exitRefused, worst(exitFailed, exitRefused))
	require.Equal(t, exitUnavailable, worst(exitRefused, exitUnavailable))
	require.Equal(t, exitUsage, worst(exitUnavailable, exitUsage))
}

func TestExitOfResult(t *testing.T) {
	t.Parallel()
	worktree := func(disposition teardown.Disposition) []teardown.WorktreeResult {
		return []teardown.WorktreeResult{{Disposition: teardown.DispositionRemoved}, {Disposition: disposition}}
	}
	runtime := []teardown.RuntimeResult{{Outcome: teardown.RuntimeRefused}}
	for _, c := range []struct {
		name   string
		result teardown.Result
		exit   exitCode
	}{
		{"finalized", teardown.Result{Outcome: teardown.OutcomeFinalized, Worktrees: worktree(teardown.DispositionRetained)}, exitDone},
		{"preserved", teardown.Result{Outcome: teardown.OutcomePreserved, Worktrees: worktree(teardown.DispositionPreserved)}, exitPreserved},
		{"refused worktree", teardown.Result{Outcome: teardown.OutcomePreserved, Worktrees: worktree(teardown.DispositionRefused)}, exitRefused},
		{"refused runtime", teardown.Result{Outcome: teardown.OutcomeFailed, Runtimes: runtime, Worktrees: worktree(teardown.DispositionPending)}, exitRefused},
		{"refused resource", teardown.Result{Outcome: teardown.OutcomePreserved, Worktrees: worktree(teardown.DispositionRemoved),
			Resources: teardown.ResourcesResult{Cleared: 1, Kept: 1, Refused: 1}}, exitRefused},
		{"attempts used up", teardown.Result{Outcome: teardown.OutcomeFailed, Worktrees: worktree(teardown.DispositionFailed)}, exitFailed},
		{"restored", teardown.Result{Outcome: teardown.OutcomeRestored}, exitDone},
		{"deferred", teardown.Result{Outcome: teardown.OutcomeDeferred}, exitRetryable},
		{"superseded", teardown.Result{Outcome: teardown.OutcomeSuperseded}, exitRetryable},
	} {
		require.Equal(t, c.exit, exitOfResult(c.result), c.name)
	}
}

func TestTextIsSafeToPrint(t *testing.T) {
	t.Parallel()
	require.Equal(t, "/wt/ä", shown("/wt/ä"))
	require.Equal(t, `"/wt/\x1b[2J\n"`, shown("/wt/\x1b[2J\n"))
	require.Equal(t, `"/wt/\xff"`, shown("/wt/\xff"))
	require.Equal(t, "one; two", sentence("one\n  two\n"))
	require.Equal(t, "2.0 KiB", bytesText(2048))
	require.Equal(t, "17 B", bytesText(17))
}

func TestCutCountsNoColours(t *testing.T) {
	t.Parallel()
	require.Equal(t, "abcd", cut("abcd", 4))
	require.Equal(t, "abc…", cut("abcde", 4))
	require.Equal(t, "\x1b[31mabcd\x1b[0m", cut("\x1b[31mabcd\x1b[0m", 4))
	require.Equal(t, "\x1b[31mabc…\x1b[0m", cut("\x1b[31mabcde\x1b[0m", 4))
}

// docs/cli.md is made from the commands. go test ./starter -run TestReference -update
func TestReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _, _ := b.program("")
	want := reference(newRootCommand(p))
	const page = "../docs/cli.md"
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
	}
	have, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, want, string(have), "run: go test ./starter -run TestReference -update")
}
