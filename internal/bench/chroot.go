package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// chroot is the same image on the bare host: no sandbox around it.
type chroot struct {
	dir string
	// files is what is /workspace inside.
	files string
	env   []string
	// how the image got there, for the report.
	how string
}

// newChroot mounts the image where the host knows EROFS, and unpacks it
// elsewhere.
func (b *bench) newChroot() (*chroot, error) {
	c := &chroot{dir: filepath.Join(b.dir, "root"), files: filepath.Join(b.dir, "workspace")}
	for _, k := range slices.Sorted(maps.Keys(b.image.Manifest.Environment)) {
		c.env = append(c.env, k+"="+b.image.Manifest.Environment[k])
	}
	tmp := filepath.Join(b.dir, "tmp")
	for _, dir := range []string{c.dir, c.files, tmp} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make a chroot: %w", err)
		}
	}
	out, err := exec.CommandContext(b.ctx, "mount", "-t", "erofs", "-o", "loop,ro", b.image.Path, c.dir).CombinedOutput()
	if err == nil {
		c.how = "mounted read-only"
		b.defers(func() error { return unmount(c.dir) })
	} else {
		c.how = "unpacked, since this host mounts no EROFS (" + string(bytes.TrimSpace(out)) + ")"
		out, err := exec.CommandContext(b.ctx, "fsck.erofs", "--extract="+c.dir, "--overwrite", b.image.Path).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("unpack the image: %w: %s", err, bytes.TrimSpace(out))
		}
	}
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"proc", "proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"/dev", "dev", "", unix.MS_BIND},
		{c.files, "workspace", "", unix.MS_BIND},
		{tmp, "tmp", "", unix.MS_BIND},
	} {
		target := filepath.Join(c.dir, m.target)
		if err := unix.Mount(m.source, target, m.kind, m.flags, ""); err != nil {
			return nil, fmt.Errorf("mount %s: %w", target, err)
		}
		b.defers(func() error { return unmount(target) })
	}
	return c, nil
}

func unmount(path string) error {
	var err error
	for range 100 {
		if err = unix.Unmount(path, unix.UMOUNT_NOFOLLOW); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		// Out of the tree at least; it goes with its last user.
		return errors.Join(fmt.Errorf("unmount %s: %w", path, err), unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
	}
	return nil
}

// done is what became of a program: what it printed, and how long it took from
// the fork to the end.
type done struct {
	stdout, stderr string
	took           time.Duration
}

// run runs a program of the image in /workspace.
func (c *chroot) run(ctx context.Context, argv ...string) (done, error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join("/usr/bin", argv[0]), argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = c.env, "/workspace", &out, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.dir}
	began := time.Now()
	err := cmd.Run()
	d := done{took: time.Since(began), stdout: out.String(), stderr: said.String()}
	if err != nil {
		return d, fmt.Errorf("run %s in the chroot: %w: %s", argv[0], err, bytes.TrimSpace(said.Bytes()))
	}
	return d, nil
}

// write puts a file into /workspace.
func (c *chroot) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(c.files, name), data, 0o644)
}
