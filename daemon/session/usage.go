package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"mediasandbox/daemon/api"
)

// Sandboxes lists the live sandboxes of an account, or of all with "", with
// what they use.
func (e *Engine) Sandboxes(ctx context.Context, account string) ([]api.SandboxUsage, error) {
	e.mu.Lock()
	var picked []*live
	for k, l := range e.live {
		if account == "" || k.Account == account {
			picked = append(picked, l)
		}
	}
	e.mu.Unlock()
	list := make([]api.SandboxUsage, 0, len(picked))
	for _, l := range picked {
		u, err := e.usage(ctx, l)
		if errors.Is(err, ErrNotFound) {
			continue // its chat was deleted
		}
		if err != nil {
			return nil, fmt.Errorf("look at sandbox %s: %w", l.record.Spec.ID, err)
		}
		if !l.gone() {
			list = append(list, u)
		}
	}
	slices.SortFunc(list, func(a, b api.SandboxUsage) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Chat, b.Chat))
	})
	return list, nil
}

// usage tells what one uses.
func (e *Engine) usage(ctx context.Context, l *live) (api.SandboxUsage, error) {
	k := l.record.Chat
	u := api.SandboxUsage{Sandbox: *l.describe(e.cfg.IdleLife), Account: k.Account, Chat: k.ID, MemoryLimit: l.record.Spec.Limits.MemoryBytes}
	chat, err := e.chatRecord(k)
	if err != nil {
		return u, err
	}
	if chat.Turn != nil {
		t := wireTurn(*chat.Turn)
		u.Turn = &t
	}
	l.mu.Lock()
	u.Running = len(l.running)
	l.mu.Unlock()
	if of, ok := l.handle.Usage(); ok {
		u.Accounted, u.Memory, u.CPU, u.Processes = true, of.Memory, of.CPU.Seconds(), of.Processes
	}
	if u.Disk, err = diskTaken(filepath.Dir(l.record.Spec.Disk)); err != nil && !l.gone() {
		return u, err
	}
	if l.record.Spec.Network.Off() {
		return u, nil
	}
	t, err := e.cfg.Network.Control.Traffic(ctx, l.record.Spec.ID)
	if err != nil && !l.gone() { // its gate may be starting again; the rest is known
		e.log.Warn("ask for a sandbox's traffic", "sandbox", l.record.Spec.ID, "error", err)
	}
	u.Sent, u.Received, u.Flows = t.Sent, t.Received, t.OpenTCP+t.OpenUDP
	return u, nil
}

// diskTaken is how many bytes of the host's disk a sandbox's directory takes:
// its sparse file, and its writable layer. What is mounted there is not the
// host's.
func diskTaken(dir string) (int64, error) {
	var top unix.Stat_t
	if err := unix.Lstat(dir, &top); err != nil {
		return 0, err
	}
	var taken int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has just gone
		}
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return ignoreMissing(err)
		}
		if st.Dev != top.Dev {
			return fs.SkipDir
		}
		taken += st.Blocks * 512
		return nil
	})
	return taken, err
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
