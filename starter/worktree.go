package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"unwind/internal/config"
	"unwind/internal/worktree"
	"unwind/teardown"
)

// worktreeOptions are those of inspect and of remove.
type worktreeOptions struct {
	*program
	Repository string
	File       string
	Ignored    string
	Paths      []string
	Save       bool
	remove     bool
}

var ignoredPolicies = []string{config.IgnoredKeepPrecious, config.IgnoredDiscard, config.IgnoredPreserve}

func newWorktreeCommand(p *program) *cobra.Command {
	command := &cobra.Command{
		Use:   "worktree",
		Short: "Inspect and remove worktrees by hand",
		Long: `Inspect and remove linked git worktrees by hand, without Temporal or a database,
by the rules and under the locks of a finalization: whatever a person could miss
keeps the worktree.`,
	}
	command.AddCommand(newWorktreeInspectCommand(p), newWorktreeRemoveCommand(p))
	group(command)
	return command
}

const worktreeInput = `
With -f, the worktrees are read from a JSON list, - for standard input:
  [{"repository":"/src/app","path":"/wt/s1"},
   {"repository":"/src/lib","path":"/wt/s1/lib","parent":"/wt/s1"}]
A path that is not UTF-8 is given as "path_b64", and printed as such too.

Exit codes: 0 gone, 3 kept, 65 refused, 75 try again, 4 failed; of several, the
first of 64, 65, 4, 75, 3, 0 that occurs.`

func newWorktreeInspectCommand(p *program) *cobra.Command {
	o := &worktreeOptions{program: p}
	command := &cobra.Command{
		Use:   "inspect [--repository R] PATH… | -f FILE",
		Short: "Say what removing worktrees would come to, and why",
		Long:  "Say what removing worktrees would come to, and list what keeps them. Nothing is changed.\n" + worktreeInput,
		Example: `  unwind worktree inspect /wt/s1
  unwind worktree inspect --json /wt/* | jq -r 'select(.disposition == "preserved") | .path'`,
	}
	return o.command(command)
}

func newWorktreeRemoveCommand(p *program) *cobra.Command {
	o := &worktreeOptions{program: p, remove: true}
	command := &cobra.Command{
		Use:   "remove [--repository R] PATH… | -f FILE",
		Short: "Remove worktrees in which nothing could be lost",
		Long: `Remove worktrees in which nothing could be lost, child-first. One that holds
anything a person could miss is kept as it is, with the list of what was found.
Branches are never deleted; commits that only the worktree reaches are kept by a
ref under refs/unwind/rescue/.

With --save-changes, uncommitted work keeps no worktree: it is committed to a ref
under refs/unwind/saved/by-hand/ first, and "unwind recover" brings it back. What
a commit cannot hold still keeps it.
` + worktreeInput,
		Example: `  unwind worktree remove /wt/s1 /wt/s1/lib
  unwind worktree remove --save-changes /wt/s1
  unwind worktree remove --ignored discard --json -f worktrees.json`,
	}
	return o.command(command)
}

func (o *worktreeOptions) command(command *cobra.Command) *cobra.Command {
	command.Args = func(_ *cobra.Command, args []string) error {
		o.Paths = args
		return nil
	}
	command.RunE = runs(o.run)
	flags := command.Flags()
	flags.StringVar(&o.Repository, "repository", "", "repository of the worktrees, if their own word is not to be taken")
	flags.StringVarP(&o.File, "file", "f", "", "JSON list of worktrees to read, - for standard input")
	flags.StringVar(&o.Ignored, "ignored", "", "what git-ignored files are worth: "+strings.Join(ignoredPolicies, ", ")+" (default: the setting, keep_precious)")
	flags.BoolVar(&o.Save, "save-changes", false, "save uncommitted work to a ref, then remove")
	if !o.remove {
		flags.Lookup("save-changes").Usage = "as if uncommitted work were saved to a ref first"
	}
	completeWords(command, "ignored", ignoredPolicies)
	return command
}

