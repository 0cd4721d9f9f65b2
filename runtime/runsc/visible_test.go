package runsc_test

import (
	"slices"
	"strings"
	"testing"

	"mediasandbox/runtime/sandbox"
)

// What a guest may see. Anything else that turns up here has come from the
// host, or is new in gVisor, and is to be looked at.
var (
	visibleMounts = []string{
		"/ overlay rw", "/.ctl 9p ro", "/.init 9p ro", "/.journal 9p rw", "/dev dev rw", "/dev/pts devpts rw", "/dev/shm tmpfs rw",
		"/etc/resolv.conf 9p ro", "/inputs 9p ro", "/outputs 9p rw", "/proc proc rw", "/skills 9p ro", "/sys sysfs ro",
		"/sys/fs/cgroup cgroup2 rw", "/tmp 9p rw", "/workspace 9p rw",
	}
	visibleDevices = []string{
		"/dev/full", "/dev/fuse", "/dev/net/tun", "/dev/null", "/dev/pts/ptmx", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero",
	}
	visibleFiles = []string{ // that the image does not have, beside the mounts' own
		"/.ctl/init.sock", "/.init/sandbox-init", "/.journal/closed",
	}
)

// TestNothingOfTheHostIsVisible walks what a guest sees: mounts, devices, the
// environment, PID 1's descriptors, interfaces.
func TestNothingOfTheHostIsVisible(t *testing.T) {
	r := newRig(t)
	h := r.start("visible")
	lines := func(script string) []string {
		t.Helper()
		st, o := r.run(h, "sh", "-c", script)
		if st.Code != 0 || st.Err != nil {
			t.Fatalf("%s: %+v %s", script, st, o.text(sandbox.Stderr))
		}
		list := strings.Split(strings.TrimSpace(o.text(sandbox.Stdout)), "\n")
		slices.Sort(list)
		return list
	}
	for script, want := range map[string][]string{
		`while read -r _ at type options _; do echo "$at $type ${options%%,*}"; done </proc/mounts`: visibleMounts,
		`find /dev \( -type c -o -type b \)`:                                             visibleDevices,
		`find /.ctl /.init /.journal /inputs /workspace /outputs /tmp /skills ! -type d`: visibleFiles,
		`env | grep -v ^PWD=`:            {"PATH=/usr/local/bin:/usr/bin:/bin"},
		`tr '\0' '\n' </proc/1/environ`:  {"HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		`stat -L -c %F /proc/1/fd/[012]`: slices.Repeat([]string{"character special file"}, 3),
		`cd /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '`: {"eth0", "lo"},
		`hostname`: {"sandbox"},
		`uname -r`: {"4.19.0-gvisor"},
		`ls /sys/block /sys/bus /sys/module /sys/firmware | grep -v : | grep . || echo nothing`: {"nothing"},
		`id -u`: {"0"},
	} {
		if got := lines(script); !slices.Equal(got, want) {
			t.Errorf("%s\nshows\n%s\nwant\n%s", script, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	// Nothing names the host's own paths.
	if got := lines(`cat /proc/mounts /proc/self/mountinfo /proc/1/cmdline /proc/1/environ /proc/cmdline | tr '\0' '\n' | grep -c -e ` + r.dir + ` || true`); got[0] != "0" {
		t.Errorf("the host's directory is named %s times", got[0])
	}
}
