package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// bare runs the same image with the same runsc, without the product: what
// somebody would write by hand. Its sandboxes have no network, no cgroup of
// the host's and one shared directory, so it has less to do than the product.
type bare struct {
	b      *bench
	binary string
	dir    string
	flags  []string
	spec   specs.Spec
	next   atomic.Int64
	// standing is a sandbox for `runsc exec` alone.
	standing string

	// mu guards the maps.
	mu    sync.Mutex
	alive map[string]bool
	// wired has the sandboxes with a network.
	wired map[string]bool
}

// newBare learns runsc's flags and the OCI spec from the first sandbox of the
// main daemon's pool, so that both run alike.
func (b *bench) newBare() (*bare, error) {
	if err := b.main.settled(); err != nil {
		return nil, err
	}
	ids, err := b.main.sandboxes()
	if err != nil || len(ids) == 0 {
		return nil, errors.Join(errors.New("the pool has no sandbox to learn from"), err)
	}
	table, err := processes()
	if err != nil {
		return nil, err
	}
	p, err := b.main.parts(table, ids[0])
	if err != nil {
		return nil, err
	}
	r := &bare{b: b, binary: filepath.Join(b.bin, "runsc"), dir: filepath.Join(b.dir, "bare"), alive: make(map[string]bool), wired: make(map[string]bool)}
	if r.flags, err = bareFlags(table[p.sentry].args); err != nil {
		return nil, err
	}
	body, err := os.ReadFile(filepath.Join(b.main.cfg.Paths.RunDir, "runsc", "sandboxes", ids[0], "config.json"))
	if err == nil {
		err = json.Unmarshal(body, &r.spec)
	}
	if err != nil {
		return nil, fmt.Errorf("read a sandbox's bundle: %w", err)
	}
	bareSpec(&r.spec)
	if err := os.MkdirAll(filepath.Join(r.dir, "state"), 0o700); err != nil {
		return nil, fmt.Errorf("make a directory for bare runsc: %w", err)
	}
	b.defers(r.close)
	r.standing, err = r.run(b.ctx)
	return r, err
}

// bareFlags takes the flags that a sentry was started with and that do not
// belong to one sandbox.
func bareFlags(sentry []string) ([]string, error) {
	boot := slices.Index(sentry, "boot")
	if boot < 0 {
		return nil, fmt.Errorf("the sentry's command line is not understood: %q", sentry)
	}
	own := []string{"--root", "--log", "--log-fd", "--debug-log-fd", "--panic-log-fd", "--network", "--overlay2", "--ignore-cgroups"}
	flags := []string{"--network=none", "--ignore-cgroups"}
	for _, f := range sentry[1:boot] {
		if name, _, _ := strings.Cut(f, "="); !slices.Contains(own, name) {
			flags = append(flags, f)
		}
	}
	return flags, nil
}

// bareSpec takes out of a sandbox's spec what is the product's. The one shared
// directory stays: a sandbox without any would be of no use, and this runsc
// panics on an overlay in a directory when it has no gofer for others.
func bareSpec(s *specs.Spec) {
	s.Process.Args = []string{"/usr/bin/sleep", "infinity"}
	s.Mounts = slices.DeleteFunc(s.Mounts, func(m specs.Mount) bool { return m.Type == "bind" })
	s.Linux.CgroupsPath, s.Linux.Resources = "", nil
	for i := range s.Linux.Namespaces {
		s.Linux.Namespaces[i].Path = ""
	}
}

func (r *bare) path(id string) string { return filepath.Join(r.dir, id) }

// command is one call of runsc for a sandbox.
func (r *bare) command(ctx context.Context, id string, args ...string) error {
	return r.call(ctx, id, nil, args...)
}

// output runs a program in a sandbox and returns what it printed.
func (r *bare) output(ctx context.Context, id string, argv ...string) (string, error) {
	var out bytes.Buffer
	err := r.call(ctx, id, &out, append([]string{"exec", id}, argv...)...)
	return out.String(), err
}