func (o *worktreeOptions) run(ctx context.Context) error {
	if err := oneOf("ignored", o.Ignored, ignoredPolicies); err != nil {
		return err
	}
	targets, err := o.targets()
	if err != nil {
		return err
	}
	c, err := o.config()
	if err != nil {
		return err
	}
	if o.Ignored != "" {
		c.IgnoredFiles = o.Ignored
	}
	line := &progressLine{streams: o.streams}
	hooks := worktree.AllHooks{SaveChanges: o.Save}
	if o.errTerminal && !o.json {
		hooks.Progress = func(path string, progress teardown.Progress) { line.print(shown(path) + ": " + progressText(progress)) }
	}
	var reports []worktree.Report
	if o.remove {
		reports = engine(c).RemoveAll(ctx, targets, hooks)
	} else {
		reports = engine(c).InspectAll(ctx, targets, hooks)
	}
	line.clear()
	codes := []exitCode{exitDone}
	for _, report := range reports {
		o.print(report)
		codes = append(codes, exitOfDisposition(report.Disposition, report.Retryable))
	}
	return asVerdict(worst(codes...))
}

func (o *worktreeOptions) targets() ([]worktree.Target, error) {
	switch {
	case o.File != "" && len(o.Paths) > 0:
		return nil, usageError("give paths or -f FILE, not both")
	case o.File != "" && o.Repository != "":
		return nil, usageError("--repository goes with paths; in a file, each worktree names its own")
	case o.File != "":
		content, err := o.read(o.File)
		if err != nil {
			return nil, err
		}
		return parseTargets(content)
	case len(o.Paths) == 0:
		return nil, usageError("name the worktrees, or give a list of them with -f FILE")
	}
	var targets []worktree.Target
	for _, path := range o.Paths {
		targets = append(targets, worktree.Target{Repository: o.absolute(o.Repository), Path: o.absolute(path)})
	}
	return targets, nil
}

// givenTarget is one worktree in a list that is read. Of each pair, the second
// wins.
type givenTarget struct {
	Repository    string `json:"repository"`
	RepositoryB64 string `json:"repository_b64"`
	Path          string `json:"path"`
	PathB64       string `json:"path_b64"`
	Parent        string `json:"parent"`
	ParentB64     string `json:"parent_b64"`
}

// parseTargets reads a list of worktrees. Whether each may be removed, also as a
// path, is the engine's verdict.
func parseTargets(content []byte) ([]worktree.Target, error) {
	var list []givenTarget
	if err := decodeStrict("the list of worktrees", content, &list); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, invalid("the list of worktrees is empty")
	}
	targets := make([]worktree.Target, len(list))
	for i, given := range list {
		for _, pair := range []struct {
			name, text, encoded string
			into                *string
		}{
			{"repository", given.Repository, given.RepositoryB64, &targets[i].Repository},
			{"path", given.Path, given.PathB64, &targets[i].Path},
			{"parent", given.Parent, given.ParentB64, &targets[i].Parent},
		} {
			*pair.into = pair.text
			if pair.encoded == "" {
				continue
			}
			raw, err := base64.StdEncoding.DecodeString(pair.encoded)
			if err != nil {
				return nil, invalid("[%d].%s_b64 is not base64 (%v)", i, pair.name, err)
			}
			*pair.into = string(raw)
		}
	}
	return targets, nil
}

// worktreeLine is a worktree's report with --json.
type worktreeLine struct {
	Path string `json:"path"`
	// PathB64 is set, and counts, when the path is not UTF-8.
	PathB64     string               `json:"path_b64,omitempty"`
	Disposition teardown.Disposition `json:"disposition"`
	Code        teardown.Code        `json:"code"`
	Retryable   bool                 `json:"retryable"`
	Details     []string             `json:"details"`
	Bytes       int64                `json:"bytes"`
	SavedRef    string               `json:"saved_ref,omitempty"`
}

