package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"unwind/internal/config"
	"unwind/internal/runtime/tmux"
	"unwind/internal/store"
	"unwind/internal/worktree"
)

type scanOptions struct {
	*program
	Dirs    []string
	Sockets []string
}

func newScanCommand(p *program) *cobra.Command {
	o := &scanOptions{program: p}
	command := &cobra.Command{
		Use:   "scan [DIR…]",
		Short: "Find worktrees and tmux sessions that nobody registered here holds",
		Long: `Find what leaked before unwind knew of it: the linked worktrees of the repositories
at and below each directory (by default the working directory), wherever they lie,
with what removing them would come to and what they hold on disk; and the tmux sessions
without an owner, on the servers at --socket and those on which sessions were registered.

What a session or a task that is registered on this host has is left out. Nothing is
changed, and no repository is looked into beyond this file system. Have some of them
released with "unwind adopt".`,
		Example: `  unwind scan ~/src
  unwind scan ~/src --json | jq -r 'select(.disposition == "removed") | .path'
  unwind scan --socket /tmp/tmux-1000/default`,
		Args: func(_ *cobra.Command, args []string) error {
			o.Dirs = args
			return nil
		},
		RunE: runs(o.run),
	}
	command.Flags().StringArrayVar(&o.Sockets, "socket", nil, "socket of a tmux server to look at, also several times")
	return command
}

// Kinds of what scan prints with --json.
const (
	scannedWorktree = "worktree"
	scannedTmux     = "tmux"
)

// leakedWorktree is a worktree that nobody registered here holds.
type leakedWorktree struct {
	Kind       string `json:"kind"`
	Repository string `json:"repository"`
	Branch     string `json:"branch"`
	worktreeLine
}

// leakedTmux is a tmux session without an owner.
type leakedTmux struct {
	Kind      string    `json:"kind"`
	Socket    string    `json:"socket"`
	Session   string    `json:"session"`
	SessionID string    `json:"session_id"`
	CreatedAt time.Time `json:"created_at"`
	// Tagged: an installation of unwind has marked it, but it is not known here.
	Tagged bool `json:"tagged"`
}

func (o *scanOptions) run(ctx context.Context) error {
	c, err := o.config()
	if err != nil {
		return err
	}
	f, err := o.factsThatExist(ctx, c)
	if err != nil {
		return err
	}
	defer f.closeIfOpen()
	line := &progressLine{streams: o.streams}
	reports, failed, err := o.worktrees(ctx, c, f, line)
	line.clear()
	if err != nil {
		return err
	}
	var bytes int64
	for _, report := range reports {
		bytes += report.Bytes
		if o.json {
			o.printJSON(leakedWorktree{scannedWorktree, report.Repository, report.Branch, worktreeLineOf(report)})
			continue
		}
		o.printWorktree(report, true)
	}
	sessions, failedTmux, err := o.tmuxSessions(ctx, f)
	if err != nil {
		return err
	}
	for _, session := range sessions {
		if o.json {
			o.printJSON(session)
			continue
		}
		o.say("%s: tmux session without an owner, made %s, on %s", o.styled(shown(session.Session), bold), ago(session.CreatedAt, now()), shown(session.Socket))
	}
	if o.errTerminal && !o.json {
		o.note("%s with %s, %s. Nothing was changed.", counted(len(reports), "worktree", "worktrees"), bytesText(bytes),
			counted(len(sessions), "tmux session", "tmux sessions"))
	}
	if failed || failedTmux {
		return verdict(exitRetryable)
	}
	return nil
}

// factsThatExist opens the database if there is one: looking makes none. It is
// nil where nothing was ever registered.
func (p *program) factsThatExist(ctx context.Context, c config.Config) (*facts, error) {
	have, _, err := store.SchemaVersion(ctx, c.DatabaseURL)
	if err != nil {
		return nil, err
	}
	if have == 0 {
		return nil, nil
	}
	return p.openFacts(ctx)
}

func (f *facts) closeIfOpen() {
	if f != nil {
		f.close()
	}
}

// held reports whether a worktree is registered on this host: somebody holds it,
// or a finalization is not done with it.
func (f *facts) held(ctx context.Context, path string) (bool, error) {
	if f == nil {
		return false, nil
	}
	canonical, err := worktree.CanonicalPath(path)
	if err != nil {
		return false, nil // no such path can be registered
	}
	_, _, found, err := f.WorktreeAt(ctx, f.config.Host, canonical)
	return found, err
}

