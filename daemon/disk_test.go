package daemon_test

import (
	"strings"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
)

// TestFullDisks fills what a sandbox may write, in each place.
func TestFullDisks(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.Disk, c.Limits.Overlay = 64<<20, 64<<20 })
	for _, file := range []string{"/outputs/big", "/workspace/big", "/root/big", "/tmp/big"} {
		cmd := d.Shell("head -c 200000000 /dev/zero >" + file)
		_, stderr := d.Printed(cmd)
		if cmd.State != api.StateFailed || !strings.Contains(stderr, "No space left on device") {
			t.Errorf("filling %s: %s %q", file, cmd.State, stderr)
		}
		succeeded(t, d, d.Shell("rm "+file+" && echo ok >/outputs/ok && rm /outputs/ok"))
	}
	out, _ := d.Printed(d.Shell("df -m /outputs | tail -1"))
	if fields := strings.Fields(out); len(fields) < 2 || len(fields[1]) != 2 {
		t.Errorf("the guest sees %s", out)
	}
	info, err := d.Info(t.Context())
	if err != nil || !info.Limits.DiskEnforced || info.Limits.DiskBytes != 64<<20 {
		t.Errorf("info: %+v, %v", info.Limits, err)
	}
}
