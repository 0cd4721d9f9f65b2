package gate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxResolvers bounds how many of the host's resolvers are asked.
const maxResolvers = 3

// lookEvery is how often the host's list of resolvers is looked at for a
// change, as after a new DHCP lease.
const lookEvery = 5 * time.Second

// readResolvConf returns the resolvers that path names. A host without the
// file, or without a resolver in it, has one at its loopback address, as the
// C library would assume.
func readResolvConf(path string) ([]netip.AddrPort, error) {
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the host's resolvers: %w", err)
	}
	return parseResolvConf(b), nil
}

func parseResolvConf(b []byte) []netip.AddrPort {
	const port = 53
	var out []netip.AddrPort
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		fields := strings.Fields(sc.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		addr, err := netip.ParseAddr(fields[1])
		if err != nil || len(out) == maxResolvers {
			continue
		}
		out = append(out, netip.AddrPortFrom(addr, port))
	}
	if len(out) == 0 {
		out = append(out, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port))
	}
	return out
}

// followResolvers tells the gates when the host's resolvers change.
func (m *Manager) followResolvers() {
	last, err := os.ReadFile(m.cfg.ResolvConf)
	if err != nil {
		last = nil // it may appear
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-tick.C:
		}
		now, err := os.ReadFile(m.cfg.ResolvConf)
		if err != nil || bytes.Equal(now, last) {
			continue // unreadable for a moment while it is replaced
		}
		last = now
		resolvers := parseResolvConf(now)
		m.log.Info("the host's resolvers changed", "resolvers", resolvers)
		ids, err := m.Attached(m.ctx)
		if err != nil {
			m.log.Error("gates can't be told of new resolvers", keyErr, err)
			continue
		}
		for _, id := range ids {
			if err := m.setResolvers(id, resolvers); err != nil {
				m.log.Error("a gate can't be told of new resolvers", keySandbox, id, keyErr, err)
			}
		}
	}
}

func (m *Manager) setResolvers(id string, resolvers []netip.AddrPort) error {
	n, err := m.get(id)
	if err != nil {
		return err
	}
	defer n.mu.Unlock()
	if n.stop == nil {
		return nil // no gate, or not made yet
	}
	cfg, err := m.loadConfig(id)
	if err != nil || slices.Equal(cfg.Resolvers, resolvers) {
		return err
	}
	cfg.Resolvers = resolvers
	cfg.Generation++
	if err := m.storeConfig(id, cfg); err != nil {
		return err
	}
	return m.signal(id, unix.SIGHUP)
}

// signal has the gate of id do something. One that is not there yet does it
// when it starts.
func (m *Manager) signal(id string, sig unix.Signal) error {
	g, err := m.findGate(id)
	if err != nil || g == nil {
		return err
	}
	defer func() { _ = g.file.Close() }()
	raw, err := g.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("signal the gate: %w", err)
	}
	var serr error
	if err := raw.Control(func(fd uintptr) { serr = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); err != nil {
		return fmt.Errorf("signal the gate: %w", err)
	}
	if serr != nil && !errors.Is(serr, unix.ESRCH) {
		return fmt.Errorf("signal the gate: %w", serr)
	}
	return nil
}