// worktrees finds, sorts out and inspects. What could not be read is noted and
// stops nothing else.
func (o *scanOptions) worktrees(ctx context.Context, c config.Config, f *facts, line *progressLine) ([]worktree.Report, bool, error) {
	git := engine(c)
	targets, failed, err := o.targets(ctx, git, f, line)
	if err != nil {
		return nil, failed, err
	}
	groups := trees(targets)
	show := o.progressOf(line, "Looking at worktrees", len(groups))
	reports := make([][]worktree.Report, len(groups))
	var all sync.WaitGroup
	free := make(chan struct{}, c.Policy.Parallel)
	for i, group := range groups {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			reports[i] = git.InspectAll(ctx, group, worktree.AllHooks{})
			show()
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil, failed, ctx.Err()
	}
	found := slices.Concat(reports...)
	slices.SortFunc(found, func(a, b worktree.Report) int { return cmp.Compare(a.Path, b.Path) })
	return found, failed, nil
}

// targets lists the linked worktrees of all repositories that nobody holds.
func (o *scanOptions) targets(ctx context.Context, git *worktree.Engine, f *facts, line *progressLine) (targets []worktree.Target, failed bool, err error) {
	dirs := o.Dirs
	if len(dirs) == 0 {
		dirs = []string{o.directory}
	}
	var repositories []string
	looked := o.progressOf(line, "Looking for repositories, directories", 0)
	for _, dir := range dirs {
		found, err := worktree.Find(ctx, o.absolute(dir), looked)
		if err != nil {
			if ctx.Err() != nil {
				return nil, failed, ctx.Err()
			}
			return nil, failed, usageError("%s cannot be scanned (%v); name a directory that can be read", shown(dir), err)
		}
		line.clear()
		for _, path := range found.Unread {
			failed = true
			o.note("%s could not be read", shown(path))
		}
		repositories = append(repositories, found.Repositories...)
	}
	slices.Sort(repositories)
	for _, repository := range slices.Compact(repositories) {
		entries, err := git.List(ctx, repository)
		if err != nil {
			failed = true
			o.note("%s: %s", shown(repository), brief(err))
			continue
		}
		for _, entry := range entries[min(1, len(entries)):] { // the first is the main one
			held, err := f.held(ctx, entry.Path)
			if err != nil {
				return nil, failed, err
			}
			if !held {
				targets = append(targets, worktree.Target{Repository: repository, Path: entry.Path})
			}
		}
	}
	return targets, failed, nil
}

// trees puts the worktrees that lie in one another together, so that each is
// judged with those inside of it.
func trees(targets []worktree.Target) [][]worktree.Target {
	slices.SortFunc(targets, func(a, b worktree.Target) int { return strings.Compare(a.Path+"/", b.Path+"/") })
	var groups [][]worktree.Target
	for _, target := range targets {
		if last := len(groups) - 1; last >= 0 && below(target.Path, groups[last][0].Path) {
			groups[last] = append(groups[last], target)
			continue
		}
		groups = append(groups, []worktree.Target{target})
	}
	return groups
}

// progressOf counts on a terminal, at most a few times a second. It may be called
// from several places at once.
func (p *program) progressOf(line *progressLine, doing string, total int) func() {
	if !p.errTerminal || p.json {
		return func() {}
	}
	var mu sync.Mutex
	var last time.Time
	n := 0
	return func() {
		mu.Lock()
		defer mu.Unlock()
		n++
		if now().Sub(last) < 200*time.Millisecond {
			return
		}
		last = now()
		text := doing + ": " + itoa(n)
		if total > 0 {
			text += " of " + itoa(total)
		}
		line.print(text)
	}
}

// tmuxSessions lists those of the servers that were named, or that are known from
// the facts, that no runtime of ours is.
func (o *scanOptions) tmuxSessions(ctx context.Context, f *facts) (leaked []leakedTmux, failed bool, err error) {
	owners, err := f.tmuxOwners(ctx)
	if err != nil {
		return nil, false, err
	}
	sockets := owners.sockets
	for _, socket := range o.Sockets {
		sockets = append(sockets, o.absolute(socket))
	}
	slices.Sort(sockets)
	for _, socket := range slices.Compact(sockets) {
		listed, err := tmux.Kind{}.List(ctx, socket)
		if err != nil {
			failed = true
			o.note("%s: %s", shown(socket), brief(err))
			continue
		}
		for _, s := range listed {
			if _, owned := owners.of(socket, s); !owned {
				leaked = append(leaked, leakedTmux{Kind: scannedTmux, Socket: socket, Session: s.Name, SessionID: s.ID,
					CreatedAt: time.Unix(s.Created, 0).UTC(), Tagged: s.Tag != ""})
			}
		}
	}
	return leaked, failed, nil
}
