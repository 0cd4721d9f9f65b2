package session

import (
	"fmt"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"mediasandbox/daemon/api"
	"mediasandbox/internal/meminfo"
)

// admit refuses what a full host has no room for, before anything is recorded.
// What only has to wait for its turn is not refused.
func (e *Engine) admit(chat ChatKey) error {
	if n := e.Usage().Waiting; n >= e.cfg.MaxWaiting {
		return api.Errorf(api.CodeHostFull, "%d commands wait on this host already", n).CanRetry().
			WithHint("try again when some have ended")
	}
	if err := e.admitAccount(chat.Account); err != nil {
		return err
	}
	if err := e.admitBytes(); err != nil {
		return err
	}
	if e.hasSandbox(chat) {
		return nil // what it may take of the memory it was given when it was booted
	}
	return e.admitSandbox()
}

// hasSandbox tells whether a chat's sandbox lives, also while it is being taken
// up from an earlier daemon.
func (e *Engine) hasSandbox(k ChatKey) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.live[k] != nil || e.recovering[k] != nil
}

// admitSandbox refuses another sandbox when the host's memory is short: what
// the limits of all sandboxes come to may be more than there is.
func (e *Engine) admitSandbox() error {
	free, err := meminfo.Bytes(meminfo.Available)
	if err != nil {
		return err
	}
	if free < e.cfg.MemoryReserve {
		return api.Errorf(api.CodeHostFull, "the host's memory is short: %s are available, and %s are kept back",
			humanize.IBytes(uint64(free)), humanize.IBytes(uint64(e.cfg.MemoryReserve))).CanRetry().
			WithHint("try again when other chats' sandboxes have ended, or use a chat whose sandbox lives")
	}
	return nil
}

// admitBytes refuses what would write to a disk that is short: the sandboxes'
// disks are sparse files, and take from the host's what they are filled with.
func (e *Engine) admitBytes() error {
	free, err := e.diskFree()
	if err != nil {
		return err
	}
	if free < e.cfg.DiskReserve {
		return api.Errorf(api.CodeHostFull, "the host's disk is short: %s are free, and %s are kept back",
			humanize.IBytes(uint64(free)), humanize.IBytes(uint64(e.cfg.DiskReserve))).CanRetry().
			WithHint("remove chats or cells that nobody needs, or ask the host's administrator")
	}
	return nil
}

// diskFree is how many bytes the file system of the state has left.
func (e *Engine) diskFree() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(e.cfg.StateDir, &st); err != nil {
		return 0, fmt.Errorf("look at the host's disk: %w", err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// Usage says how busy the engine is.
func (e *Engine) Usage() api.Usage {
	e.mu.Lock()
	defer e.mu.Unlock()
	u := api.Usage{Sandboxes: len(e.live), UploadWait: e.uploads.Stats().Queued}
	for _, r := range e.commands {
		if r.record().State == api.StateQueued {
			u.Waiting++
		} else {
			u.Running++
		}
	}
	return u
}
