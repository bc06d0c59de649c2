package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"unwind/internal/runtime"
	"unwind/internal/store"
	"unwind/teardown"
)

type snapshotOptions struct {
	*program
	ID string
}

func newSnapshotCommand(p *program) *cobra.Command {
	o := &snapshotOptions{program: p}
	return &cobra.Command{
		Use:   "snapshot ID",
		Short: "Print what a session's terminals showed before they were ended",
		Long: `Print what a session's terminals showed, with their scrollback, as it was saved
before they were ended; of several, each after a heading on standard error, the
oldest first.

It is kept on the session's own host, for a time and in a space that are settings
(UNWIND_SNAPSHOT_KEEP, UNWIND_SNAPSHOT_SPACE). Exit code 65 if there is none, or
if it is on another host.`,
		Example: `  unwind snapshot s1 | less
  unwind snapshot s1 --json | jq -r .text`,
		Args:              takesID(&o.ID),
		ValidArgsFunction: p.completeIDs,
		RunE:              runs(o.run),
	}
}

// keptSnapshot is one snapshot with --json.
type keptSnapshot struct {
	SessionID  string    `json:"session_id"`
	Generation int64     `json:"generation"`
	Kind       string    `json:"kind"`
	Role       string    `json:"role"`
	Name       string    `json:"name"`
	Path       string    `json:"path"`
	Bytes      int64     `json:"bytes"`
	TakenAt    time.Time `json:"taken_at"`
	// Text is the content; what is not UTF-8 in it is replaced.
	Text string `json:"text"`
}

func (o *snapshotOptions) run(ctx context.Context) error {
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	detail, err := f.SessionDetail(ctx, o.ID)
	if err != nil {
		return err
	}
	taken := of(detail.Runtimes, func(rt store.Runtime) bool { return rt.SnapshotPath != "" })
	if len(taken) == 0 {
		return o.none(detail)
	}
	if host := detail.Session.Host; host != f.config.Host {
		return &teardown.Error{Code: teardown.CodeForeignHost, Message: fmt.Sprintf(
			"what session %s showed is kept on its host %s and this is %s; run `%s snapshot %s` there", o.ID, host, f.config.Host, name, o.ID)}
	}
	var first error
	for _, rt := range taken {
		if err := o.print(detail.Session.ID, rt, len(taken) > 1); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (o *snapshotOptions) none(detail store.Detail) error {
	why := fmt.Sprintf("nothing is kept of what session %s showed: it had no terminal, its terminal was gone before it was ended, or it was kept long enough (UNWIND_SNAPSHOT_KEEP)", o.ID)
	if detail.Session.TerminatedAt == nil {
		why = fmt.Sprintf("session %s is live and nothing is kept yet; what it shows is saved when it is terminated", o.ID)
	}
	return &teardown.Error{Code: teardown.CodeSnapshotMissing, Message: why}
}

func (o *snapshotOptions) print(sessionID string, rt store.Runtime, several bool) error {
	content, info, err := readSnapshot(rt.SnapshotPath)
	if err != nil {
		return err
	}
	if o.json {
		o.printJSON(keptSnapshot{SessionID: sessionID, Generation: rt.Generation, Kind: rt.Kind, Role: rt.Role, Name: runtimeName(rt.Handle.V),
			Path: rt.SnapshotPath, Bytes: info.Size(), TakenAt: info.ModTime().UTC(), Text: strings.ToValidUTF8(string(content), "\uFFFD")})
		return nil
	}
	if several {
		o.note("%s %s %s, generation %d, saved %s:", rt.Kind, rt.Role, shown(runtimeName(rt.Handle.V)), rt.Generation,
			info.ModTime().UTC().Format(time.RFC3339))
	}
	_, err = o.out.Write(content)
	return err
}

// readSnapshot reads a snapshot whole. What has taken its place, a link, a FIFO
// or something larger, is not one.
func readSnapshot(path string) ([]byte, fs.FileInfo, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, &teardown.Error{Code: teardown.CodeSnapshotMissing, Message: fmt.Sprintf(
			"the file %s, to which it was saved, is not there any more", shown(path))}
	case errors.Is(err, unix.ELOOP):
		return nil, nil, notOurs(path)
	case errors.Is(err, fs.ErrPermission):
		return nil, nil, &teardown.Error{Code: teardown.CodePermissionDenied, Cause: err,
			Message: shown(path) + " cannot be read; run this as the user that unwind-worker runs as"}
	case err != nil:
		return nil, nil, &teardown.Error{Code: teardown.CodeIOError, Message: shown(path) + " cannot be read", Cause: err}
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > runtime.MaxSnapshot {
		return nil, nil, notOurs(path)
	}
	content, err := io.ReadAll(io.LimitReader(file, runtime.MaxSnapshot))
	if err != nil {
		return nil, nil, &teardown.Error{Code: teardown.CodeIOError, Message: shown(path) + " cannot be read", Cause: err}
	}
	return content, info, nil
}

func notOurs(path string) error {
	return &teardown.Error{Code: teardown.CodeSnapshotMissing, Message: fmt.Sprintf(
		"what is at %s by now is not the file that was saved there", shown(path))}
}
