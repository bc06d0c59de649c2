package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// How the removal of worktrees is measured: how often, and how many small ones
// are removed at once.
const (
	removalRounds = 3
	manyWorktrees = 100
	manyFiles     = 200
	// rest is how old a worktree is at least when it is removed, as those of
	// finished sessions are.
	rest     = 4 * time.Second
	freePoll = time.Millisecond
)

// removals measures `unwind worktree remove` beside `git worktree remove`.
func removals(ctx context.Context, o options) ([]row, error) {
	var rows []row
	for size := range strings.SplitSeq(o.sizes, ",") {
		files, err := strconv.Atoi(size)
		if err != nil {
			return nil, err
		}
		more, err := largeRemovals(ctx, o, files)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	more, err := manyRemovals(ctx, o)
	return append(rows, more...), err
}

// removed is how one removal went.
type removed struct {
	free, total time.Duration
	memory      int64 // bytes, of the largest process
}

func largeRemovals(ctx context.Context, o options, files int) ([]row, error) {
	say("removing worktrees of %d files", files)
	p, err := newPlace(ctx, files)
	if err != nil {
		return nil, err
	}
	defer p.clear()
	var ours, theirs []removed
	for n := range removalRounds {
		for _, by := range []struct {
			name    string
			command []string
			into    *[]removed
		}{
			{"unwind", []string{filepath.Join(o.programs, "unwind"), "worktree", "remove"}, &ours},
			{"git", []string{"git", "-C", p.repository, "worktree", "remove"}, &theirs},
		} {
			name := by.name + strconv.Itoa(n)
			if err := p.add(ctx, name); err != nil {
				return nil, err
			}
			time.Sleep(rest)
			measured, err := p.remove(ctx, name, by.command)
			if err != nil {
				return nil, err
			}
			*by.into = append(*by.into, measured)
		}
	}
	u, b := middle(ours), middle(theirs)
	what := fmt.Sprintf("removing a worktree of %d files: ", files)
	return []row{
		{what + "until path and branch are free", milliseconds(u.free), milliseconds(b.free), times(u.free.Seconds(), b.free.Seconds())},
		{what + "in all", milliseconds(u.total), milliseconds(b.total), times(u.total.Seconds(), b.total.Seconds())},
		{what + "memory", mebibytes(u.memory), mebibytes(b.memory), times(float64(u.memory), float64(b.memory))},
	}, nil
}

// middle takes the median of each figure.
func middle(all []removed) removed {
	median := func(figure func(removed) int64) int64 {
		figures := make([]int64, len(all))
		for i, r := range all {
			figures[i] = figure(r)
		}
		slices.Sort(figures)
		return figures[len(figures)/2]
	}
	return removed{
		free:   time.Duration(median(func(r removed) int64 { return int64(r.free) })),
		total:  time.Duration(median(func(r removed) int64 { return int64(r.total) })),
		memory: median(func(r removed) int64 { return r.memory }),
	}
}

func manyRemovals(ctx context.Context, o options) ([]row, error) {
	say("removing %d worktrees of %d files", manyWorktrees, manyFiles)
	p, err := newPlace(ctx, manyFiles)
	if err != nil {
		return nil, err
	}
	defer p.clear()
	const oneByOne = `for path; do git -C "$REPOSITORY" worktree remove "$path" || exit 1; done`
	var seconds [2]float64
	for i, command := range [][]string{
		{filepath.Join(o.programs, "unwind"), "worktree", "remove"},
		{"env", "REPOSITORY=" + p.repository, "sh", "-c", oneByOne, "sh"},
	} {
		var paths []string
		for n := range manyWorktrees {
			name := fmt.Sprintf("many%d-%d", i, n)
			if err := p.add(ctx, name); err != nil {
				return nil, err
			}
			paths = append(paths, p.worktree(name))
		}
		time.Sleep(rest)
		began := time.Now()
		if err := p.command(ctx, command[0], append(command[1:], paths...)...); err != nil {
			return nil, err
		}
		seconds[i] = time.Since(began).Seconds()
	}
	u, b := manyWorktrees/seconds[0], manyWorktrees/seconds[1]
	return []row{{fmt.Sprintf("worktrees of %d files removed per second, %d in one call", manyFiles, manyWorktrees),
		fmt.Sprintf("%.1f", u), fmt.Sprintf("%.1f", b), times(u, b)}}, nil
}

// place is a directory with one repository and its worktrees.
type place struct {
	dir, repository string
	env             []string
}

func newPlace(ctx context.Context, files int) (*place, error) {
	dir, err := os.MkdirTemp("", "unwind-bench-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, err
	}
	p := &place{dir: dir, repository: filepath.Join(dir, "app"), env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"),
		"LC_ALL=C.UTF-8", "GIT_CONFIG_NOSYSTEM=1", "UNWIND_ROOTS=" + dir, "XDG_STATE_HOME=" + filepath.Join(dir, "state"),
		"GIT_AUTHOR_NAME=bench", "GIT_AUTHOR_EMAIL=bench@example.org", "GIT_COMMITTER_NAME=bench", "GIT_COMMITTER_EMAIL=bench@example.org"}}
	for i := range files {
		path := filepath.Join(p.repository, "src", strconv.Itoa(i/1000), strconv.Itoa(i/50%20), fmt.Sprintf("file%06d.txt", i))
		if i%50 == 0 {
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				return nil, err
			}
		}
		if err := os.WriteFile(path, []byte(strings.Repeat(fmt.Sprintf("line of file %d\n", i), 60)), 0o600); err != nil {
			return nil, err
		}
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"config", "gc.auto", "0"}, {"add", "."}, {"commit", "-q", "-m", "Begin"}} {
		if err := p.git(ctx, args...); err != nil {
			p.clear()
			return nil, err
		}
	}
	return p, nil
}

