package process

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"mediasandbox/runtime/gate/internal/handover"
)

// logBytes bounds every file the gate writes, its own log above all
// (RLIMIT_FSIZE). The refusal log bounds itself far below.
const logBytes = 4 << 20

// openFilesLimit is RLIMIT_NOFILE: a descriptor for each flow, and some.
const openFilesLimit = 8192

// closeInherited closes the descriptors from first up that came from the
// daemon by mistake. Those that this process opened itself are marked
// close-on-exec, and what survived the exec was not.
func closeInherited(first int) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < first {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if errors.Is(err, unix.EBADF) || flags&unix.FD_CLOEXEC != 0 {
			continue // the directory that was just read, or one of ours
		}
		if err := unix.Close(fd); err != nil {
			return fmt.Errorf("close inherited descriptor %d: %w", fd, err)
		}
	}
	return nil
}

// checkUnprivileged refuses to be a gate with rights: the daemon is to start
// it without any.
func checkUnprivileged() error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("check the gate's rights: %w", err)
	}
	if os.Geteuid() == 0 || os.Getuid() == 0 {
		return errors.New("check the gate's rights: it must not run as root")
	}
	checked := 0
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb":
			checked++
			if strings.Trim(value, "0") != "" {
				return fmt.Errorf("check the gate's rights: %s is %s and must be empty", key, value)
			}
		case "NoNewPrivs":
			checked++
			if value != "1" {
				return errors.New("check the gate's rights: no_new_privs is not set")
			}
		}
	}
	if checked != 6 {
		return errors.New("check the gate's rights: the kernel does not say")
	}
	return nil
}

// harden gives up what is left to give up, for good.
func harden(log *slog.Logger, limits handover.Limits) error {
	// Others of this uid, another gate among them, must not trace it.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid tracing: %w", err)
	}
	debug.SetMemoryLimit(int64(limits.DataBytes / 2))
	for _, l := range []struct {
		name  string
		which int
		to    uint64
	}{
		{"data", unix.RLIMIT_DATA, limits.DataBytes},
		{"file size", unix.RLIMIT_FSIZE, logBytes},
		{"core size", unix.RLIMIT_CORE, 0},
		{"open files", unix.RLIMIT_NOFILE, openFilesLimit},
	} {
		if err := lowerLimit(l.which, l.to); err != nil {
			return fmt.Errorf("limit the %s: %w", l.name, err)
		}
	}
	if err := landlockSelf(log); err != nil {
		return err
	}
	return installFilter()
}

// lowerLimit sets both limits to value, or leaves those that are lower.
func lowerLimit(which int, value uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(which, &now); err != nil {
		return err
	}
	value = min(value, now.Max)
	return unix.Setrlimit(which, &unix.Rlimit{Cur: value, Max: value})
}

// landlockSelf closes the file system but for the gate's directory, forbids
// TCP listeners, and keeps signals and abstract sockets inside. Kernels
// without Landlock go without, and the log says so: uid, capabilities and the
// system call filter hold on every kernel.
func landlockSelf(log *slog.Logger) error {
	version, err := ll.LandlockGetABIVersion()
	if err != nil || version < 1 {
		log.Warn("the kernel has no Landlock; the gate goes without it", "err", err)
		return nil
	}
	all := landlock.V8
	cfg := landlock.Config{
		HandledAccessFS:  all.HandledAccessFS,
		HandledAccessNet: ll.AccessNetBindTCP,
		Scoped:           all.Scoped,
	}
	dir := fmt.Sprintf("/proc/self/fd/%d", handover.FDDir)
	if err := cfg.BestEffort().Restrict(landlock.RODirs(dir)); err != nil {
		return fmt.Errorf("apply Landlock: %w", err)
	}
	log.Info("Landlock applied", "abi", version)
	return nil
}
