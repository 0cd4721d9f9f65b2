package runsc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	args := []string{"--root", filepath.Join(r.cfg.RunDir, "state")}
	if !r.cgroups.usable {
		args = append(args, "--ignore-cgroups")
	}
	if err := r.runsc(ctx, id, append(args, "delete", "--force", id)); err != nil {
		return err
	}
	return r.endStragglers(ctx, id)
}

// endStragglers ends processes of a sandbox whose boot was cut off before its
// pid was recorded. They carry the sandbox's bundle on their command line.
func (r *Runtime) endStragglers(ctx context.Context, id string) error {
	bundle := []byte("--bundle=" + r.dir(id))
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	for _, e := range entries {
		args, err := os.ReadFile(e)
		if err != nil {
			continue // ended meanwhile
		}
		if !hasArg(args, bundle) {
			continue
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
			return err
		}
		if err := ref.Kill(ctx); err != nil {
			return err
		}
	}
	return nil
}

func hasArg(cmdline, arg []byte) bool {
	for a := range bytes.SplitSeq(cmdline, []byte{0}) {
		if bytes.Equal(a, arg) {
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

// runsc runs the binary; its error carries what runsc said.
func (r *Runtime) runsc(ctx context.Context, id string, args []string) error {
	logFile := filepath.Join(r.dir(id), "runsc.log")
	cmd := exec.CommandContext(ctx, r.cfg.Binary, append([]string{"--log", logFile}, args...)...)
	// A sandbox must not end with the daemon, nor get its terminal's signals.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = 2 * time.Second
	// Pipes would be held open by the detached sandbox; only runsc itself may
	// write here.
	out, err := os.CreateTemp(r.cfg.RunDir, "runsc-output-")
	if err != nil {
		return fmt.Errorf("run runsc: %w", err)
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd.Stderr = out
	err = cmd.Run()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	said, readErr := os.ReadFile(out.Name())
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	return fmt.Errorf("runsc %s: %w: %s", verb(args), err, lastLine(said))
}

func verb(args []string) string {
	for i, a := range args {
		if a == "run" || a == "delete" {
			return args[i]
		}
	}
	return ""
}

// lastLine is the line in which runsc says why.
func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
