package gate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNoFallback starts daemons that lack a right. Each refuses to start, says
// what is missing, and leaves nothing.
func TestNoFallback(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		capability uintptr
		want       []string
	}{
		"namespaces": {unix.CAP_SYS_ADMIN, []string{"make a network namespace", "CAP_SYS_ADMIN"}},
		"TAPs":       {unix.CAP_NET_ADMIN, []string{"TAP", "CAP_NET_ADMIN", "/dev/net/tun"}},
	} {
		cfg := w.config(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], daemonVerb, cfg.RunDir, cfg.Binary, cfg.Uplink, cfg.ResolvConf)
		var out []byte
		err := onThread(func() (err error) {
			if err := lose(c.capability); err != nil {
				return err
			}
			out, err = cmd.CombinedOutput()
			return err
		})
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Errorf("without the right to make %s: %v, want it to refuse: %s", name, err, out)
		}
		for _, want := range append(c.want, "operation not permitted", "the daemon does not start") {
			if !strings.Contains(string(out), want) {
				t.Errorf("without the right to make %s it says %q, and nothing of %q", name, out, want)
			}
		}
		if l := w.count(cfg.RunDir); l != (leftovers{}) {
			t.Errorf("left: %+v", l)
		}
	}
}

// lose takes a capability from all that the calling thread starts: out of the
// bounding set, and out of the inheritable and ambient ones, by which a container
// may have handed it down.
func lose(capability uintptr) error {
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
		return fmt.Errorf("drop capability %d: %w", capability, err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	sets[0].Inheritable, sets[1].Inheritable = 0, 0
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("clear inheritable capabilities: %w", err)
	}
	return nil
}
