package runsc_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"mediasandbox/internal/testenv"
	"mediasandbox/runtime/gate"
	"mediasandbox/runtime/runsc"
	"mediasandbox/runtime/sandbox"
)

// rig is a runtime over real parts, below a directory of its own.
type rig struct {
	*testing.T
	dir     string
	network sandbox.Network
	runtime *runsc.Runtime
	serial  int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, dir: testenv.Dir(t)}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	network, err := gate.New(gate.Config{RunDir: filepath.Join(r.dir, "gate"), Binary: testenv.Bin(t, "sandbox-gate"), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	r.network = network
	r.runtime = r.newRuntime(network)
	t.Cleanup(func() {
		ids, err := r.runtime.List(context.Background())
		if err != nil {
			t.Error(err)
		}
		for _, id := range ids {
			if err := r.runtime.Remove(context.Background(), id); err != nil {
				t.Error(err)
			}
		}
		if err := network.Close(); err != nil {
			t.Error(err)
		}
		if left := testenv.Leftovers(t, r.dir, runsc.CgroupParent(filepath.Join(r.dir, "run"))); len(left) > 0 {
			t.Errorf("left on the host:\n%s", strings.Join(left, "\n"))
		}
	})
	return r
}

func (r *rig) newRuntime(network sandbox.Network) *runsc.Runtime {
	r.Helper()
	run, err := runsc.New(runsc.Config{
		Binary: testenv.Bin(r.T, "runsc"), InitDir: testenv.Bin(r.T, "init"),
		RunDir: filepath.Join(r.dir, "run"), Network: network, Log: slog.New(slog.NewTextHandler(r.Output(), nil)),
	})
	if err != nil {
		r.Fatal(err)
	}
	return run
}

func (r *rig) spec(id string) sandbox.Spec {
	return sandbox.Spec{
		ID: id, Image: testenv.Image(r.T).Path, Disk: filepath.Join(r.dir, "disk-"+id), Overlay: filepath.Join(r.dir, "overlay-"+id),
		Limits:  sandbox.Limits{MemoryBytes: 1 << 30, CPUs: 2, PIDs: 2000, OverlayBytes: 1 << 30},
		Network: sandbox.NetworkPolicy{Mode: sandbox.NetworkPublic},
	}
}

func (r *rig) start(id string) sandbox.Handle {
	r.Helper()
	h, err := r.runtime.Start(r.Context(), r.spec(id))
	if err != nil {
		r.Fatal(err)
	}
	return h
}

// output collects a command's streams and checks their offsets.
type output struct {
	mu      sync.Mutex
	streams [3]bytes.Buffer
}

func (o *output) Write(s sandbox.Stream, offset int64, data []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if int64(o.streams[s].Len()) != offset {
		return fmt.Errorf("stream %d: offset %d, want %d", s, offset, o.streams[s].Len())
	}
	o.streams[s].Write(data)
	return nil
}

func (o *output) text(s sandbox.Stream) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.streams[s].String()
}

func command(sink sandbox.Sink, argv ...string) sandbox.Command {
	return sandbox.Command{
		Argv: argv, Dir: "/workspace", KillGrace: time.Second, Sink: sink,
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
	}
}

// launch starts a command and does not wait.
func (r *rig) launch(h sandbox.Handle, o *output, argv ...string) (string, sandbox.Process) {
	r.Helper()
	r.serial++
	id := fmt.Sprintf("cmd-%d", r.serial)
	p, err := h.Start(r.Context(), id, command(o, argv...))
	if err != nil {
		r.Fatal(err)
	}
	return id, p
}

// run runs a command to its end.
func (r *rig) run(h sandbox.Handle, argv ...string) (sandbox.Status, *output) {
	r.Helper()
	o := &output{}
	_, p := r.launch(h, o, argv...)
	return r.await(p), o
}

func (r *rig) await(p sandbox.Process) sandbox.Status {
	r.Helper()
	select {
	case <-p.Done():
	case <-time.After(60 * time.Second):
		r.Fatal("the command did not end within a minute")
	}
	return p.Status()
}

// eventually polls until ok, or fails.
func (r *rig) eventually(what string, ok func() bool) {
	r.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			r.Fatalf("%s did not happen", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}
