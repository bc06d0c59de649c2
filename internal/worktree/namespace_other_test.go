//go:build !linux

package worktree

import "errors"

const noNamespace = 77

func bindPrivately(string) error { return errors.ErrUnsupported }

func mountDead(string) error { return errors.ErrUnsupported }
