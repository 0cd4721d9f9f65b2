package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cleanup"

	"mediasandbox/runtime/gate/internal/handover"
	"mediasandbox/runtime/sandbox"
)

// Attach implements sandbox.Network. With a policy that is Off the namespace
// has its loopback and no way out, and there is no gate.
func (m *Manager) Attach(ctx context.Context, id string, policy sandbox.NetworkPolicy) (sandbox.Attachment, error) {
	fail := func(err error) (sandbox.Attachment, error) {
		return sandbox.Attachment{}, fmt.Errorf("attach the network of %s: %w", id, err)
	}
	if err := checkID(id); err != nil {
		return fail(err)
	}
	mode, err := sandbox.ParseNetworkMode(string(policy.Mode))
	if err != nil {
		return fail(err)
	}
	policy.Mode = mode
	n, err := m.get(id)
	if err != nil {
		return fail(err)
	}
	defer n.mu.Unlock()
	if err := m.make(ctx, n, policy); err != nil {
		return fail(err)
	}
	a := sandbox.Attachment{Namespace: m.netnsPath(id)}
	if !policy.Off() {
		a.Resolver = handover.GateAddr
	}
	return a, nil
}

// make makes everything of a network, or nothing.
func (m *Manager) make(ctx context.Context, n *network, policy sandbox.NetworkPolicy) (err error) {
	// What is undone here was made here, so an undo that fails has found
	// something broken: it joins the error that caused it.
	var undone []error
	undo := func(f func() error) func() {
		return func() { undone = append(undone, f()) }
	}
	cu := cleanup.Make(func() {})
	defer func() {
		cu.Clean()
		err = errors.Join(append([]error{err}, undone...)...)
	}()

	if err := os.Mkdir(m.gatePath(n.id), 0o755); err != nil {
		return err
	}
	cu.Add(undo(func() error { return os.RemoveAll(m.gatePath(n.id)) }))
	if err := m.writeConfig(n.id, policy); err != nil {
		return err
	}
	tap, err := m.makeNamespace(n.id, !policy.Off())
	if err != nil {
		return err
	}
	cu.Add(undo(func() error { return m.removeNamespace(n.id) }))
	if tap != nil {
		defer func() { err = errors.Join(err, tap.Close()) }()
		g, err := m.startGate(ctx, n.id, tap)
		if err != nil {
			return err
		}
		cu.Add(undo(func() error { return m.killGate(n.id) }))
		m.watch(n, g)
		cu.Add(n.unwatch)
	}
	if err := os.WriteFile(m.attachedPath(n.id), nil, 0o600); err != nil {
		return err
	}
	cu.Release()
	return nil
}

// writeConfig puts a new gate's policy where it reads it.
func (m *Manager) writeConfig(id string, policy sandbox.NetworkPolicy) error {
	resolvers, err := readResolvConf(m.cfg.ResolvConf)
	if err != nil {
		return err
	}
	return m.storeConfig(id, handover.Config{
		Generation: 1, Bare: policy.Off(), Policy: policy, Resolvers: resolvers, Limits: handover.DefaultLimits(),
	})
}

// storeConfig replaces a gate's configuration, by rename.
func (m *Manager) storeConfig(id string, cfg handover.Config) error {
	b, err := json.Marshal(cfg)
	if err != nil {
		return fmt.Errorf("write the gate's policy: %w", err)
	}
	path := filepath.Join(m.gatePath(id), handover.ConfigName)
	if err := os.WriteFile(path+".new", b, 0o644); err != nil {
		return fmt.Errorf("write the gate's policy: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write the gate's policy: %w", err)
	}
	return nil
}

func (m *Manager) loadConfig(id string) (cfg handover.Config, err error) {
	b, err := os.ReadFile(filepath.Join(m.gatePath(id), handover.ConfigName))
	if err != nil {
		return cfg, fmt.Errorf("read the gate's policy: %w", err)
	}
	if err := json.Unmarshal(b, &cfg); err != nil {
		return cfg, fmt.Errorf("read the gate's policy: %w", err)
	}
	return cfg, nil
}

// Detach implements sandbox.Network. It goes on after a step that failed, so
// that as little as possible is left, and can be called again.
func (m *Manager) Detach(_ context.Context, id string) error {
	if err := checkID(id); err != nil {
		return fmt.Errorf("detach a network: %w", err)
	}
	n, err := m.get(id)
	if err != nil {
		return fmt.Errorf("detach the network of %s: %w", id, err)
	}
	defer n.mu.Unlock()
	n.unwatch()
	var errs []error
	// Gone first, so that nobody takes what is being removed for whole.
	if err := os.Remove(m.attachedPath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	errs = append(errs, m.killGate(id), m.removeNamespace(id))
	if errors.Join(errs...) == nil {
		// The directory names what is left: it goes last.
		errs = append(errs, os.RemoveAll(m.gatePath(id)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("detach the network of %s: %w", id, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.networks, id)
	return nil
}

// isGone says that an unmount or removal found nothing.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL)
}
