package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
)

type adoptOptions struct {
	*program
	Paths []string
	// Tmux are names or ids of tmux sessions, on the server at Socket.
	Tmux   []string
	Socket string
	// Marked: also one that another installation of unwind has marked.
	Marked bool
	Yes    bool
}

func newAdoptCommand(p *program) *cobra.Command {
	o := &adoptOptions{program: p}
	command := &cobra.Command{
		Use:   "adopt [PATH…] [--tmux SESSION]",
		Short: "Have worktrees and tmux sessions that leaked released, as those of a terminated session are",
		Long: `Register worktrees that nobody holds as those of sessions that are terminated: their
finalization removes them, or keeps what a person could miss, and "unwind status" shows
why. Worktrees that lie in one another make one session.

With --tmux, register the tmux session of exactly this name or id as the agent of a
session that is terminated: its finalization saves its scrollback and ends it, with all
that runs in it. A tmux session is only ever taken by its name. One to which somebody is
attached is refused, and so is one that another installation of unwind has marked, unless
--marked says that nobody will release it. What runs in a worktree goes first: adopt its
tmux session, and the worktree once that is finalized.

It first shows what would become of each. On a terminal it then asks; otherwise --yes
says that it may. What a session or a task registered here has is refused, and so is a
worktree in which a process works, and one that is never removed, such as a main working
tree; the others are registered all the same, with exit code 65.`,
		Example: `  unwind adopt ~/wt/old-feature
  unwind adopt --tmux old-agent --socket /tmp/tmux-1000/default
  unwind adopt --yes $(unwind scan ~/src --json | jq -r 'select(.disposition == "removed").path')`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && len(o.Tmux) == 0 {
				return usageError("name the worktrees or, with --tmux, the tmux sessions; %s scan lists them", name)
			}
			o.Paths = args
			return nil
		},
		RunE: runs(o.run),
	}
	flags := command.Flags()
	flags.StringArrayVar(&o.Tmux, "tmux", nil, "name or id of a tmux `session` to end, also several times")
	flags.StringVar(&o.Socket, "socket", "", "socket of its tmux server; without it, those on which sessions are registered are looked at")
	flags.BoolVar(&o.Marked, "marked", false, "also a tmux session that another installation of unwind has marked")
	flags.BoolVar(&o.Yes, "yes", false, "do not ask")
	return command
}

// adopted is one worktree, or one tmux session, with --json.
type adopted struct {
	Kind string `json:"kind"`
	Path string `json:"path,omitempty"`
	// Socket and Session name a tmux session.
	Socket  string `json:"socket,omitempty"`
	Session string `json:"session,omitempty"`
	// SessionID is the session that it belongs to now; "" if it was refused.
	SessionID   string               `json:"session_id"`
	Disposition teardown.Disposition `json:"disposition"` // foreseen, of a worktree
	Code        teardown.Code        `json:"code"`
	Message     string               `json:"message"`
}

func (o *adoptOptions) run(ctx context.Context) error {
	if !o.Yes && (!o.inTerminal || o.json) {
		return usageError("adopt leads to removals; give --yes if you are sure, or run it on a terminal")
	}
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	groups, refused, err := o.plan(ctx, f)
	if err != nil {
		return err
	}
	sessions, refusedTmux, err := o.planTmux(ctx, f)
	if err != nil {
		return err
	}
	if len(groups)+len(sessions) > 0 && !o.Yes && !o.sure(groups, sessions) {
		return nil
	}
	codes := []exitCode{exitDone}
	if refused || refusedTmux {
		codes = append(codes, exitRefused)
	}
	for _, session := range sessions {
		id, err := o.adoptTmux(ctx, f, session)
		if err != nil {
			o.refuseTmux(session, err)
			codes = append(codes, exitOf(err))
			continue
		}
		if o.json {
			o.printJSON(adopted{Kind: scannedTmux, Socket: session.socket, Session: session.Name, SessionID: id})
		}
		o.say("Registered session %s as terminated, with tmux session %s; a worker ends it.", id, shown(session.Name))
	}
	for _, reports := range groups {
		id, err := o.adopt(ctx, f, reports)
		if err != nil {
			o.refuse(reports, err)
			codes = append(codes, exitOf(err))
			continue
		}
		for _, report := range reports {
			if o.json {
				o.printJSON(adopted{Kind: scannedWorktree, Path: report.Path, SessionID: id, Disposition: report.Disposition, Code: report.Code})
			}
		}
		o.say("Registered session %s as terminated, with %s; a worker releases it.", id, counted(len(reports), "worktree", "worktrees"))
	}
	return asVerdict(worst(codes...))
}

func (o *adoptOptions) refuse(reports []worktree.Report, err error) {
	for _, report := range reports {
		if o.json {
			o.printJSON(adopted{Kind: scannedWorktree, Path: report.Path, Disposition: report.Disposition, Code: codeOr(err), Message: brief(err)})
			continue
		}
		o.note("%s: not adopted: %s", shown(report.Path), brief(err))
	}
}

