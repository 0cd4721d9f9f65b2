package gate

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

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
		cmd := exec.Command(os.Args[0], daemonVerb, cfg.RunDir, cfg.Binary, cfg.Uplink, cfg.ResolvConf)
		var out []byte
		err := onThread(func() (err error) {
			// What is not in the thread's bounding set no child of it has.
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, c.capability, 0, 0, 0); err != nil {
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
