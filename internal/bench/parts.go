package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// parts are the host's processes of one sandbox.
type parts struct {
	sentry, gofer int
	// stubs hold the guest's address spaces, as children of the sentry.
	stubs []int
}

// parts finds the processes of a sandbox.
func (d *daemon) parts(table map[int]process, id string) (parts, error) {
	dir := filepath.Join(d.cfg.Paths.RunDir, "runsc", "sandboxes", id)
	body, err := os.ReadFile(filepath.Join(dir, "process.json"))
	if err != nil {
		return parts{}, err
	}
	var ref struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal(body, &ref); err != nil {
		return parts{}, fmt.Errorf("find the processes of %s: %w", id, err)
	}
	p := parts{sentry: ref.PID, stubs: descendants(table, ref.PID)}
	for pid, proc := range table {
		// The bundle is the sandbox's directory, in one argument or two.
		if proc.args[0] == "runsc-gofer" && (slices.Contains(proc.args, dir) || slices.Contains(proc.args, "--bundle="+dir)) {
			p.gofer = pid
		}
	}
	return p, nil
}

// gateOf returns the gate's pid: it holds a lock for as long as it lives.
func (d *daemon) gateOf(id string) (int, error) {
	lock, err := os.OpenFile(filepath.Join(d.cfg.Paths.RunDir, "gate", "gates", id, "lock"), os.O_RDWR, 0)
	if err != nil {
		return 0, fmt.Errorf("find the gate of %s: %w", id, err)
	}
	defer lock.Close()
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(lock.Fd(), unix.F_GETLK, &l); err != nil {
		return 0, fmt.Errorf("find the gate of %s: %w", id, err)
	}
	if l.Type == unix.F_UNLCK {
		return 0, fmt.Errorf("find the gate of %s: nobody holds its lock", id)
	}
	return int(l.Pid), nil
}

// footprint is the memory of one idle sandbox.
type footprint struct {
	sentry, stubs, gofer, gate memory
	// guest is what the sentry's memory files hold: the guest's memory.
	guest float64
}

func (f footprint) all() memory { return f.sentry.plus(f.stubs).plus(f.gofer).plus(f.gate) }

// own is what the host would get back with the sandbox, in bytes: anonymous
// memory and the guest's memory files. Mapped files (programs, image) stay in
// the page cache, once for all sandboxes.
func (f footprint) own() float64 { return f.all().anon + f.guest }

// footprintOf measures a sandbox.
func (d *daemon) footprintOf(table map[int]process, id string) (f footprint, err error) {
	p, err := d.parts(table, id)
	if err != nil {
		return f, err
	}
	if p.gofer == 0 || len(p.stubs) == 0 {
		return f, fmt.Errorf("sandbox %s shows gofer %d and %d stub processes", id, p.gofer, len(p.stubs))
	}
	gate, err := d.gateOf(id)
	if err != nil {
		return f, err
	}
	if name := table[p.sentry].args[0]; !strings.HasPrefix(name, "runsc-sandbox") {
		return f, fmt.Errorf("process %d of sandbox %s is %q", p.sentry, id, name)
	}
	spaces, err := addressSpaces(append([]int{p.sentry}, p.stubs...))
	if err != nil {
		return f, err
	}
	for _, stub := range spaces[1:] {
		m, err := memoryOf(stub)
		if err != nil {
			return f, err
		}
		f.stubs = f.stubs.plus(m)
	}
	for pid, m := range map[int]*memory{p.sentry: &f.sentry, p.gofer: &f.gofer, gate: &f.gate} {
		if *m, err = memoryOf(pid); err != nil {
			return f, err
		}
	}
	f.guest, err = memfds(p.sentry)
	return f, err
}
