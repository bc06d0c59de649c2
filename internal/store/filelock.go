package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"unwind/teardown"
)

// lockFile waits until it alone holds the file, which is made and never
// deleted. Closing it, or dying, lets go.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, &teardown.Error{Code: teardown.CodeDatabaseUnavailable, Retryable: true, Cause: err,
			Message: fmt.Sprintf("The lock file %s cannot be opened; check that its directory may be written", path)}
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = file.Close()
			return nil, &teardown.Error{Code: teardown.CodeDatabaseUnavailable, Retryable: true, Cause: err,
				Message: fmt.Sprintf("The lock file %s cannot be locked; the database must be on a local disk", path)}
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, migratedElsewhere(ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
