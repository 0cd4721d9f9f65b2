package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	settleTimeout = 3 * time.Minute
	// settleWindow is how long nothing may happen before a sample is taken. It
	// is longer than any pause that sandbox-init makes while it warms Python.
	settleWindow = 300 * time.Millisecond
)

// settled waits until the pool is full and nothing of the daemon's works any
// more: neither a boot, nor the imports of a warm Python.
func (d *daemon) settled() error {
	want := d.chats + d.cfg.Limits.Pool
	booted := func() (bool, error) {
		ids, err := d.sandboxes()
		return len(ids) == want, err
	}
	if err := d.poll(d.b.ctx, settleTimeout, fmt.Sprintf("there are not %d sandboxes", want), booted); err != nil {
		return err
	}
	// A few parts in a hundred of a core is what many idle sandboxes may use.
	most := settleWindow/20 + time.Duration(want)*settleWindow/200
	since := time.Now()
	last, err := d.cpuOfAll()
	if err != nil {
		return err
	}
	quiet := func() (bool, error) {
		if time.Since(since) < settleWindow {
			return false, nil
		}
		used, err := d.cpuOfAll()
		if err != nil {
			return false, err
		}
		idle := used-last <= most
		since, last = time.Now(), used
		return idle, nil
	}
	return d.poll(d.b.ctx, settleTimeout, "its sandboxes did not come to rest", quiet)
}

// sandboxes names the booted sandboxes, with chats and in the pool.
func (d *daemon) sandboxes() ([]string, error) {
	records, err := filepath.Glob(filepath.Join(d.cfg.Paths.RunDir, "runsc", "sandboxes", "*", "process.json"))
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	ids := make([]string, len(records))
	for i, r := range records {
		ids[i] = filepath.Base(filepath.Dir(r))
	}
	return ids, nil
}

// cpuOfAll is the processor time of the daemon and all its sandboxes.
func (d *daemon) cpuOfAll() (time.Duration, error) {
	ids, err := d.sandboxes()
	if err != nil {
		return 0, err
	}
	table, err := processes()
	if err != nil {
		return 0, err
	}
	pids := []int{d.cmd.Process.Pid}
	for _, id := range ids {
		parts, err := d.parts(table, id)
		if os.IsNotExist(err) {
			continue // being removed
		}
		if err != nil {
			return 0, err
		}
		pids = append(append(pids, parts.sentry, parts.gofer), parts.stubs...)
	}
	var sum time.Duration
	for _, pid := range pids {
		sum += table[pid].cpu
	}
	return sum, nil
}
