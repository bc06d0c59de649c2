package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"unwind/teardown"
)

// defaultPatience is how long a file system may take for one answer. A mount
// whose server is gone never answers, and no signal ends the call.
const defaultPatience = time.Minute

var errNoAnswer = errors.New("the file system does not answer")

// answered waits for work that only reads, as long as it goes on: alive counts
// what it has done so far, nil if it is one short step. After that, or some time
// after ctx ended, it is given up; whatever it comes to then is thrown away.
func answered[T any](ctx context.Context, patience time.Duration, alive func() int64, work func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	ended := make(chan result, 1)
	go func() {
		value, err := work()
		ended <- result{value, err}
	}()
	var done int64
	left := patience
	ticker := time.NewTicker(min(progressEvery, patience))
	defer ticker.Stop()
	for {
		select {
		case r := <-ended:
			return r.value, r.err
		case <-ticker.C:
		}
		if alive != nil && ctx.Err() == nil {
			if now := alive(); now != done {
				done, left = now, patience
			}
		}
		if left -= min(progressEvery, patience); left > 0 && (ctx.Err() == nil || left > killGrace) {
			continue
		}
		var nothing T
		if err := ctx.Err(); err != nil {
			return nothing, err
		}
		return nothing, fmt.Errorf("%w within %v: %w", errNoAnswer, patience, context.DeadlineExceeded)
	}
}

func (e *Engine) patience() time.Duration {
	if e.answerIn <= 0 {
		return defaultPatience
	}
	return e.answerIn
}

// answers finds out whether the file systems of a target answer at all, before
// anything else is asked of them.
func (e *Engine) answers(ctx context.Context, target Target) error {
	if checkSpelling(target.Path) != nil {
		return nil
	}
	err := e.answerAt(ctx, target.Path, filepath.Join(target.Path, ".git"), target.Repository)
	if err == nil {
		// A repository may be spread over several by links.
		_, err = answered(ctx, e.patience(), nil, func() (struct{}, error) {
			_, _ = repositoryOf(target, target.Path)
			return struct{}{}, nil
		})
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return stopped(ctx.Err())
	}
	return &teardown.Error{Code: teardown.CodeTimeout, Retryable: true, Cause: err, Message: fmt.Sprintf(
		"the file system of %s does not answer; see to its server or its mount", printable(target.Path))}
}

func (e *Engine) answerAt(ctx context.Context, paths ...string) error {
	_, err := answered(ctx, e.patience(), nil, func() (struct{}, error) {
		for _, path := range paths {
			if path != "" {
				_, _ = os.Stat(path)
			}
		}
		return struct{}{}, nil
	})
	return err
}

// mountsAnswer: git would go into what is mounted inside, and wait for it.
func (e *Engine) mountsAnswer(ctx context.Context, dir string, mounts []string) error {
	for _, mount := range mounts {
		if err := e.answerAt(ctx, filepath.Join(dir, mount)); err != nil {
			return fmt.Errorf("what is mounted on %s: %w", printable(mount), err)
		}
	}
	return nil
}

// whereAnswered works on the targets whose file systems answer, and reports the
// others as failed.
func (e *Engine) whereAnswered(ctx context.Context, targets []Target, work func([]Target) []Report) []Report {
	silent := make([]error, len(targets))
	var asking sync.WaitGroup
	for i, target := range targets {
		asking.Go(func() { silent[i] = e.answers(ctx, target) })
	}
	asking.Wait()
	var rest []Target
	for i, target := range targets {
		if silent[i] == nil {
			rest = append(rest, target)
		}
	}
	reports, done := make([]Report, len(targets)), work(rest)
	for i, target := range targets {
		if silent[i] != nil {
			reports[i] = Report{Path: target.Path}.orFailed(silent[i])
			continue
		}
		reports[i], done = done[0], done[1:]
	}
	return reports
}

// ignoreUnlessEnded passes an error on only if it is that of ctx.
func ignoreUnlessEnded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return nil
	}
	return err
}