func codeOr(err error) teardown.Code { return cmp.Or(teardown.CodeOf(err), teardown.CodeInternal) }

// plan shows what would become of each, and answers the trees that may be taken.
func (o *adoptOptions) plan(ctx context.Context, f *facts) (groups [][]worktree.Report, refused bool, err error) {
	var targets []worktree.Target
	for _, path := range o.Paths {
		path = o.absolute(path)
		if canonical, err := worktree.CanonicalPath(path); err == nil {
			path = canonical
		}
		targets = append(targets, worktree.Target{Path: path})
	}
	slices.SortFunc(targets, func(a, b worktree.Target) int { return strings.Compare(a.Path, b.Path) })
	targets = slices.Compact(targets)
	for _, group := range trees(targets) {
		reports, err := o.look(ctx, f, group)
		if err != nil && ctx.Err() != nil {
			return nil, refused, err
		}
		if err != nil {
			refused = true
			o.refuse(reports, err)
			continue
		}
		if !o.json {
			for _, report := range reports {
				o.printWorktree(report, true)
			}
		}
		groups = append(groups, reports)
	}
	return groups, refused, nil
}

// look inspects a tree, and refuses it if it is somebody's or not to be removed.
func (o *adoptOptions) look(ctx context.Context, f *facts, group []worktree.Target) ([]worktree.Report, error) {
	reports := engine(f.config).InspectAll(ctx, group, worktree.AllHooks{})
	if ctx.Err() != nil {
		return reports, ctx.Err()
	}
	for _, report := range reports {
		held, err := f.held(ctx, report.Path)
		if err != nil {
			return reports, err
		}
		if held {
			return reports, &teardown.Error{Code: teardown.CodeConflict, Message: shown(report.Path) + " is registered here already; see `" + name + " list`"}
		}
		if inUse := of(report.Findings, func(found worktree.Finding) bool { return found.Code == teardown.CodeInUse }); len(inUse) > 0 {
			return reports, &teardown.Error{Code: teardown.CodeInUse, Message: findingText(inUse[0])}
		}
		switch report.Disposition {
		case teardown.DispositionRemoved, teardown.DispositionPreserved:
		default:
			return reports, &teardown.Error{Code: cmp.Or(report.Code, teardown.CodeWorktreeMissing), Retryable: report.Retryable,
				Message: dispositionWords(report.Disposition, true) + because(report.Code) + ": " + shown(report.Path)}
		}
	}
	return reports, nil
}

func (o *adoptOptions) sure(groups [][]worktree.Report, sessions []foundTmux) bool {
	var questions []string
	if worktrees := len(slices.Concat(groups...)); worktrees > 0 {
		questions = append(questions, fmt.Sprintf("Register %s for removal? What could be lost is kept.", counted(worktrees, "worktree", "worktrees")))
	}
	if len(sessions) > 0 {
		questions = append(questions, fmt.Sprintf("End %s, with all that runs in it?", counted(len(sessions), "tmux session", "tmux sessions")))
	}
	return o.agreed(strings.Join(questions, " "), "Nothing was registered.")
}

// adopt registers one tree, after one more look under its locks.
func (o *adoptOptions) adopt(ctx context.Context, f *facts, reports []worktree.Report) (string, error) {
	m := teardown.Manifest{ID: adoptedID(reports[0].Path), Host: f.config.Host}
	var targets []worktree.Target
	for _, report := range reports {
		m.Worktrees = append(m.Worktrees, teardown.WorktreeSpec{Repository: report.Repository, Path: report.Path})
		targets = append(targets, worktree.Target{Repository: report.Repository, Path: report.Path})
	}
	if err := checkManifest(&m); err != nil {
		return "", err
	}
	a := addition{program: o.program, facts: f, manifest: m, hash: manifestHash(m)}
	a.session = store.NewSession{ID: m.ID, Host: m.Host, ManifestHash: a.hash, TerminatedBy: teardown.SourceAdopted}
	if err := a.canonical(); err != nil {
		return "", err
	}
	locks, err := a.lock(ctx)
	defer release(locks)
	if err != nil {
		return "", err
	}
	if _, err := o.look(ctx, f, targets); err != nil {
		return "", err
	}
	if err := a.nest(ctx); err != nil {
		return "", err
	}
	if err := a.register(ctx); err != nil {
		return "", err
	}
	_, err = f.AddSession(ctx, a.session)
	return m.ID, err
}

var notInSessionID = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// adoptedID names a session after its outermost worktree, or its tmux session; the
// same may be adopted again when another one has leaked there.
func adoptedID(path string) string {
	base := strings.Trim(notInSessionID.ReplaceAllString(filepath.Base(path), "-"), "-")
	var random [4]byte
	_, _ = rand.Read(random[:])
	return strings.TrimSuffix("adopted-"+base[:min(len(base), 60)], "-") + "-" + hex.EncodeToString(random[:])
}
