package gate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cleanup"

	"mediasandbox/runtime/gate/internal/handover"
)

// How long a gate may take to be ready, and to be gone once killed.
const (
	startTimeout = 10 * time.Second
	killTimeout  = 10 * time.Second
)

// gateProcess is a gate that runs, or ran, held by its pidfd.
type gateProcess struct {
	pid  int
	file *os.File
}

// startGate starts the gate of id on tap and returns once it answers packets.
func (m *Manager) startGate(ctx context.Context, id string, tap *os.File) (*gateProcess, error) {
	fail := func(err error) (*gateProcess, error) { return nil, fmt.Errorf("start the gate: %w", err) }
	files, err := m.openGateFiles(id)
	defer func() {
		for _, f := range files {
			// Only the gate writes to them.
			_ = f.Close()
		}
	}()
	if err != nil {
		return fail(err)
	}
	ready, readyW, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	defer func() { _ = ready.Close() }()
	list := []uintptr{
		files["null"].Fd(), files["log"].Fd(), files["log"].Fd(),
		handover.FDTap: tap.Fd(), handover.FDLock: files["lock"].Fd(), handover.FDReady: readyW.Fd(),
		handover.FDFlow0: files["flow0"].Fd(), handover.FDFlow1: files["flow1"].Fd(), handover.FDDir: files["dir"].Fd(),
		handover.FDCount0: files["count0"].Fd(), handover.FDCount1: files["count1"].Fd(),
	}
	g, err := m.spawn(list)
	err = errors.Join(err, readyW.Close())
	runtime.KeepAlive(tap)
	if err != nil {
		return fail(err)
	}
	cu := cleanup.Make(func() { err = errors.Join(err, g.kill()) })
	if err = awaitReady(ctx, ready); err != nil {
		cu.Clean()
		return fail(fmt.Errorf("%w (its log: %s)", err, tail(files["log"].Name())))
	}
	cu.Release()
	return g, nil
}

// openGateFiles opens what a gate is handed. On error the files that are open
// are returned too.
func (m *Manager) openGateFiles(id string) (map[string]*os.File, error) {
	dir := m.gatePath(id)
	files := make(map[string]*os.File)
	for _, f := range []struct {
		name, path string
		flags      int
	}{
		{"null", os.DevNull, os.O_RDONLY},
		{"log", filepath.Join(dir, handover.LogName), os.O_WRONLY | os.O_APPEND | os.O_CREATE},
		{"lock", filepath.Join(dir, handover.LockName), os.O_RDWR | os.O_CREATE},
		{"flow0", filepath.Join(dir, handover.FlowNames[0]), os.O_WRONLY | os.O_APPEND | os.O_CREATE},
		{"flow1", filepath.Join(dir, handover.FlowNames[1]), os.O_WRONLY | os.O_APPEND | os.O_CREATE},
		{"count0", filepath.Join(dir, handover.CountNames[0]), os.O_RDWR | os.O_CREATE},
		{"count1", filepath.Join(dir, handover.CountNames[1]), os.O_RDWR | os.O_CREATE},
		{"dir", dir, unix.O_DIRECTORY | os.O_RDONLY},
	} {
		file, err := os.OpenFile(f.path, f.flags, 0o600)
		if err != nil {
			return files, err
		}
		files[f.name] = file
	}
	// A gate that was killed and started again often must not fill the disk.
	if st, err := files["log"].Stat(); err != nil {
		return files, err
	} else if st.Size() > maxLog {
		return files, files["log"].Truncate(0)
	}
	return files, nil
}

// maxLog is how long a gate's log may be, in bytes, when a gate is started.
const maxLog = 1 << 20