func (r *bare) call(ctx context.Context, id string, stdout io.Writer, args ...string) error {
	all := append([]string{"--root", filepath.Join(r.dir, "state"), "--overlay2=root:dir=" + filepath.Join(r.path(id), "overlay")}, r.flags...)
	r.mu.Lock()
	if r.wired[id] {
		all = append(all, "--network=sandbox") // the last one counts
	}
	r.mu.Unlock()
	cmd := exec.CommandContext(ctx, r.binary, append(all, args...)...)
	cmd.Stdout = stdout
	// A file, since the detached sandbox would hold a pipe open.
	said, err := os.OpenFile(filepath.Join(r.path(id), "said"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("runsc %s: %w", args[0], err)
	}
	defer said.Close()
	cmd.Stderr = said
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(said.Name())
		return fmt.Errorf("runsc %s: %w: %s", args[0], err, bytes.TrimSpace(text))
	}
	return nil
}

// run starts a sandbox from nothing.
func (r *bare) run(ctx context.Context) (id string, err error) { return r.runIn(ctx, "") }

// runIn starts a sandbox with the network of the namespace at netns, or with
// none.
func (r *bare) runIn(ctx context.Context, netns string) (id string, err error) {
	// Of one length: runsc takes the beginning of an id for the id.
	id = fmt.Sprintf("bare-%d-%06d", os.Getpid(), r.next.Add(1))
	spec := r.spec
	overlay, shared := filepath.Join(r.path(id), "overlay"), filepath.Join(r.path(id), "workspace")
	spec.Mounts = append(slices.Clone(r.spec.Mounts), specs.Mount{
		Destination: "/workspace", Type: "bind", Source: shared, Options: []string{"rbind", "rw", "nosuid", "nodev"},
	})
	spec.Annotations = maps.Clone(r.spec.Annotations)
	spec.Annotations["dev.gvisor.spec.rootfs.overlay"] = "dir=" + overlay
	if netns != "" {
		linux := *spec.Linux
		linux.Namespaces = slices.Clone(linux.Namespaces)
		for i := range linux.Namespaces {
			if linux.Namespaces[i].Type == specs.NetworkNamespace {
				linux.Namespaces[i].Path = netns
			}
		}
		spec.Linux = &linux
	}
	body, err := json.Marshal(spec)
	if err != nil {
		return id, fmt.Errorf("write a bundle: %w", err)
	}
	for _, dir := range []string{overlay, shared, filepath.Join(r.path(id), "root")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return id, fmt.Errorf("write a bundle: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(r.path(id), "config.json"), body, 0o600); err != nil {
		return id, fmt.Errorf("write a bundle: %w", err)
	}
	r.mu.Lock()
	r.alive[id], r.wired[id] = true, netns != ""
	r.mu.Unlock()
	return id, r.command(ctx, id, "run", "--bundle", r.path(id), "--detach", id)
}

// exec runs true in a sandbox.
func (r *bare) exec(ctx context.Context, id string) error {
	return r.command(ctx, id, "exec", id, "/usr/bin/true")
}

// first times a sandbox from nothing to the first result of true. The sandbox
// is removed outside the time.
func (r *bare) first(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	id, err := r.run(ctx)
	if err == nil {
		err = r.exec(ctx, id)
	}
	took := time.Since(began)
	return took, errors.Join(err, r.remove(id))
}

// remove takes a sandbox away, also when it never came up.
func (r *bare) remove(id string) error {
	err := r.command(context.Background(), id, "delete", "--force", id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	delete(r.alive, id)
	delete(r.wired, id)
	r.mu.Unlock()
	return os.RemoveAll(r.path(id))
}

// close removes what is left, and the namespace that runsc pins for gofers.
func (r *bare) close() error {
	var errs []error
	for id := range r.alive {
		errs = append(errs, r.remove(id))
	}
	pin := filepath.Join(r.dir, "state", "null-netns")
	for {
		// Sandboxes that booted at the same time have each pinned one.
		err := unix.Unmount(pin, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return errors.Join(errs...)
		}
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("unpin bare runsc's namespace: %w", err))...)
		}
	}
}
