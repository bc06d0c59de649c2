package main

import (
	"context"
	"strings"

	"unwind/internal/compose"
)

// composeFiles says what in Compose files contradicts itself, and nothing about
// this machine.
func (e *examination) composeFiles(ctx context.Context, files []string) {
	paths := make([]string, len(files))
	for i, file := range files {
		paths[i] = e.absolute(file)
	}
	project, err := compose.Load(ctx, e.environment, paths...)
	if err != nil {
		e.fail("compose", exitRefused, "%s", sentence(err.Error()))
		return
	}
	found := compose.Contradictions(project)
	for _, contradiction := range found {
		e.fail("compose", exitRefused, "%s", sentence(contradiction))
	}
	if len(found) == 0 {
		e.ok("compose", "%s: nothing contradicts itself in %d services", strings.Join(files, ", "), len(project.Services))
	}
}
