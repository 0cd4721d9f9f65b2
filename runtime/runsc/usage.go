package runsc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"mediasandbox/runtime/sandbox"
)

// Usage implements sandbox.Handle: the sandbox's group accounts for it.
func (h *handle) Usage() (sandbox.Usage, bool) {
	if !h.runtime.cgroups.usable {
		return sandbox.Usage{}, false
	}
	u, err := h.runtime.cgroups.usage(h.spec.ID)
	return u, err == nil // it may be ending this moment
}

// usage reads what a sandbox's group has counted.
func (c cgroups) usage(id string) (u sandbox.Usage, err error) {
	read := func(controller, file, key string) int64 {
		if c.v2 {
			controller = ""
		}
		n, rerr := counter(filepath.Join(cgroupMount, controller, c.parent, id, file), key)
		err = errors.Join(err, rerr)
		return n
	}
	if c.v2 {
		u.Memory = read("", "memory.current", "")
		u.CPU = time.Duration(read("", "cpu.stat", "usage_usec")) * time.Microsecond
	} else {
		u.Memory = read("memory", "memory.usage_in_bytes", "")
		u.CPU = time.Duration(read("cpuacct", "cpuacct.usage", ""))
	}
	u.Processes = read("pids", "pids.current", "")
	return u, err
}

// counter reads a number: the file's own, or that of the line with a key.
func counter(path, key string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read a cgroup: %w", err)
	}
	if key == "" {
		return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, key+" "); ok {
			return strconv.ParseInt(strings.TrimSpace(n), 10, 64)
		}
	}
	return 0, fmt.Errorf("read a cgroup: %s has no %s", path, key)
}
