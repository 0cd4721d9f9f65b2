package gate

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"mediasandbox/runtime/gate/internal/handover"
)

// TestGateLosesItsDirectory removes by hand what a gate is found by.
func TestGateLosesItsDirectory(t *testing.T) {
	w := newWorld(t)
	w.listenTCP(w.outer, publicAddr+":80", echo)
	m, err := New(w.config(nil))
	w.must(err)
	a, err := m.Attach(t.Context(), "lost", publicMode)
	w.must(err)
	old := gatePIDs(t)

	// Only the lock: the gate ends, and the daemon starts one that can be found.
	w.must(os.Remove(filepath.Join(m.gatePath("lost"), handover.LockName)))
	w.eventually("another gate runs", func() bool {
		now := gatePIDs(t)
		return len(now) == 1 && now[0] != old[0]
	})
	w.eventually("it lets out what it should", func() bool { return w.reaches(a, publicAddr+":80") == nil })

	// All of it, while no daemon looks: the gate ends by itself.
	w.must(m.Close())
	w.must(os.RemoveAll(m.gatePath("lost")))
	w.eventually("no gate is left", func() bool { return len(gatePIDs(t)) == 0 })
	next, err := New(w.config(nil))
	w.must(err)
	defer func() { w.must(next.Close()) }()
	w.must(next.Detach(context.Background(), "lost"))
	if l := w.count(next.cfg.RunDir); l != (leftovers{}) {
		t.Errorf("left: %+v", l)
	}
}