func worktreeLineOf(report worktree.Report) worktreeLine {
	line := worktreeLine{Path: report.Path, Disposition: report.Disposition, Code: report.Code, Retryable: report.Retryable,
		Details: listed(report.Details), Bytes: report.Bytes, SavedRef: report.SavedRef}
	if !utf8.ValidString(report.Path) {
		line.Path = strings.ToValidUTF8(report.Path, "\ufffd")
		line.PathB64 = base64.StdEncoding.EncodeToString([]byte(report.Path))
	}
	return line
}

func (o *worktreeOptions) print(report worktree.Report) {
	if o.json {
		o.printJSON(worktreeLineOf(report))
		return
	}
	o.printWorktree(report, !o.remove)
}

// printWorktree says what was found at one worktree, everything and not only the
// first thing, and what to do.
func (p *program) printWorktree(report worktree.Report, ahead bool) {
	p.say("%s: %s%s", p.styled(shown(report.Path), bold),
		p.styled(dispositionWords(report.Disposition, ahead), dispositionStyle(report.Disposition)), because(report.Code))
	if about := aboutWorktree(report); about != "" {
		p.say("  %s", about)
	}
	named := of(report.Findings, func(finding worktree.Finding) bool { return finding.Code != "" })
	for _, finding := range named {
		p.say("  %s", findingText(finding))
	}
	for _, note := range report.Notes {
		p.say("  %s", sentence(note))
	}
	for _, ref := range report.Rescued {
		p.say("  commits kept by %s", shown(ref))
	}
	if report.SavedRef != "" {
		p.say("  uncommitted work saved in %s", shown(report.SavedRef))
		p.say("  `%s recover %s --repository %s` brings it back", name, shown(report.SavedRef), shown(report.Repository))
	}
	if report.Quarantine != "" {
		p.say("  it is at %s now", shown(report.Quarantine))
	}
	// The findings say it already, each with what to do.
	if gone := report.Disposition == teardown.DispositionRemoved || report.Disposition == teardown.DispositionAlreadyGone; len(named) == 0 && !gone {
		p.say("  %s", sentence(report.Message))
	}
}

func aboutWorktree(report worktree.Report) string {
	var parts []string
	if report.Branch != "" {
		parts = append(parts, "branch "+shown(report.Branch))
	} else if report.Head != "" {
		parts = append(parts, "detached at "+report.Head[:min(12, len(report.Head))])
	}
	if report.Repository != "" {
		parts = append(parts, "of "+shown(report.Repository))
	}
	if report.Files > 0 {
		parts = append(parts, counted(int(report.Files), "file", "files"), bytesText(report.Bytes))
	}
	return strings.Join(parts, ", ")
}

func findingText(finding worktree.Finding) string {
	text := string(finding.Code)
	if len(finding.Paths) > 0 {
		names := make([]string, len(finding.Paths))
		for i, path := range finding.Paths {
			names[i] = shown(path)
		}
		text += ": " + strings.Join(names, ", ")
	}
	if more := finding.Total - len(finding.Paths); more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	if finding.Note != "" {
		text += " (" + sentence(finding.Note) + ")"
	}
	return text
}

// dispositionWords: ahead of the fact, "removed" is what would happen.
func dispositionWords(disposition teardown.Disposition, ahead bool) string {
	if !ahead {
		return strings.ReplaceAll(string(disposition), "_", " ")
	}
	switch disposition {
	case teardown.DispositionRemoved:
		return "would be removed"
	case teardown.DispositionAlreadyGone:
		return "already gone"
	case teardown.DispositionPreserved:
		return "would be kept"
	case teardown.DispositionRefused:
		return "would be refused"
	case teardown.DispositionRetained:
		return "would stay, somebody else holds it"
	}
	return "could not be removed now"
}
