package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"unwind/internal/store"
	"unwind/teardown"
	"unwind/test/pgtest"
)

const rounds = 300

// statements measures the store's basic transactions on both databases.
func statements(ctx context.Context, _ options) ([]row, error) {
	dir, err := os.MkdirTemp("", "unwind-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	postgres, err := pgtest.Launch()
	if err != nil {
		return nil, err
	}
	var rows []row
	measured := map[string]map[string]float64{}
	for name, url := range map[string]string{"sqlite": "sqlite://" + filepath.Join(dir, "bench.db"), "postgres": postgres} {
		say("%d rounds of the store's transactions on %s", rounds, name)
		if _, err := store.Migrate(ctx, url); err != nil {
			return nil, err
		}
		s, err := store.Open(ctx, url)
		if err != nil {
			return nil, err
		}
		measured[name], err = transactions(ctx, s)
		_ = s.Close()
		if err != nil {
			return nil, err
		}
	}
	for _, what := range []string{"add session", "terminate", "begin", "read session"} {
		u, b := measured["sqlite"][what], measured["postgres"][what]
		rows = append(rows, row{"store, per second: " + what + " (SQLite; baseline Postgres)",
			fmt.Sprintf("%.0f", u), fmt.Sprintf("%.0f", b), times(u, b)})
	}
	return rows, nil
}

func transactions(ctx context.Context, s *store.Store) (map[string]float64, error) {
	id := func(n int) string { return "s" + strconv.Itoa(n) }
	steps := []struct {
		name string
		run  func(n int) error
	}{
		{"add session", func(n int) error {
			_, err := s.AddSession(ctx, store.NewSession{ID: id(n), Host: "h1", ManifestHash: id(n),
				Worktrees: []store.NewWorktree{{Repository: "/src", Path: "/wt/" + id(n), Nonce: id(n)}}})
			return err
		}},
		{"terminate", func(n int) error {
			_, _, err := s.Terminate(ctx, id(n), "bench")
			return err
		}},
		{"begin", func(n int) error {
			_, err := s.Begin(ctx, teardown.BeginInput{SessionID: id(n), WorkflowID: id(n)})
			return err
		}},
		{"read session", func(n int) error {
			_, err := s.SessionDetail(ctx, id(n))
			return err
		}},
	}
	measured := map[string]float64{}
	for _, step := range steps {
		began := time.Now()
		for n := range rounds {
			if err := step.run(n); err != nil {
				return nil, err
			}
		}
		measured[step.name] = perSecond(rounds, time.Since(began))
	}
	return measured, nil
}
