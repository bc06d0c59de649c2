package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"unwind/internal/runtime"
)

const pruneInterval = time.Hour

// pruneSnapshots holds the kept scrollback within its bounds and takes what is
// gone out of the facts. It does so at the first pass and then every
// pruneInterval.
func (w *process) pruneSnapshots(ctx context.Context) {
	if time.Since(w.pruned) < pruneInterval {
		return
	}
	w.pruned = time.Now()
	removed, err := w.prune(ctx)
	if len(removed) > 0 {
		w.logger.Info("Removed scrollback that was kept long enough", "files", len(removed))
	}
	if err != nil && ctx.Err() == nil {
		w.logger.Warn("Not all scrollback could be looked through; it is tried again later", "error", err)
	}
}

func (w *process) prune(ctx context.Context) (removed []string, err error) {
	recorded, err := w.store.Snapshots(ctx, w.cfg.Host)
	if err != nil {
		return nil, err
	}
	needed := map[string]bool{}
	for _, s := range recorded {
		needed[s.Path] = !s.Finished
	}
	limits := runtime.Retention{Keep: w.cfg.SnapshotKeep, Space: w.cfg.SnapshotSpace}
	removed, err = limits.Prune(w.cfg.Snapshots(), time.Now(), func(path string) bool { return needed[path] })
	// From the facts rather than from what was removed: a worker that was killed
	// in between, or a person, may have left a fact without its file.
	for _, s := range recorded {
		if _, missing := os.Lstat(s.Path); !errors.Is(missing, fs.ErrNotExist) {
			continue
		}
		if forgotten := w.store.ForgetSnapshot(ctx, w.cfg.Host, s.Path); forgotten != nil && err == nil {
			err = forgotten
		}
	}
	return removed, err
}
