// Command unwind registers coding-agent sessions, has them finalized, and shows
// and settles what was kept.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second Ctrl-C ends the program at once.
	context.AfterFunc(ctx, stop)
	p := &program{environment: os.Environ()}
	p.streams = systemStreams(p.environment.get)
	if executable, err := os.Executable(); err == nil {
		p.beside = filepath.Dir(executable)
	}
	p.directory, _ = os.Getwd()
	_ = os.Chdir("/")
	return p.execute(ctx, os.Args[1:])
}