// spawn starts the program with the descriptors in list, in a session of its
// own and without a right: the thread that forks gives up the bounding set and
// the chance of new privileges, and the fork its identity.
func (m *Manager) spawn(list []uintptr) (g *gateProcess, err error) {
	binary, err := os.OpenFile(m.cfg.Binary, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = binary.Close() }()
	// Run by descriptor, because the path may lead through directories that
	// the gate's uid can't enter; by a high one, because the fork moves the
	// low ones around.
	const high = 200
	exe, err := unix.FcntlInt(binary.Fd(), unix.F_DUPFD_CLOEXEC, high)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", m.cfg.Binary, err)
	}
	defer func() { _ = unix.Close(exe) }()
	attr := &syscall.ProcAttr{
		Dir: "/",
		// GOMAXPROCS keeps the runtime from looking for the CPU limit in
		// files that are closed to it.
		Env:   []string{"GOMAXPROCS=" + strconv.Itoa(min(runtime.NumCPU(), 4)), "GOTRACEBACK=single"},
		Files: list,
		Sys: &syscall.SysProcAttr{
			Setsid:     true,
			Credential: &syscall.Credential{Uid: m.cfg.UID, Gid: m.cfg.GID, Groups: []uint32{}},
		},
	}
	pidfd := -1
	attr.Sys.PidFD = &pidfd
	if m.cfg.Cgroup != "" {
		cg, err := os.OpenFile(m.cfg.Cgroup, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return nil, fmt.Errorf("open the gates' cgroup: %w", err)
		}
		defer func() { _ = cg.Close() }()
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(cg.Fd())
	}
	pid := 0
	err = onThread(func() error {
		if m.cfg.Uplink != "" {
			if err := enter(m.cfg.Uplink); err != nil {
				return err
			}
		}
		if err := dropRights(); err != nil {
			return err
		}
		pid, err = syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", exe), []string{"sandbox-gate"}, attr)
		if err != nil {
			return fmt.Errorf("run %s as uid %d: %w", m.cfg.Binary, m.cfg.UID, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return newGateProcess(pid, pidfd)
}

// newGateProcess takes over a pidfd.
func newGateProcess(pid, pidfd int) (*gateProcess, error) {
	if pidfd < 0 {
		// A kernel without pidfds, which gVisor doesn't run on either.
		return nil, errors.Join(errors.New("the kernel gave no pidfd"), unix.Kill(pid, unix.SIGKILL))
	}
	if err := unix.SetNonblock(pidfd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("watch the gate: %w", err), unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0), unix.Close(pidfd))
	}
	return &gateProcess{pid: pid, file: os.NewFile(uintptr(pidfd), "pidfd")}, nil
}

// dropRights empties the calling thread's bounding and inheritable sets and
// forbids new privileges to it and its children.
func dropRights() error {
	for c := uintptr(0); c <= 63; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // past the last that the kernel knows
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("read the capabilities: %w", err)
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return fmt.Errorf("drop the inheritable capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	return nil
}

// awaitReady reads the gate's one line.
func awaitReady(ctx context.Context, ready *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		// Wakes the read below; a pipe always takes a deadline.
		_ = ready.SetReadDeadline(time.Now())
	})
	defer stop()
	line, err := bufio.NewReader(io.LimitReader(ready, 4096)).ReadString('\n')
	line = strings.TrimSpace(line)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case line == handover.Ready:
		return nil
	case line != "":
		return errors.New(line)
	}
	return fmt.Errorf("it ended before it was ready: %w", err)
}

// tail returns the end of a gate's log, for an error.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b[max(0, len(b)-2048):]))
}

// killGate ends the gate of id, if one runs, and waits until it is gone.
func (m *Manager) killGate(id string) error {
	g, err := m.findGate(id)
	if err != nil || g == nil {
		return err
	}
	return g.kill()
}

// findGate returns the gate of id, or nil when none runs. The kernel says
// which process it is: the one that holds the lock. A pid can't be mistaken,
// since the lock is looked at again once the pidfd is held.
func (m *Manager) findGate(id string) (*gateProcess, error) {
	lock, err := os.OpenFile(filepath.Join(m.gatePath(id), handover.LockName), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the gate: %w", err)
	}
	defer func() { _ = lock.Close() }()
	for {
		pid, err := holder(lock)
		if err != nil || pid == 0 {
			return nil, err
		}
		fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
		if errors.Is(err, unix.ESRCH) {
			continue // died in between, and its lock with it
		}
		if err != nil {
			return nil, fmt.Errorf("find the gate: %w", err)
		}
		if again, err := holder(lock); err != nil || again != pid {
			if err := errors.Join(err, unix.Close(fd)); err != nil {
				return nil, err
			}
			continue
		}
		return newGateProcess(pid, fd)
	}
}

// holder returns the process that holds the lock, or 0.
func holder(lock *os.File) (int, error) {
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(lock.Fd(), unix.F_GETLK, &l); err != nil {
		return 0, fmt.Errorf("find the gate: look at its lock: %w", err)
	}
	switch {
	case l.Type == unix.F_UNLCK:
		return 0, nil
	case l.Pid <= 0:
		return 0, errors.New("find the gate: it runs in a pid namespace that is not the daemon's")
	}
	return int(l.Pid), nil
}
