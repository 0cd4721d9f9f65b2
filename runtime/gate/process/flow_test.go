package process

import (
	"bufio"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mediasandbox/runtime/gate/internal/handover"
	"mediasandbox/runtime/sandbox"
)

func TestWatchIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var used atomic.Bool
		start := time.Now()
		ended := make(chan time.Duration)
		go func() {
			watchIdle(nil, &used, func() time.Duration { return 10 * time.Second })
			ended <- time.Since(start)
		}()
		// Used in the first and the second period, and then no more.
		time.Sleep(5 * time.Second)
		used.Store(true)
		time.Sleep(10 * time.Second)
		used.Store(true)
		if took := <-ended; took != 30*time.Second {
			t.Errorf("ended after %v, want 30s", took)
		}
		gone := make(chan struct{})
		start = time.Now()
		time.AfterFunc(3*time.Second, func() { close(gone) })
		watchIdle(gone, &used, func() time.Duration { return 10 * time.Second })
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("ended %v after it was gone, want at once", took-3*time.Second)
		}
	})
}

func TestBufferFor(t *testing.T) {
	// Whatever a guest opens, what it can make the stack hold is bounded.
	total := 0
	for i := range handover.DefaultLimits().TCPFlows {
		total += bufferFor(i)
	}
	if limit := int(handover.DefaultLimits().DataBytes); total > limit {
		t.Errorf("%d MB of buffers for one direction, of %d MB", total>>20, limit>>20)
	}
}

func TestReserve(t *testing.T) {
	var n atomic.Int64
	for i := range 3 {
		if others, ok := reserve(&n, 3); !ok || others != i {
			t.Fatalf("place %d: %d, %v", i, others, ok)
		}
	}
	if _, ok := reserve(&n, 3); ok || n.Load() != 3 {
		t.Errorf("a place over the limit is given, or counted: %d", n.Load())
	}
}

// TestRefusalLog fills the log far beyond its size.
func TestRefusalLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		open := func() (files [2]*os.File) {
			for i, name := range handover.FlowNames {
				f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := f.Close(); err != nil {
						t.Error(err)
					}
				})
				files[i] = f
			}
			return files
		}
		l, err := newRefusalLog(open())
		if err != nil {
			t.Fatal(err)
		}
		const n = 10000
		var suppressed uint64
		for i := range n {
			if i == n/2 {
				if l, err = newRefusalLog(open()); err != nil { // as a new gate does
					t.Fatal(err)
				}
			}
			if err := l.add("tcp", netip.MustParseAddrPort("10.0.0.1:80"), "", "private"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Millisecond)
		}
		lines, latest := 0, ""
		for _, name := range handover.FlowNames {
			f, err := os.Open(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if st, err := f.Stat(); err != nil || st.Size() > refusalHalf {
				t.Errorf("%s: %d bytes, %v", name, st.Size(), err)
			}
			for sc := bufio.NewScanner(f); sc.Scan(); lines++ {
				var r sandbox.NetworkRefusal
				if err := json.Unmarshal(sc.Bytes(), &r); err != nil || r.Rule != "private" || r.Port != 80 {
					t.Fatalf("line %q: %v", sc.Text(), err)
				}
				suppressed += r.Suppressed
				latest = max(latest, r.Time)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if lines < refusalHalf/200 || suppressed == 0 {
			t.Errorf("%d lines are left, %d suppressed", lines, suppressed)
		}
		if at, err := time.Parse(time.RFC3339Nano, latest); err != nil || time.Since(at) > time.Second {
			t.Errorf("the latest line is of %s, %v", latest, err)
		}
	})
}
