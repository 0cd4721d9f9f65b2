// Package daemon wires the product together: it is the only room that names
// concrete implementations. Start reading at New.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	sdnotify "github.com/coreos/go-systemd/v22/daemon"
	"gvisor.dev/gvisor/pkg/cleanup"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/httpapi"
	"mediasandbox/daemon/session"
	"mediasandbox/daemon/store"
	"mediasandbox/internal/version"
	"mediasandbox/rootfs"
	"mediasandbox/runtime/disk"
	"mediasandbox/runtime/gate"
	"mediasandbox/runtime/runsc"
	"mediasandbox/runtime/sandbox"
	"mediasandbox/skills"
	"mediasandbox/uploader"
)

// Daemon is the whole service of one state directory.
type Daemon struct {
	cfg    config.Config
	log    *slog.Logger
	engine *session.Engine
	disks  *disk.Manager
	server *http.Server
	ln     net.Listener
	info   api.Info
	gates  *gate.Manager
	// restarts carries what the gates have to tell to the engine, which is
	// made later.
	restarts chan sandbox.NetworkRestart
	// undo takes the parts down in the reverse order of their making.
	undo []func() error
}

// stateName is the database in the state directory.
const stateName = "state.db"

// shutdownTimeout bounds the wait for requests under way.
const shutdownTimeout = 5 * time.Second

// New makes a daemon that has taken up its earlier state and listens. An
// ephemeral one removes its sandboxes on Close.
func New(ctx context.Context, cfg config.Config, ephemeral bool, log *slog.Logger) (*Daemon, error) {
	d := &Daemon{cfg: cfg, log: log}
	undo := cleanup.Make(func() {
		if err := d.Close(); err != nil {
			log.Error("take down a daemon that did not start", "error", err)
		}
	})
	defer undo.Clean()
	if os.Geteuid() != 0 {
		return nil, errors.New("sandboxd needs root: it makes network namespaces, mounts and cgroups")
	}
	if err := checkGroups(cfg.Access); err != nil {
		return nil, err
	}
	if err := d.makeDirs(); err != nil {
		return nil, err
	}
	image, err := locateImage(cfg.Paths.Image)
	if err != nil {
		return nil, err
	}
	if err := checkRecords(cfg.Paths.StateDir); err != nil {
		return nil, err
	}
	st, err := store.Open(filepath.Join(cfg.Paths.StateDir, stateName))
	if err != nil {
		return nil, err
	}
	d.defers(st.Close)
	run, err := d.newRuntime()
	if err != nil {
		return nil, err
	}
	if err := d.newEngine(ctx, st, run, image, ephemeral); err != nil {
		return nil, err
	}
	m, err := d.newMetrics(image)
	if err != nil {
		return nil, err
	}
	if d.ln, err = listen(cfg); err != nil {
		return nil, err
	}
	d.describe(image, run)
	d.server = &http.Server{
		Handler: httpapi.New(httpapi.Config{
			Engine:    d.engine,
			Operators: httpapi.Operators{UIDs: cfg.Access.OperatorUIDs, Groups: cfg.Access.OperatorGroups},
			Info:      func() api.Info { return d.info },
			Metrics:   m.Serve,
			Log:       log,
		}, version.String()),
		ConnContext:       httpapi.ConnContext,
		ReadHeaderTimeout: 10 * time.Second,
	}
	undo.Release()
	return d, nil
}

func (d *Daemon) defers(f func() error) { d.undo = append(d.undo, f) }

func (d *Daemon) makeDirs() error {
	p := d.cfg.Paths
	// The state directory first: the others may lie within it, and it is for
	// root alone.
	if err := os.MkdirAll(p.StateDir, 0o700); err != nil {
		return fmt.Errorf("make the state directory: %w", err)
	}
	for _, dir := range []string{p.RunDir, filepath.Dir(p.Socket)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make a directory of the daemon: %w", err)
		}
	}
	return nil
}

func locateImage(path string) (rootfs.Image, error) {
	if path != "" {
		return rootfs.Open(path)
	}
	dir, err := rootfs.CacheDir("")
	if err != nil {
		return rootfs.Image{}, err
	}
	return rootfs.Locate(dir)
}

