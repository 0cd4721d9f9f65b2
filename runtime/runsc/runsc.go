// Package runsc runs sandboxes in gVisor by driving the runsc binary. It
// implements sandbox.Runtime.
//
// A sandbox boots from an EROFS image with a writable layer on its own disk
// directory, in a network namespace that a sandbox.Network made, in a cgroup
// where the host has them. Its first process is sandbox-init, which dials back
// to a socket in the sandbox's run directory (runtime/guest); so nothing but
// files and processes ties a sandbox to the daemon, and a later daemon adopts
// it. Start reading at Runtime.Start.
package runsc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"gvisor.dev/gvisor/pkg/cleanup"

	"mediasandbox/runtime/guest"
	"mediasandbox/runtime/hostproc"
	"mediasandbox/runtime/sandbox"
)

// Config says where the runtime finds and keeps things.
type Config struct {
	// Binary is the runsc binary; InitDir holds sandbox-init and nothing else.
	Binary, InitDir string
	// RunDir is kept across restarts of the daemon, not of the host.
	RunDir string
	// Network makes the sandboxes' networks.
	Network sandbox.Network
	// Log receives what goes wrong.
	Log *slog.Logger
}

// Runtime drives runsc.
type Runtime struct {
	cfg     Config
	cgroups cgroups
}

var (
	_ sandbox.Runtime = (*Runtime)(nil)
	_ sandbox.Handle  = (*handle)(nil)

	validID = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)
)

// Bounds of one call; a wedged runsc must not hold the daemon.
const (
	bootTimeout   = 60 * time.Second
	removeTimeout = 60 * time.Second
	adoptTimeout  = 30 * time.Second
)

// New checks what the runtime needs and returns it.
func New(cfg Config) (*Runtime, error) {
	for _, path := range []string{cfg.Binary, filepath.Join(cfg.InitDir, "sandbox-init")} {
		if st, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("find a part of the runtime: %w", err)
		} else if st.Mode()&0o111 == 0 {
			return nil, fmt.Errorf("find a part of the runtime: %s is not executable", path)
		}
	}
	for _, dir := range []string{"state", "sandboxes"} {
		if err := os.MkdirAll(filepath.Join(cfg.RunDir, dir), 0o700); err != nil {
			return nil, fmt.Errorf("make the runtime's directory: %w", err)
		}
	}
	return &Runtime{cfg: cfg, cgroups: detectCgroups(cfg.RunDir, cfg.Log)}, nil
}

// LimitsEnforced tells whether the host lets the runtime bound memory, CPU and
// processes, and if not, why.
func (r *Runtime) LimitsEnforced() (bool, string) { return r.cgroups.usable, r.cgroups.reason }

func (r *Runtime) dir(id string) string { return filepath.Join(r.cfg.RunDir, "sandboxes", id) }

// Start implements sandbox.Runtime.
func (r *Runtime) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Handle, error) {
	if !validID.MatchString(spec.ID) {
		return nil, fmt.Errorf("start sandbox: id %q is not 1 to 32 of [a-z0-9-]", spec.ID)
	}
	if err := os.Mkdir(r.dir(spec.ID), 0o700); err != nil {
		return nil, fmt.Errorf("start sandbox %s: %w", spec.ID, err)
	}
	undo := cleanup.Make(func() {
		if err := r.Remove(context.WithoutCancel(ctx), spec.ID); err != nil {
			r.cfg.Log.Error("remove a sandbox that did not start", "sandbox", spec.ID, "error", err)
		}
	})
	defer undo.Clean()
	h, err := r.boot(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("start sandbox %s: %w", spec.ID, err)
	}
	undo.Release()
	return h, nil
}

