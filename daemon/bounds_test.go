package daemon_test

import (
	"strconv"
	"strings"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
)

// bomb forks until it is refused, from a Python that is small to fork.
const bomb = `
import os, sys, time
n = 0
while True:
    try:
        pid = os.fork()
    except OSError as e:
        sys.exit(f"after {n}: {e.strerror}")
    if pid == 0:
        time.sleep(1000)
    n += 1
`

// TestForkBomb reaches the limit of processes: the guest's own, which its
// sandbox survives, and the host's, which it does not.
func TestForkBomb(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.PIDs, c.Limits.Memory, c.Limits.WarmPython = 64, 4<<30, false })
	succeeded(t, d, d.Shell("echo kept >/workspace/kept"))

	cmd := d.Finish(api.NewCommand{Python: bomb})
	_, stderr := d.Printed(cmd)
	if cmd.State != api.StateFailed || exitCode(cmd) != 1 || !strings.Contains(stderr, "Resource temporarily unavailable") {
		t.Errorf("%s (%s) %q", cmd.State, cmd.Reason, stderr)
	}
	if !strings.Contains(cmd.Reason, "limit of 64 processes") {
		t.Errorf("the reason is %q", cmd.Reason)
	}
	// The first process stays for long enough that a slow machine gets there.
	cmd = d.Finish(api.NewCommand{Argv: []string{"bash", "-c", ":(){ :|:& };:; for i in {1..20}; do sleep 0.5; done"}})
	if !cmd.State.Ended() || cmd.State == api.StateLost || !strings.Contains(cmd.Reason, "limit of 64 processes") {
		t.Errorf("the classic one: %s (%s)", cmd.State, cmd.Reason)
	}
	cmd = succeeded(t, d, d.Shell("cat /workspace/kept"))
	if cmd.FilesLost || cmd.Reason != "" {
		t.Errorf("the command after it: %+v", cmd)
	}

	cmd = d.Finish(api.NewCommand{Python: "open('/sys/fs/cgroup/commands/pids.max', 'w').write('max')" + bomb})
	if cmd.State != api.StateLost || !strings.Contains(cmd.Reason, "limit of 64 processes") {
		t.Errorf("with the guest's bound lifted: %s (%s)", cmd.State, cmd.Reason)
	}
	if cmd = succeeded(t, d, d.Shell("test ! -e /workspace/kept")); !cmd.FilesLost {
		t.Error("the next command does not say that files were lost")
	}
}

// TestBoundsInside runs into what bounds a guest without ending its sandbox.
func TestBoundsInside(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.Disk, c.Limits.Memory = 64<<20, 1<<30 })
	for name, tt := range map[string]struct{ python, complaint string }{
		"inodes of the disk": {`
n = 0
while True:
    open(f"/workspace/{n}", "w").close()
    n += 1`, "No space left on device"},
		"open files": {`
open("/workspace/file", "w").close()
held = []
while True:
    held.append(open("/workspace/file"))`, "Too many open files"},
		"shared memory": {`
with open("/dev/shm/big", "wb") as f:
    while True:
        f.write(bytes(1 << 20))`, "No space left on device"},
	} {
		cmd := d.Finish(api.NewCommand{Python: tt.python})
		_, stderr := d.Printed(cmd)
		if cmd.State != api.StateFailed || !strings.Contains(stderr, tt.complaint) {
			t.Errorf("%s: %s (%s): %q", name, cmd.State, cmd.Reason, stderr)
		}
		if after := succeeded(t, d, d.Shell("rm -rf /workspace/* /dev/shm/*; echo ok >/outputs/ok")); after.FilesLost {
			t.Errorf("%s: the sandbox was lost", name)
		}
	}
}

// TestSaneNumbers asks the guest for what programs size themselves by.
func TestSaneNumbers(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) {
		c.Limits.Disk, c.Limits.Overlay, c.Limits.Memory, c.Limits.CPUs = 128<<20, 256<<20, 1<<30, 2
	})
	for line, want := range map[string][2]int64{ // at least, at most
		"nproc": {2, 2},
		"awk '/MemTotal/ {print $2*1024}' /proc/meminfo":     {1 << 30, 1 << 30},
		"awk '/MemAvailable/ {print $2*1024}' /proc/meminfo": {512 << 20, 1 << 30},
		"df -B1 --output=size / | tail -1":                   {256 << 20, 256 << 20},
		"df -B1 --output=size /outputs | tail -1":            {100 << 20, 128 << 20},
		"df -B1 --output=avail /workspace | tail -1":         {100 << 20, 128 << 20},
		"df -B1 --output=size /tmp | tail -1":                {100 << 20, 128 << 20},
		"df -B1 --output=size /dev/shm | tail -1":            {512 << 20, 512 << 20},
		"ulimit -n":                 {1024, 1 << 20},
		"ulimit -s":                 {8192, 8192},
		"getconf _NPROCESSORS_ONLN": {2, 2},
	} {
		out, stderr := d.Printed(d.Shell(line))
		n, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
		if err != nil || n < want[0] || n > want[1] {
			t.Errorf("%s: %q %q, want %d to %d", line, out, stderr, want[0], want[1])
		}
	}
}