func (d *Daemon) libexec(name string) (string, error) {
	dir := d.cfg.Paths.LibexecDir
	if dir == "" {
		exe, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find the parts of the product: %w", err)
		}
		dir = filepath.Dir(exe)
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find the parts of the product: %w: set paths.libexec_dir", err)
	}
	return filepath.Abs(path)
}

// gateUserName runs the gates where it exists; the package makes it.
const gateUserName = "media-sandbox-gate"

// gateUser returns the ids that gates run under; zeros stand for nobody's.
func gateUser() (uid, gid uint32, err error) {
	u, err := user.Lookup(gateUserName)
	var unknown user.UnknownUserError
	if errors.As(err, &unknown) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("look up the gates' user: %w", err)
	}
	for text, id := range map[string]*uint32{u.Uid: &uid, u.Gid: &gid} {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return 0, 0, fmt.Errorf("look up the gates' user: %w", err)
		}
		*id = uint32(n)
	}
	return uid, gid, nil
}

func (d *Daemon) newRuntime() (*runsc.Runtime, error) {
	paths := make(map[string]string)
	for _, name := range []string{"runsc", "sandbox-gate", "init"} {
		path, err := d.libexec(name)
		if err != nil {
			return nil, err
		}
		paths[name] = path
	}
	uid, gid, err := gateUser()
	if err != nil {
		return nil, err
	}
	d.restarts = make(chan sandbox.NetworkRestart, 64)
	d.gates, err = gate.New(gate.Config{
		UID: uid, GID: gid,
		RunDir: filepath.Join(d.cfg.Paths.RunDir, "gate"), Binary: paths["sandbox-gate"], Log: d.log,
		OnRestart: func(id, reason string) {
			select {
			case d.restarts <- sandbox.NetworkRestart{Sandbox: id, Reason: reason}:
			default: // the log has it
			}
		},
	})
	if err != nil {
		return nil, err
	}
	d.defers(d.gates.Close)
	return runsc.New(runsc.Config{
		Binary: paths["runsc"], InitDir: paths["init"],
		RunDir: filepath.Join(d.cfg.Paths.RunDir, "runsc"), Network: d.gates, Log: d.log,
	})
}

func (d *Daemon) newEngine(ctx context.Context, st *store.Store, run *runsc.Runtime, image rootfs.Image, ephemeral bool) error {
	spool, err := uploader.OpenSpool(filepath.Join(d.cfg.Paths.StateDir, "spool"))
	if err != nil {
		return err
	}
	d.defers(spool.Close)
	blobs, direct, err := d.newBlobs(ctx)
	if err != nil {
		return err
	}
	library, err := skills.OpenLibrary(filepath.Join(d.cfg.Paths.StateDir, "skills"))
	if err != nil {
		return err
	}
	l := d.cfg.Limits
	d.disks, err = disk.New(ctx, disk.Config{Dir: filepath.Join(d.cfg.Paths.StateDir, "disks"), Size: int64(l.Disk), Log: d.log})
	if err != nil {
		return err
	}
	d.engine, err = session.New(ctx, session.Config{
		Store: st, Runtime: run, Disks: d.disks, Blobs: blobs, DirectURLs: direct, Spool: spool, ClosedFiles: closedFiles, Skills: skillShelf{library}, StateDir: d.cfg.Paths.StateDir,
		Version: version.String(), KeptInputs: int64(l.KeptInputs), MaxDownload: int64(l.Download), Retention: d.cfg.Store.Retention, StableURLs: d.cfg.Store.S3.PublicBaseURL != "",
		Image: image.Path, ImageDigest: image.Manifest.Image.SHA256, Env: image.Manifest.Environment,
		Limits: sandbox.Limits{
			MemoryBytes: int64(l.Memory), CPUs: l.CPUs, PIDs: l.PIDs, OverlayBytes: int64(l.Overlay),
		},
		Network:     d.network(),
		OutputBytes: int64(l.Output), IdleLife: time.Duration(l.IdleLife), Pool: l.Pool,
		DefaultTimeout: time.Duration(l.Timeout), MaxTimeout: time.Duration(l.MaxTimeout), TurnBudget: time.Duration(l.TurnBudget),
		MaxRunning: l.Running, WarmPython: l.WarmPython, MaxSandboxes: l.Sandboxes, MaxAccountSandboxes: l.AccountSandboxes,
		MaxAccountRunning: l.AccountRunning, MaxWaiting: l.Waiting, MaxAccountStored: int64(l.AccountStored), MaxAccountDaily: int64(l.AccountDaily), DiskReserve: int64(l.DiskReserve), MemoryReserve: int64(l.MemoryReserve),
		Ephemeral: ephemeral, Log: d.log,
	})
	if err != nil {
		return err
	}
	d.defers(d.engine.Close)
	return nil
}

// network is what the engine has to do with networks.
func (d *Daemon) network() session.Network {
	n := d.cfg.Network
	return session.Network{
		Control:  d.gates,
		Operator: sandbox.NetworkOperator{Mode: sandbox.NetworkMode(n.Mode), Rules: n.Rules, Services: n.Services},
		Limits:   sandbox.NetworkLimits{Flows: n.Flows, Bandwidth: int64(n.Bandwidth), Total: int64(n.Total)},
		Restarts: d.restarts,
	}
}

// describe fills what the daemon tells of itself.
func (d *Daemon) describe(image rootfs.Image, run *runsc.Runtime) {
	l := d.cfg.Limits
	enforced, reason := run.LimitsEnforced()
	bounded, unbounded := d.disks.Bounded()
	d.info = api.Info{
		Version: version.String(), StartedAt: time.Now().UTC(), StateDir: d.cfg.Paths.StateDir,
		Image: api.Image{Path: image.Path, SHA256: image.Manifest.Image.SHA256, Size: image.Manifest.Image.Size},
		Store: d.cfg.Store.Kind,
		Limits: api.Limits{
			DefaultTimeout: time.Duration(l.Timeout).Seconds(), MaxTimeout: time.Duration(l.MaxTimeout).Seconds(),
			TurnBudget: time.Duration(l.TurnBudget).Seconds(), MaxRunning: l.Running,
			Sandboxes: l.Sandboxes, AccountSandboxes: l.AccountSandboxes, AccountRunning: l.AccountRunning, Waiting: l.Waiting, DiskReserve: int64(l.DiskReserve), MemoryReserve: int64(l.MemoryReserve),
			IdleLife: time.Duration(l.IdleLife).Seconds(), MemoryBytes: int64(l.Memory), CPUs: l.CPUs, PIDs: l.PIDs,
			OutputBytes: int64(l.Output), Enforced: enforced, Unenforced: reason,
			DiskBytes: int64(l.Disk), OverlayBytes: int64(l.Overlay), DiskEnforced: bounded, DiskUnenforced: unbounded,
		},
	}
}

// Socket is the path that the daemon listens on.
func (d *Daemon) Socket() string { return d.ln.Addr().String() }

// Run serves until ctx ends.
func (d *Daemon) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		shut, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if err := d.server.Shutdown(shut); err != nil {
			_ = d.server.Close() // streams that follow for ever are cut; clients reconnect
		}
	})
	defer stop()
	if _, err := sdnotify.SdNotify(false, sdnotify.SdNotifyReady); err != nil {
		d.log.Warn("tell systemd that the daemon is ready", "error", err)
	}
	d.log.Info("listening", "socket", d.Socket(), "version", version.String())
	if err := d.server.Serve(d.ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// Close takes the daemon down. Sandboxes go on, but for an ephemeral daemon's.
func (d *Daemon) Close() error {
	var errs []error
	if d.server != nil {
		errs = append(errs, d.server.Close())
	}
	if d.ln != nil {
		if err := d.ln.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for len(d.undo) > 0 {
		last := len(d.undo) - 1
		errs = append(errs, d.undo[last]())
		d.undo = d.undo[:last]
	}
	return errors.Join(errs...)
}

// listen returns the socket that systemd passed, or makes its own.
func listen(cfg config.Config) (net.Listener, error) {
	passed, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("take over systemd's socket: %w", err)
	}
	if len(passed) > 0 {
		return passed[0], nil
	}
	return listenUnix(cfg.Paths.Socket, cfg.Access.Group)
}
