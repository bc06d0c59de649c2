package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"unwind/internal/runtime"
	"unwind/internal/runtime/proctable"
	"unwind/teardown"
)

const (
	// wedgedAfter is how long a server that dev had started may go without an
	// answer before it is ended.
	wedgedAfter = 10 * time.Second
	killLimit   = 5 * time.Second
)

// serverRecord names the server that dev has started, so that a later dev can
// tell it from every other process. It is in the file dev/server.json of the
// state directory from the server's start to its orderly end.
type serverRecord struct {
	PID    int    `json:"pid"`
	Start  int64  `json:"start"` // as in proctable.Ref
	BootID string `json:"boot_id"`
}

func (d *development) recordPath() string {
	return filepath.Join(d.config.StateDir, "dev", "server.json")
}

// recordServer replaces the record as a whole.
func (d *development) recordServer() error {
	p, err := proctable.Read(d.server.Process.Pid)
	if errors.Is(err, proctable.ErrGone) || err == nil && p.Parent != os.Getpid() {
		return nil // it has ended, which is told when it is waited for
	}
	var boot string
	if err == nil {
		boot, err = runtime.ThisBoot()
	}
	if err == nil {
		err = d.writeRecord(serverRecord{PID: p.PID, Start: p.Start, BootID: boot})
	}
	if err != nil {
		return &teardown.Error{Code: teardown.CodeIOError, Cause: err, Message: fmt.Sprintf(
			"Temporal's server cannot be recorded in %s; make the state directory writable, or set UNWIND_STATE_DIR", shown(d.recordPath()))}
	}
	return nil
}

func (d *development) writeRecord(r serverRecord) error {
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	draft, err := os.CreateTemp(filepath.Dir(d.recordPath()), "server.json.*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(draft.Name()) }()
	_, err = draft.Write(append(content, '\n'))
	if err := errors.Join(err, draft.Close()); err != nil {
		return err
	}
	return os.Rename(draft.Name(), d.recordPath())
}

// forgetServer is for a server that has ended.
func (d *development) forgetServer() {
	if err := os.Remove(d.recordPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.note("%s: %s", name, sentence(err.Error()))
	}
}

// recordedServer takes hold of the server that the record names. Nil: there is
// no such record, or what it names does not run.
func (d *development) recordedServer() *proctable.Handle {
	var r serverRecord
	content, err := os.ReadFile(d.recordPath())
	if err != nil || json.Unmarshal(content, &r) != nil || r.BootID == "" {
		return nil
	}
	if boot, err := runtime.ThisBoot(); err != nil || boot != r.BootID {
		return nil
	}
	server, err := proctable.Open(proctable.Ref{PID: r.PID, Start: r.Start})
	if err != nil {
		return nil
	}
	return server
}

// wedgedServer takes hold of what holds our port if it is proved to be the very
// server that an earlier dev of this state directory has started. Nobody else
// looks after that one, for we hold dev's lock. Nil: it is not proved.
func (d *development) wedgedServer() *proctable.Handle {
	server := d.recordedServer()
	if server == nil {
		return nil
	}
	// Looked at while the process is held: its number cannot change hands.
	if !holdsAlone(server.PID, d.Port) {
		server.Close()
		return nil
	}
	return server
}

// notOurs refuses, naming who holds the port.
func (d *development) notOurs() error {
	return portTaken(d.Port, "--port", fmt.Sprintf(
		", which does not answer as Temporal and is not proved to be the server of an earlier `%s dev` with this state directory", name))
}

// clearPort ends a server that goes on not to answer. One that answers after all
// is reused.
func (d *development) clearPort(ctx context.Context, server *proctable.Handle) error {
	d.progress("Temporal at %s (pid %d) does not answer; waiting for it …", d.address, server.PID)
	for end := time.Now().Add(wedgedAfter); time.Now().Before(end) && !server.Ended(); time.Sleep(pollInterval) {
		if d.healthy(ctx) {
			d.reused = true
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	if !server.Ended() {
		if !holdsAlone(server.PID, d.Port) {
			return d.notOurs()
		}
		d.note("Temporal at %s (pid %d), which an earlier `%s dev` had started, does not answer; it is ended, and another one started.", d.address, server.PID, name)
		if err := endServer(ctx, server); err != nil {
			return err
		}
	}
	if ctx.Err() == nil && listening(ctx, d.address) {
		return d.notOurs()
	}
	d.replaced = server.PID
	return nil
}

// endServer asks, then kills. It kills nothing when ctx is done.
func endServer(ctx context.Context, server *proctable.Handle) error {
	handles := []*proctable.Handle{server}
	err := server.Signal(unix.SIGTERM)
	if err == nil {
		// A stopped process hears nothing else.
		err = server.Signal(unix.SIGCONT)
	}
	proctable.Await(ctx, handles, serverStopLimit)
	if ctx.Err() == nil && !server.Ended() {
		err = server.Signal(unix.SIGKILL)
		proctable.Await(ctx, handles, killLimit)
	}
	if ctx.Err() == nil && !server.Ended() {
		return &teardown.Error{Code: teardown.CodeTemporalUnavailable, Cause: err, Message: fmt.Sprintf(
			"Temporal's server (pid %d) does not answer and cannot be ended; end it by hand, or choose another port with --port", server.PID)}
	}
	return nil
}
