package gate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Delays between attempts to start a gate again. One that lived for
// steadyAfter is started at once.
const (
	firstDelay  = 50 * time.Millisecond
	maxDelay    = 5 * time.Second
	steadyAfter = time.Minute
)

// ended waits until the process has ended or ctx has.
func (g *gateProcess) ended(ctx context.Context) error {
	raw, err := g.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch the gate: %w", err)
	}
	stop := context.AfterFunc(ctx, func() {
		// Wakes the read below.
		_ = g.file.SetReadDeadline(time.Now())
	})
	defer stop()
	var perr error
	err = raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		var n int
		for {
			if n, perr = unix.Poll(p, 0); perr != unix.EINTR {
				return perr != nil || n > 0
			}
		}
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := errors.Join(err, perr); err != nil {
		return fmt.Errorf("watch the gate: %w", err)
	}
	return nil
}

// reap takes the exit status, if the gate is a child of this daemon and not of
// an earlier one, and says how it ended. It goes by the pidfd, because the pid
// of another's child may be in use again by the time it is asked for.
func (g *gateProcess) reap() string {
	raw, err := g.file.SyscallConn()
	if err != nil {
		return err.Error()
	}
	var info unix.Siginfo
	if cerr := raw.Control(func(fd uintptr) {
		for {
			if err = unix.Waitid(unix.P_PIDFD, int(fd), &info, unix.WEXITED|unix.WNOHANG, nil); err != unix.EINTR {
				return
			}
		}
	}); cerr != nil {
		return cerr.Error()
	}
	switch {
	case errors.Is(err, unix.ECHILD):
		return "it ended; an earlier daemon had started it"
	case err != nil:
		return err.Error()
	}
	// siginfo_t of SIGCHLD: after three words and the padding come the pid,
	// the uid and the status.
	status := (*[8]int32)(unsafe.Pointer(&info))[6]
	const exited = 1 // CLD_EXITED
	if info.Code == exited {
		return fmt.Sprintf("it exited with %d", status)
	}
	return "it was killed by " + unix.SignalName(unix.Signal(status))
}

// kill ends the process and waits until it is gone. It closes the pidfd.
func (g *gateProcess) kill() error {
	defer func() { _ = g.file.Close() }()
	raw, err := g.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("kill the gate: %w", err)
	}
	var serr error
	if err := raw.Control(func(fd uintptr) {
		serr = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0)
	}); err != nil {
		return fmt.Errorf("kill the gate: %w", err)
	}
	if serr != nil && !errors.Is(serr, unix.ESRCH) {
		return fmt.Errorf("kill the gate: %w", serr)
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	if err := g.ended(ctx); err != nil {
		return fmt.Errorf("kill the gate: wait for its end: %w", err)
	}
	g.reap()
	return nil
}

// watch keeps a gate running for n, whose lock is held.
func (m *Manager) watch(n *network, g *gateProcess) {
	ctx, cancel := context.WithCancel(m.ctx)
	n.stop, n.stopped = cancel, make(chan struct{})
	stopped := n.stopped
	m.work.Go(func() {
		defer close(stopped)
		m.keep(ctx, n.id, g)
	})
}

// unwatch ends the watch, and waits for it. The gate lives on.
func (n *network) unwatch() {
	if n.stop == nil {
		return
	}
	n.stop()
	<-n.stopped
	n.stop, n.stopped = nil, nil
}

// keep starts the gate of id again whenever it ends, until ctx does.
func (m *Manager) keep(ctx context.Context, id string, g *gateProcess) {
	log := m.log.With(keySandbox, id)
	delay := time.Duration(0)
	for {
		since := time.Now()
		reason := "it was gone when the daemon started"
		if g != nil {
			err := g.ended(ctx)
			if err == nil {
				reason = g.reap()
			}
			// It carries no data, only the handle.
			_ = g.file.Close()
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				reason = err.Error()
			}
			log.Warn("a gate ended under its sandbox", "reason", reason, keyPID, g.pid)
		}
		if time.Since(since) > steadyAfter {
			delay = 0
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(delay):
			}
			delay = min(max(2*delay, firstDelay), maxDelay)
			var err error
			// Begun is finished: a daemon that stops now must not take with it
			// a gate that was about to work.
			if g, err = m.restart(context.WithoutCancel(ctx), id); err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			log.Error("a gate can't be started again; its sandbox has no network", keyErr, err)
		}
		log.Info("a gate was started again", keyPID, g.pid)
		if m.cfg.OnRestart != nil {
			m.cfg.OnRestart(id, reason)
		}
	}
}

// restart starts a gate on the TAP that the last one left. Nothing else of the
// link is touched: the guest may have taken it over.
func (m *Manager) restart(ctx context.Context, id string) (g *gateProcess, err error) {
	var tap *os.File
	if err := inNamespace(m.netnsPath(id), func() error {
		var err error
		tap, err = openTAP()
		return err
	}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tap.Close()) }()
	return m.startGate(ctx, id, tap)
}

// adopt takes over what an earlier Manager left. What is not whole is left
// alone for Detach.
func (m *Manager) adopt() error {
	ids, err := m.Attached(m.ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := m.adoptOne(id); err != nil {
			return fmt.Errorf("take over the network of %s: %w", id, err)
		}
	}
	return nil
}

func (m *Manager) adoptOne(id string) error {
	if _, err := os.Stat(m.attachedPath(id)); err != nil {
		m.log.Info("a network is left half made", keySandbox, id)
		return nil
	}
	pinned, err := isNamespace(m.netnsPath(id))
	if err != nil || !pinned {
		m.log.Warn("a network has lost its namespace", keySandbox, id, keyErr, err)
		return nil
	}
	cfg, err := m.loadConfig(id)
	if err != nil {
		return err
	}
	if cfg.Bare {
		return nil
	}
	g, err := m.findGate(id)
	if err != nil {
		return err
	}
	n, err := m.get(id)
	if err != nil {
		return err
	}
	defer n.mu.Unlock()
	m.watch(n, g)
	return nil
}