// boot makes the parts of a sandbox; Remove takes any number of them away.
func (r *Runtime) boot(ctx context.Context, spec sandbox.Spec) (*handle, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("the sandbox did not boot within %s", bootTimeout))
	defer cancel()
	began := time.Now()
	network, err := r.cfg.Network.Attach(ctx, spec.ID, spec.Network)
	if err != nil {
		return nil, fmt.Errorf("make its network: %w", err)
	}
	attached := time.Now()
	if err := r.writeBundle(spec, network); err != nil {
		return nil, err
	}
	ln, err := listen(filepath.Join(r.dir(spec.ID), "ctl"))
	if err != nil {
		return nil, err
	}
	channel := guest.NewHost(ln, guest.Warm{Env: spec.WarmEnv}, r.cfg.Log.With("sandbox", spec.ID))
	undo := cleanup.Make(func() { channel.Close(sandbox.ErrGone) })
	defer undo.Clean()
	pidFile := filepath.Join(r.dir(spec.ID), "pid")
	args := append(r.flags(spec), "run", "--bundle", r.dir(spec.ID), "--detach", "--pid-file", pidFile, spec.ID)
	if err := r.runsc(ctx, spec.ID, args); err != nil {
		return nil, fmt.Errorf("boot: %w", err)
	}
	ran := time.Now()
	ref, err := r.recordProcess(spec.ID, pidFile)
	if err != nil {
		return nil, err
	}
	h, err := r.newHandle(ctx, spec, channel, ref)
	if err != nil {
		return nil, err
	}
	r.cfg.Log.Debug("sandbox booted", "sandbox", spec.ID, "network", attached.Sub(began), "runsc", ran.Sub(attached), "init", time.Since(ran))
	undo.Release()
	return h, nil
}

// recordProcess keeps the sandbox's process in the run directory for Adopt.
func (r *Runtime) recordProcess(id, pidFile string) (hostproc.Ref, error) {
	var pid int
	text, err := os.ReadFile(pidFile)
	if err == nil {
		_, err = fmt.Sscan(string(text), &pid)
	}
	if err != nil {
		return hostproc.Ref{}, fmt.Errorf("read the sandbox's pid: %w", err)
	}
	ref, err := hostproc.Of(pid)
	if err != nil {
		return hostproc.Ref{}, fmt.Errorf("find the sandbox's process: %w", err)
	}
	body, err := json.Marshal(ref)
	if err != nil {
		return hostproc.Ref{}, fmt.Errorf("record the sandbox's process: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.dir(id), "process.json"), body, 0o600); err != nil {
		return hostproc.Ref{}, fmt.Errorf("record the sandbox's process: %w", err)
	}
	return ref, nil
}

func (r *Runtime) process(id string) (hostproc.Ref, error) {
	var ref hostproc.Ref
	body, err := os.ReadFile(filepath.Join(r.dir(id), "process.json"))
	if errors.Is(err, os.ErrNotExist) {
		return ref, sandbox.ErrGone
	}
	if err == nil {
		err = json.Unmarshal(body, &ref)
	}
	if err != nil {
		return ref, fmt.Errorf("read the sandbox's process: %w", err)
	}
	return ref, nil
}

// Adopt implements sandbox.Runtime.
func (r *Runtime) Adopt(ctx context.Context, spec sandbox.Spec) (sandbox.Handle, error) {
	ref, err := r.process(spec.ID)
	if err != nil {
		return nil, fmt.Errorf("adopt sandbox %s: %w", spec.ID, err)
	}
	if !ref.Alive() {
		return nil, fmt.Errorf("adopt sandbox %s: %w", spec.ID, sandbox.ErrGone)
	}
	ln, err := listen(filepath.Join(r.dir(spec.ID), "ctl"))
	if err != nil {
		return nil, fmt.Errorf("adopt sandbox %s: %w", spec.ID, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, adoptTimeout, errors.New("its PID 1 does not answer"))
	defer cancel()
	channel := guest.NewHost(ln, guest.Warm{Env: spec.WarmEnv}, r.cfg.Log.With("sandbox", spec.ID))
	h, err := r.newHandle(ctx, spec, channel, ref)
	if err != nil {
		channel.Close(sandbox.ErrGone)
		return nil, fmt.Errorf("adopt sandbox %s: %w", spec.ID, err)
	}
	return h, nil
}

// listen makes the socket that sandbox-init dials. The directory is named
// through a descriptor, since a socket's path may be only 107 bytes long.
func listen(dir string) (net.Listener, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("make the control directory: %w", err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the control directory: %w", err)
	}
	defer d.Close()
	path := fmt.Sprintf("/proc/self/fd/%d/init.sock", d.Fd())
	// What an earlier daemon left; nobody listens there any more.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the old control socket: %w", err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on the control socket: %w", err)
	}
	// The path is only valid while d is open; Remove takes the directory.
	ln.SetUnlinkOnClose(false)
	return ln, nil
}

// List implements sandbox.Runtime.
func (r *Runtime) List(ctx context.Context) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(r.cfg.RunDir, "sandboxes"))
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	ids, err := r.cfg.Network.Attached(ctx)
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: networks: %w", err)
	}
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
