package runsc_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestRemoveWhileItBoots removes a sandbox that another daemon, which may be
// dead by now, has begun to boot: its runsc goes on until it is ended.
func TestRemoveWhileItBoots(t *testing.T) {
	r := newRig(t)
	for after := time.Duration(0); after < 300*time.Millisecond; after += 20 * time.Millisecond {
		started := make(chan error, 1)
		go func() {
			h, err := r.runtime.Start(t.Context(), r.spec("cutoff"))
			if err == nil {
				err = errors.Join(h.Detach(), r.runtime.Remove(t.Context(), "cutoff"))
			}
			started <- err
		}()
		<-time.After(after)
		if err := r.newRuntime(r.network).Remove(t.Context(), "cutoff"); err != nil {
			t.Errorf("after %s: %v", after, err)
		}
		if err := <-started; err != nil {
			t.Logf("after %s: %v", after, err)
		}
		ids, err := r.runtime.List(t.Context())
		if err != nil || len(ids) != 0 {
			t.Errorf("after %s left: %q, %v", after, ids, err)
		}
		if state, err := os.ReadDir(filepath.Join(r.dir, "run", "state")); err != nil || len(state) != 0 {
			t.Errorf("after %s runsc's state has %v, %v", after, state, err)
		}
	}
}