func (p *place) clear() { _ = os.RemoveAll(p.dir) }

func (p *place) worktree(name string) string { return filepath.Join(p.dir, "wt", name) }

func (p *place) add(ctx context.Context, name string) error {
	return p.git(ctx, "worktree", "add", "-q", "-b", "agent/"+name, p.worktree(name))
}

func (p *place) git(ctx context.Context, args ...string) error {
	return p.command(ctx, "git", append([]string{"-C", p.repository}, args...)...)
}

func (p *place) command(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Dir = p.env, "/"
	if err := os.MkdirAll(p.repository, 0o750); err != nil {
		return err
	}
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args[:min(4, len(args))], " "), err, output)
	}
	return nil
}

// remove runs a command on one worktree and looks meanwhile when its path and
// its branch can be used again.
func (p *place) remove(ctx context.Context, name string, command []string) (removed, error) {
	path := p.worktree(name)
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], path)...)
	cmd.Env, cmd.Dir = p.env, "/"
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return removed{}, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var r removed
	ticker := time.NewTicker(freePoll)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			r.total = time.Since(began)
			if err != nil {
				return r, fmt.Errorf("%s: %w: %s", command[0], err, output.String())
			}
			if r.free == 0 {
				r.free = r.total
			}
			if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
				r.memory = usage.Maxrss << 10
			}
			return r, nil
		case <-ticker.C:
			if r.free == 0 && p.isFree(path, name) {
				r.free = time.Since(began)
			}
		}
	}
}

// isFree: nothing is at the path, and no entry of the registry names it or the
// branch.
func (p *place) isFree(path, name string) bool {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	entries, err := filepath.Glob(filepath.Join(p.repository, ".git", "worktrees", "*"))
	if err != nil {
		return false
	}
	for _, entry := range entries {
		gitDir, _ := os.ReadFile(filepath.Join(entry, "gitdir"))
		head, _ := os.ReadFile(filepath.Join(entry, "HEAD"))
		if strings.TrimSpace(string(gitDir)) == filepath.Join(path, ".git") || strings.TrimSpace(string(head)) == "ref: refs/heads/agent/"+name {
			return false
		}
	}
	return true
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }
