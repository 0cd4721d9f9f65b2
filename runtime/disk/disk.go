// Package disk gives each sandbox a disk of its own on the host: a directory
// that can't grow beyond its size, so that a guest that fills it fills nothing
// else. It is an ext4 file system in a sparse file behind a loop device; the
// file's blocks come back when it is removed.
//
// Where the host has no loop devices (in a container, say), disks are plain
// directories without a bound, and Bounded says why.
//
// On disk, below Config.Dir:
//
//	ID/image     the sparse file
//	ID/data      where it is mounted, or a plain directory
//	ID/overlay   for the writable layer, which runsc bounds itself
//
// Start reading at Manager.Make.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cleanup"

	"mediasandbox/runtime/sandbox"
)

// Config says where disks are kept and how large they may grow.
type Config struct {
	Dir string
	// Size of a disk in bytes.
	Size int64
	Log  *slog.Logger
}

// Manager makes and removes disks.
type Manager struct {
	cfg Config
	// unbounded says why disks have no bound; empty when they have.
	unbounded string
}

var _ sandbox.Disks = (*Manager)(nil)

// probeSize is the size of the disk that New tries, in bytes.
const probeSize = 8 << 20

// New tries whether disks can be bounded here.
func New(ctx context.Context, cfg Config) (*Manager, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the disks' directory: %w", err)
	}
	m := &Manager{cfg: cfg}
	probe := &Manager{cfg: Config{Dir: cfg.Dir, Size: probeSize, Log: cfg.Log}}
	const id = ".probe"
	if err := probe.Remove(ctx, id); err != nil { // of a daemon that was killed
		return nil, fmt.Errorf("try a disk: %w", err)
	}
	if _, err := probe.Make(ctx, id); ctx.Err() != nil {
		return nil, fmt.Errorf("try a disk: %w", ctx.Err())
	} else if err != nil {
		m.unbounded = err.Error()
		cfg.Log.Warn("sandboxes' disks have no size limit", "reason", m.unbounded)
		return m, nil
	}
	if err := probe.Remove(ctx, id); err != nil {
		return nil, fmt.Errorf("try a disk: %w", err)
	}
	return m, nil
}

// Bounded tells whether disks have a bound, and if not, why.
func (m *Manager) Bounded() (bool, string) { return m.unbounded == "", m.unbounded }

func (m *Manager) dir(id string) string { return filepath.Join(m.cfg.Dir, id) }

func (m *Manager) disk(id string) sandbox.Disk {
	return sandbox.Disk{Data: filepath.Join(m.dir(id), "data"), Overlay: filepath.Join(m.dir(id), "overlay")}
}

// Make implements sandbox.Disks.
func (m *Manager) Make(ctx context.Context, id string) (sandbox.Disk, error) {
	d := m.disk(id)
	if err := os.Mkdir(m.dir(id), 0o700); err != nil {
		return d, fmt.Errorf("make a disk: %w", err)
	}
	undo := cleanup.Make(func() {
		if err := m.Remove(context.WithoutCancel(ctx), id); err != nil {
			m.cfg.Log.Error("remove a half-made disk", "disk", id, "error", err)
		}
	})
	defer undo.Clean()
	for _, dir := range []string{d.Data, d.Overlay} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return d, fmt.Errorf("make a disk: %w", err)
		}
	}
	if m.unbounded == "" {
		if err := m.format(ctx, id); err != nil {
			return d, fmt.Errorf("make a disk: %w", err)
		}
		if err := m.mount(id); err != nil {
			return d, fmt.Errorf("make a disk: %w", err)
		}
	}
	undo.Release()
	return d, nil
}

// Open implements sandbox.Disks.
func (m *Manager) Open(id string) (sandbox.Disk, error) {
	d := m.disk(id)
	if _, err := os.Stat(filepath.Join(m.dir(id), "image")); errors.Is(err, fs.ErrNotExist) {
		_, err := os.Stat(d.Data)
		return d, err
	}
	mounted, err := isMount(d.Data)
	if err != nil || mounted {
		return d, err
	}
	return d, m.mount(id)
}

// isMount tells whether another file system begins at dir.
func isMount(dir string) (bool, error) {
	var at, above unix.Stat_t
	if err := errors.Join(unix.Stat(dir, &at), unix.Stat(filepath.Dir(dir), &above)); err != nil {
		return false, fmt.Errorf("look at a disk: %w", err)
	}
	return at.Dev != above.Dev, nil
}

// format makes the file system in a sparse file. It needs no journal: after a
// crash of the host no sandbox is left to use it.
func (m *Manager) format(ctx context.Context, id string) error {
	image := filepath.Join(m.dir(id), "image")
	f, err := os.OpenFile(image, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(m.cfg.Size), f.Close()); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", "-m", "0",
		"-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1,nodiscard", image)
	// Also where the administrator's directories are not on the PATH.
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if cmd.Err != nil {
		cmd.Path, cmd.Err = "/usr/sbin/mkfs.ext4", nil
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("mkfs.ext4 (package e2fsprogs): %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// mount mounts the image. What a guest writes is never run nor trusted on the
// host.
func (m *Manager) mount(id string) error {
	device, err := attach(filepath.Join(m.dir(id), "image"))
	if err != nil {
		return err
	}
	// The mount keeps the device; the last user of it frees it.
	defer device.Close()
	data := m.disk(id).Data
	err = unix.Mount(device.Name(), data, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_NOATIME, "errors=remount-ro")
	if err != nil {
		return fmt.Errorf("mount %s: %w", data, err)
	}
	return os.Chmod(data, 0o755)
}

const (
	// removeRetry is the pause between two attempts to unmount.
	removeRetry = 5 * time.Millisecond
	// busyPatience is how long a user of the disk is waited for. After that it
	// is taken out of the tree, and goes when the user does.
	busyPatience = 2 * time.Second
)

// Remove implements sandbox.Disks.
func (m *Manager) Remove(ctx context.Context, id string) error {
	if id == "" || filepath.Base(id) != id {
		return fmt.Errorf("remove a disk: %q is no id", id)
	}
	data := m.disk(id).Data
	began, flags := time.Now(), unix.UMOUNT_NOFOLLOW
	for {
		err := unix.Unmount(data, flags)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // not mounted
			break
		}
		if err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("unmount %s: %w", data, err)
		}
		if err == nil {
			continue // until nothing is mounted there
		}
		if ctx.Err() != nil || time.Since(began) > busyPatience {
			m.cfg.Log.Warn("a disk is in use while it is removed", "disk", id)
			flags |= unix.MNT_DETACH
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(removeRetry):
		}
	}
	if err := os.RemoveAll(m.dir(id)); err != nil {
		return fmt.Errorf("remove a disk: %w", err)
	}
	return nil
}

// List implements sandbox.Disks.
func (m *Manager) List() ([]string, error) {
	entries, err := os.ReadDir(m.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("list disks: %w", err)
	}
	ids := make([]string, 0, len(entries))
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids, nil
}
