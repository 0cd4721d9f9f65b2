package runsc

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cgroups is what the host offers to bound sandboxes with.
type cgroups struct {
	usable bool
	// reason says why not.
	reason string
	// roots are the mount points to look below: one for v2, one a controller
	// for v1.
	roots []string
	v2    bool
	// parent holds the sandboxes of this run directory, and of no other, so
	// that two daemons on a host never remove it under each other.
	parent string
}

const cgroupMount = "/sys/fs/cgroup"

// detectCgroups tries what runsc will do: make a group that bounds memory.
func detectCgroups(runDir string, log *slog.Logger) cgroups {
	c := cgroups{roots: []string{cgroupMount}, parent: CgroupParent(runDir)}
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err == nil {
		c.v2 = true
	} else {
		c.roots = nil
		for _, controller := range []string{"memory", "cpu", "cpuacct", "cpuset", "pids", "blkio", "devices", "freezer", "systemd"} {
			if _, err := os.Stat(filepath.Join(cgroupMount, controller, "cgroup.procs")); err == nil {
				c.roots = append(c.roots, filepath.Join(cgroupMount, controller))
			}
		}
	}
	if err := c.probe(); err != nil {
		c.reason = err.Error()
		log.Warn("sandboxes run without memory, CPU and process limits", "reason", c.reason)
		return c
	}
	c.usable = true
	return c
}

// CgroupParent is the name of the group that holds the sandboxes of a run
// directory, in each hierarchy.
func CgroupParent(runDir string) string {
	sum := sha256.Sum256([]byte(runDir))
	return "media-sandbox-" + hex.EncodeToString(sum[:4])
}

func (c cgroups) probe() error {
	root := filepath.Join(cgroupMount, "memory")
	if c.v2 {
		root = cgroupMount
		controllers, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
		if err != nil || !strings.Contains(string(controllers), "memory") {
			return fmt.Errorf("cgroup v2 offers no memory controller (it has %q)", strings.TrimSpace(string(controllers)))
		}
	}
	probe := filepath.Join(root, c.parent, "probe-"+strconv.Itoa(os.Getpid()))
	if err := os.MkdirAll(probe, 0o755); err != nil {
		return fmt.Errorf("cgroups can't be made: %w", err)
	}
	if err := os.Remove(probe); err != nil {
		return fmt.Errorf("cgroups can't be removed: %w", err)
	}
	_ = os.Remove(filepath.Dir(probe)) // busy while a sandbox of an earlier daemon lives
	return nil
}

func (c cgroups) path(id string) string { return "/" + c.parent + "/" + id }

// oomKilled tells whether the kernel ended the sandbox for its memory limit.
// It must be asked before the group is removed.
func (c cgroups) oomKilled(id string) bool {
	if c.v2 {
		return c.counted(id, "", "memory.events", "oom_kill")
	}
	return c.counted(id, "memory", "memory.oom_control", "oom_kill")
}

// pidsRefused tells whether the kernel refused the sandbox a process or thread
// for its limit.
func (c cgroups) pidsRefused(id string) bool {
	if c.v2 {
		return c.counted(id, "", "pids.events", "max")
	}
	return c.counted(id, "pids", "pids.events", "max")
}

// counted tells whether a counter in a file of the sandbox's group is over 0.
func (c cgroups) counted(id, controller, file, counter string) bool {
	text, err := os.ReadFile(filepath.Join(cgroupMount, controller, c.parent, id, file))
	if err != nil {
		return false // no group, so no limit that could have been exceeded
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, counter+" "); ok {
			return strings.TrimSpace(n) != "0"
		}
	}
	return false
}

// remove takes the sandbox's groups away, and the parent with the last one.
func (c cgroups) remove(id string) error {
	var errs []error
	for _, root := range c.roots {
		errs = append(errs, removeGroup(filepath.Join(root, c.parent, id)))
		// Busy while another sandbox lives.
		_ = os.Remove(filepath.Join(root, c.parent))
	}
	return errors.Join(errs...)
}

func removeGroup(dir string) error {
	err := os.Remove(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("remove a cgroup: %w", err)
}
