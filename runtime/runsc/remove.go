package runsc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mediasandbox/runtime/hostproc"
	"mediasandbox/runtime/sandbox"
)

// Remove implements sandbox.Runtime. Each step is tried whatever became of the
// one before, so that one wedged part leaves only itself.
func (r *Runtime) Remove(ctx context.Context, id string) error {
	if !validID.MatchString(id) {
		return fmt.Errorf("remove sandbox: id %q is not 1 to 32 of [a-z0-9-]", id)
	}
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	errs := []error{
		r.endProcesses(ctx, id),
		r.cfg.Network.Detach(ctx, id),
	}
	if r.cgroups.usable {
		errs = append(errs, r.removeCgroups(ctx, id))
	}
	if err := errors.Join(errs...); err != nil {
		// The directory stays, so that List still names what is left.
		return fmt.Errorf("remove sandbox %s: %w", id, err)
	}
	if err := os.RemoveAll(r.dir(id)); err != nil {
		return fmt.Errorf("remove sandbox %s: %w", id, err)
	}
	return r.removeShared()
}

// removeShared removes, with the last sandbox, the empty network namespace
// that runsc pins for all its gofers. A sandbox that starts this moment makes
// it anew.
func (r *Runtime) removeShared() error {
	entries, err := os.ReadDir(filepath.Join(r.cfg.RunDir, "sandboxes"))
	if err != nil || len(entries) > 0 {
		return err
	}
	pin := filepath.Join(r.cfg.RunDir, "state", "null-netns")
	// Sandboxes that booted at the same time have each pinned one, on top of
	// the other.
	for err = nil; err == nil; {
		err = unix.Unmount(pin, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unpin the gofers' network namespace: %w", err)
	}
	if err := os.Remove(pin); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("unpin the gofers' network namespace: %w", err)
	}
	return nil
}

// endProcesses ends sentry and gofer and lets runsc forget the sandbox.
func (r *Runtime) endProcesses(ctx context.Context, id string) error {
	ref, err := r.process(id)
	if err != nil && !errors.Is(err, sandbox.ErrGone) {
		return err
	}
	// Killing the sentry first makes runsc's own delete fast and certain.
	if err == nil {
		if err := ref.Kill(ctx); err != nil {
			return err
		}
	}
	if err := r.endStragglers(ctx, id); err != nil {
		return err
	}
	args := []string{"--root", filepath.Join(r.cfg.RunDir, "state")}
	if !r.cgroups.usable {
		args = append(args, "--ignore-cgroups")
	}
	if err := r.runsc(ctx, id, append(args, "delete", "--force", id)); err != nil {
		return err
	}
	return r.removeState(id)
}

// removeState removes what runsc's own delete leaves when it finds no whole
// state, such as after a kill in the middle of a boot.
func (r *Runtime) removeState(id string) error {
	for _, name := range []string{id + "_sandbox:" + id + ".lock", id + "_sandbox:" + id + ".state", "runsc-" + id + ".sock"} {
		if err := os.Remove(filepath.Join(r.cfg.RunDir, "state", name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove runsc's state: %w", err)
		}
	}
	return nil
}

// endStragglers ends the processes of a sandbox whose boot was cut off with the
// daemon: runsc goes on booting it without us, and what it starts has no pid
// recorded. They carry the sandbox's directory on their command line. A process
// may be starting another while it is ended, so it looks until it finds none.
func (r *Runtime) endStragglers(ctx context.Context, id string) error {
	for ctx.Err() == nil {
		found, err := r.endStarted(ctx, id)
		if err != nil || !found {
			return err
		}
	}
	return fmt.Errorf("end the processes of sandbox %s: %w", id, ctx.Err())
}

// endStarted ends those that there are now.
func (r *Runtime) endStarted(ctx context.Context, id string) (found bool, err error) {
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return false, fmt.Errorf("list processes: %w", err)
	}
	for _, e := range entries {
		args, err := os.ReadFile(e)
		if err != nil || !hasArg(args, r.dir(id)) {
			continue // ended meanwhile, or another's
		}
		var pid int
		if _, err := fmt.Sscanf(e, "/proc/%d/", &pid); err != nil {
			continue
		}
		ref, err := hostproc.Of(pid)
		if errors.Is(err, hostproc.ErrGone) {
			continue
		}
		if err != nil {
			return found, err
		}
		found = true
		if err := ref.Kill(ctx); err != nil {
			return found, err
		}
	}
	return found, nil
}

// hasArg tells whether one of a process's arguments names the directory, alone
// or as a bundle.
func hasArg(cmdline []byte, dir string) bool {
	for a := range bytes.SplitSeq(cmdline, []byte{0}) {
		if string(a) == dir || string(a) == "--bundle="+dir {
			return true
		}
	}
	return false
}

// removeCgroups waits for the kernel to let go of the ended processes.
func (r *Runtime) removeCgroups(ctx context.Context, id string) error {
	for {
		err := r.cgroups.remove(id)
		if err == nil || !errors.Is(err, syscall.EBUSY) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(2 * time.Millisecond):
		}
	}
}
