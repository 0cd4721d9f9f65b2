package rootfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockPoll is how often a waiting build asks for the lock again: flock cannot
// be interrupted by a context.
const lockPoll = 200 * time.Millisecond

// lock takes the lock at path, waiting for its holder, and returns what gives
// it back. It calls waiting once when it has to wait. The lock goes with the
// process that holds it; the file stays.
func lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the image cache: %w", err)
	}
	ticker := time.NewTicker(lockPoll)
	defer ticker.Stop()
	for first := true; ; first = false {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			file.Close()
			return nil, fmt.Errorf("lock the image cache with %s: %w", path, err)
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("wait for another build of the image: %w", context.Cause(ctx))
		case <-ticker.C:
		}
	}
}
