package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"mediasandbox/runtime/gate/internal/handover"
	"mediasandbox/runtime/gate/internal/hostaddr"
	"mediasandbox/runtime/gate/policy"
	"mediasandbox/runtime/sandbox"
)

// How long a gate may take to put a policy in force, and to give an account;
// it does either in a few milliseconds. Until then it is looked at this often.
const (
	policyTimeout  = 10 * time.Second
	accountTimeout = time.Second
	lookAgain      = 2 * time.Millisecond
)

// SetPolicy implements sandbox.NetworkControl. A gate that is down meanwhile
// finds the policy when it starts.
func (m *Manager) SetPolicy(ctx context.Context, id string, p sandbox.NetworkPolicy) error {
	fail := func(err error) error { return fmt.Errorf("change the network policy of %s: %w", id, err) }
	generation, err := m.storePolicy(id, p)
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(ctx, policyTimeout)
	defer cancel()
	err = m.await(ctx, func() (bool, error) {
		t, err := m.readAccount(id)
		return t.Generation >= generation, err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("its gate did not take it up in time")
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// storePolicy writes the policy and tells the gate. A policy that is in force
// already keeps its generation.
func (m *Manager) storePolicy(id string, p sandbox.NetworkPolicy) (generation uint64, err error) {
	if err := checkID(id); err != nil {
		return 0, err
	}
	if p.Mode, err = sandbox.ParseNetworkMode(string(p.Mode)); err != nil {
		return 0, err
	}
	n, err := m.get(id)
	if err != nil {
		return 0, err
	}
	defer n.mu.Unlock()
	cfg, err := m.loadConfig(id)
	if err != nil {
		return 0, err
	}
	if cfg.Bare {
		return 0, sandbox.ErrNoNetwork
	}
	if same, err := samePolicy(cfg.Policy, p); err != nil || same {
		return cfg.Generation, err
	}
	cfg.Policy = p
	cfg.Generation++
	if err := m.storeConfig(id, cfg); err != nil {
		return 0, err
	}
	return cfg.Generation, m.signal(id, unix.SIGHUP)
}

// samePolicy compares policies as they are written.
func samePolicy(a, b sandbox.NetworkPolicy) (bool, error) {
	textA, errA := json.Marshal(a)
	textB, errB := json.Marshal(b)
	return bytes.Equal(textA, textB), errors.Join(errA, errB)
}

// await looks again and again until there is something to see.
func (m *Manager) await(ctx context.Context, look func() (bool, error)) error {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		if ok, err := look(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-m.ctx.Done():
			return errors.New("the gate manager is closed")
		}
	}
}

// Traffic implements sandbox.NetworkControl: it asks the gate for an account.
// What a gate that is down had counted is told as it was.
func (m *Manager) Traffic(ctx context.Context, id string) (sandbox.NetworkTraffic, error) {
	fail := func(err error) (sandbox.NetworkTraffic, error) {
		return sandbox.NetworkTraffic{}, fmt.Errorf("ask for the traffic of %s: %w", id, err)
	}
	if err := checkID(id); err != nil {
		return fail(err)
	}
	last, err := m.readAccount(id)
	if err != nil || last.Sequence == 0 {
		if err != nil {
			return fail(err)
		}
		return last, nil
	}
	if err := m.signal(id, unix.SIGUSR1); err != nil {
		return fail(err)
	}
	waiting, cancel := context.WithTimeout(ctx, accountTimeout)
	defer cancel()
	now := last
	err = m.await(waiting, func() (bool, error) {
		now, err = m.readAccount(id)
		return now.Sequence > last.Sequence, err
	})
	switch {
	case ctx.Err() != nil:
		return fail(ctx.Err())
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		return fail(err)
	}
	return now, nil
}

// maxAccount bounds what is read of an account, in bytes. The gate is not
// trusted to write less.
const maxAccount = 1 << 20

// readAccount returns the newest account that is whole. A network without one
// has the zero account.
func (m *Manager) readAccount(id string) (newest sandbox.NetworkTraffic, err error) {
	for _, name := range handover.CountNames {
		f, err := os.Open(filepath.Join(m.gatePath(id), name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return newest, err
		}
		b, err := io.ReadAll(io.LimitReader(f, maxAccount))
		if err := errors.Join(err, f.Close()); err != nil {
			return newest, err
		}
		var t sandbox.NetworkTraffic
		if json.Unmarshal(b, &t) == nil && t.Sequence > newest.Sequence {
			newest = t // else it is being written, and the other one is whole
		}
	}
	return newest, nil
}

// Judge implements sandbox.NetworkControl. The host's addresses are those that
// gates see.
func (m *Manager) Judge(p sandbox.NetworkPolicy, f sandbox.NetworkFlow) (sandbox.NetworkVerdict, error) {
	var hosts policy.HostSet
	err := m.inUplink(func() error {
		handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer handle.Close()
		hosts, err = hostaddr.Read(handle)
		return err
	})
	if err != nil {
		return sandbox.NetworkVerdict{}, fmt.Errorf("judge a flow: %w", err)
	}
	v := judge(policy.New(p, hosts), policy.Flow{Protocol: policy.Protocol(f.Protocol), Addr: f.Addr, Port: f.Port, Name: f.Name})
	return sandbox.NetworkVerdict{Allow: v.Allow, Rule: v.Rule}, nil
}

// judge takes a flow by name through the steps that it would meet: its name is
// resolved before its port is seen.
func judge(p policy.Policy, f policy.Flow) policy.Verdict {
	if f.Name == "" {
		return p.Decide(f)
	}
	if _, v, ok := p.Service(f); ok {
		return v
	}
	if v := p.Could(policy.Flow{Name: f.Name}); !v.Allow {
		return v
	}
	return p.Could(f)
}

// inUplink runs f in the network namespace whose sockets the gates use.
func (m *Manager) inUplink(f func() error) error {
	if m.cfg.Uplink == "" {
		return f()
	}
	return inNamespace(m.cfg.Uplink, f)
}
