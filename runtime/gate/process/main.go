package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	gvisorlog "gvisor.dev/gvisor/pkg/log"

	"mediasandbox/runtime/gate/internal/handover"
)

// Main is the life of a gate process, from the descriptors it was started with
// to the end of the TAP. It returns only when the gate can't go on: a gate
// ends when its sandbox's network is removed, by being killed.
//
// The order matters. What needs rights is opened first, then the rights go,
// and only then is the first byte from the guest read.
func Main(log io.Writer) error {
	l := slog.New(slog.NewJSONHandler(log, nil))
	// The stack's log is about packets: a guest could fill a disk with it.
	gvisorlog.SetTarget(gvisorlog.GoogleEmitter{Writer: &gvisorlog.Writer{Next: io.Discard}})
	ready := os.NewFile(handover.FDReady, "ready")
	if ready == nil {
		return errors.New("start the gate: it is started by sandboxd, not by hand")
	}
	p, err := prepare(l)
	if err != nil {
		// The daemon reads the reason from the pipe. If it is gone, so is the
		// sandbox that this gate was for.
		return errors.Join(err, tell(ready, err.Error()))
	}
	defer p.gate.Close()
	if err := tell(ready, handover.Ready); err != nil {
		return err
	}
	return p.serve()
}

// tell writes one line to the daemon and closes the pipe.
func tell(ready *os.File, line string) error {
	_, err := fmt.Fprintln(ready, line)
	if err := errors.Join(err, ready.Close()); err != nil {
		return fmt.Errorf("tell the daemon: %w", err)
	}
	return nil
}

// program is a gate with what it watches.
type program struct {
	log    *slog.Logger
	gate   *gate
	hosts  *hostWatch
	files  *accountFiles
	reload chan os.Signal
	tell   chan os.Signal
}

func prepare(l *slog.Logger) (*program, error) {
	// It was run by descriptor, which is what it would be called in a listing.
	if err := os.WriteFile("/proc/self/comm", []byte("sandbox-gate"), 0); err != nil {
		return nil, fmt.Errorf("name the process: %w", err)
	}
	if err := closeInherited(handover.FDsInUse); err != nil {
		return nil, err
	}
	if err := checkUnprivileged(); err != nil {
		return nil, err
	}
	p := &program{log: l, reload: make(chan os.Signal, 1), tell: make(chan os.Signal, 1)}
	// Before the lock says who the gate is: an unexpected signal would end it.
	signal.Notify(p.reload, syscall.SIGHUP)
	signal.Notify(p.tell, syscall.SIGUSR1)
	// A log that has reached its limit is an error of that write, and no end.
	signal.Ignore(syscall.SIGXFSZ)
	if err := takeLock(handover.FDLock); err != nil {
		return nil, err
	}
	cfg, err := readConfig()
	if err != nil {
		return nil, err
	}
	tap, flows, counts, err := openFiles()
	if err != nil {
		return nil, err
	}
	account, last, err := openAccount(counts)
	if err != nil {
		return nil, err
	}
	refusals, err := newRefusalLog(flows)
	if err != nil {
		return nil, err
	}
	hosts, err := newHostWatch()
	if err != nil {
		return nil, err
	}
	p.hosts, p.files = hosts, account
	if err := harden(l, cfg.Limits); err != nil {
		return nil, err
	}
	set, err := hosts.read()
	if err != nil {
		return nil, err
	}
	if p.gate, err = newGate(l, tap, refusals, cfg, set); err != nil {
		return nil, err
	}
	p.gate.resume(last)
	return p, nil
}

// serve runs until a part fails.
func (p *program) serve() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	failed := make(chan error, 2)
	go func() { failed <- p.hosts.run(ctx, p.gate.setHosts) }()
	go func() { failed <- p.gate.run() }()
	tick := time.NewTicker(accountEvery)
	defer tick.Stop()
	p.giveAccount()
	moved := int64(0)
	for {
		select {
		case err := <-failed:
			if err == nil {
				err = errors.New("the TAP was closed")
			}
			return err
		case <-p.reload:
			p.configure()
			p.giveAccount()
		case <-p.tell:
			p.giveAccount()
		case <-tick.C:
			if err := stillAttached(handover.FDLock); err != nil {
				return err
			}
			if now := p.gate.meter.sent.Load() + p.gate.meter.received.Load(); now != moved {
				moved = now
				p.giveAccount()
			}
		}
	}
}

// configure reads the configuration again.
func (p *program) configure() {
	cfg, err := readConfig()
	if err != nil {
		// The policy in force stays in force.
		p.log.Error("the new policy can't be read", "err", err)
		return
	}
	p.gate.configure(cfg)
	p.log.Info("policy reloaded", "generation", cfg.Generation, "mode", cfg.Policy.Mode, "resolvers", len(cfg.Resolvers))
}

func (p *program) giveAccount() {
	if err := p.files.write(p.gate.account()); err != nil {
		p.log.Error("the account can't be written", "err", err)
	}
}

// openFiles takes over the TAP and the two halves of the refusal log and of
// the account.
func openFiles() (tap *os.File, flows, counts [2]*os.File, err error) {
	if err := unix.SetNonblock(handover.FDTap, true); err != nil {
		return nil, flows, counts, fmt.Errorf("take over the TAP: %w", err)
	}
	tap = os.NewFile(handover.FDTap, "tap")
	for i, fd := range []uintptr{handover.FDFlow0, handover.FDFlow1} {
		flows[i] = os.NewFile(fd, handover.FlowNames[i])
	}
	for i, fd := range []uintptr{handover.FDCount0, handover.FDCount1} {
		counts[i] = os.NewFile(fd, handover.CountNames[i])
	}
	return tap, flows, counts, nil
}

// maxConfig bounds the configuration file, in bytes.
const maxConfig = 1 << 20

// readConfig reads the configuration through the directory's descriptor: the
// path to it is closed to this process.
func readConfig() (cfg handover.Config, err error) {
	fd, err := unix.Openat(handover.FDDir, handover.ConfigName, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return cfg, fmt.Errorf("read the policy: %w", err)
	}
	b := make([]byte, 0, 4096)
	for len(b) < maxConfig {
		b = append(b, make([]byte, 4096)...)
		n, rerr := unix.Read(fd, b[len(b)-4096:])
		b = b[:len(b)-4096+max(n, 0)]
		if rerr != nil || n == 0 {
			err = rerr
			break
		}
	}
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return cfg, fmt.Errorf("read the policy: %w", err)
	}
	if err := json.Unmarshal(b, &cfg); err != nil {
		return cfg, fmt.Errorf("read the policy: %w", err)
	}
	return cfg, nil
}

// takeLock says to the daemon, now and after its restart, which process is the
// gate: the kernel names the holder of a record lock.
func takeLock(fd int) error {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &lock); err != nil {
		return fmt.Errorf("take the gate's lock: %w", err)
	}
	return stillAttached(fd)
}

// stillAttached looks whether the lock's file has a name. One that has none
// means that the network was removed, while this process started or by hand:
// no daemon can find the gate any more, or end it.
func stillAttached(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at the gate's lock: %w", err)
	}
	if st.Nlink == 0 {
		return errors.New("the network was removed: the gate's lock has no name")
	}
	return nil
}
