// Package gate gives each sandbox the only network it has: a namespace with
// one TAP, behind which an unprivileged process of the host decides about
// every flow (package gate/process) by one policy (package gate/policy).
//
// This package is the daemon's half. It makes and removes namespaces, TAPs and
// gate processes, finds them again after the daemon was restarted, and starts
// a gate anew that died under a living sandbox. It never parses a packet. No
// route, address or firewall rule of the host is touched.
//
// On disk, below Config.RunDir:
//
//	netns/ID                  the namespace, pinned by a bind mount
//	gates/ID/config.json      what the gate process reads (handover.Config)
//	gates/ID/lock             the gate holds a record lock on it while it lives
//	gates/ID/gate.log         what the gate has to say, bounded
//	gates/ID/refusals.N.jsonl the last refusals, bounded
//	gates/ID/count.N.json     what the gate counted, its flows among it
//	gates/ID/attached         written last: the network is whole
//
// Start reading at Manager.Attach; control.go changes what is attached.
package gate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"mediasandbox/runtime/gate/internal/handover"
	"mediasandbox/runtime/sandbox"
)

// Config says where networks are made and who runs their gates.
type Config struct {
	// RunDir holds what exists while networks do. It is made with mode 0700
	// if it is missing, and must be on a file system that forgets on reboot.
	RunDir string
	// Binary is the sandbox-gate program.
	Binary string
	// UID and GID run the gates. Zero means 65534 (nobody); a user of their
	// own is better. Root is refused.
	UID, GID uint32
	// Cgroup, when not empty, is the cgroup v2 directory gates are born into.
	Cgroup string
	// Uplink, when not empty, is the path of the network namespace whose
	// sockets the gates use. It is the daemon's own otherwise.
	Uplink string
	// ResolvConf names the host's resolvers: /etc/resolv.conf when empty.
	ResolvConf string
	// OnRestart, when not nil, is told that a gate had died under a living
	// sandbox and was started again. It must not call the Manager.
	OnRestart func(id, reason string)
	Log       *slog.Logger
}

// Attribute keys of this package's log lines.
const (
	keySandbox = "sandbox"
	keyErr     = "err"
	keyPID     = "pid"
)

// nobody runs gates when no user was named.
const nobody = 65534

// Manager makes and keeps the networks of one daemon's sandboxes.
type Manager struct {
	cfg Config
	log *slog.Logger

	ctx  context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu       sync.Mutex
	networks map[string]*network
	closed   bool
}

var (
	_ sandbox.Network        = (*Manager)(nil)
	_ sandbox.NetworkControl = (*Manager)(nil)
)

// network is one sandbox's. Its lock is held while it changes.
type network struct {
	id string

	mu sync.Mutex
	// stop ends the goroutine that watches the gate, which then closes
	// stopped. Both are nil when there is no gate.
	stop    context.CancelFunc
	stopped chan struct{}
}

// New returns a Manager for RunDir, and takes over the networks that an
// earlier one left there: gates that live are watched, gates that died are
// started again.
func New(cfg Config) (*Manager, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.UID == 0 {
		cfg.UID = nobody
	}
	if cfg.GID == 0 {
		cfg.GID = nobody
	}
	if cfg.ResolvConf == "" {
		cfg.ResolvConf = "/etc/resolv.conf"
	}
	if !filepath.IsAbs(cfg.RunDir) {
		return nil, fmt.Errorf("set up the gate: the run directory %q is not an absolute path", cfg.RunDir)
	}
	m := &Manager{cfg: cfg, log: cfg.Log, networks: make(map[string]*network)}
	m.ctx, m.end = context.WithCancel(context.Background())
	if err := m.check(); err != nil {
		m.end()
		return nil, err
	}
	if err := m.adopt(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	m.work.Go(m.followResolvers)
	return m, nil
}

// check finds out now what would otherwise fail with the first sandbox. There
// is no other network to fall back to.
func (m *Manager) check() error {
	for _, dir := range []string{m.cfg.RunDir, m.netnsDir(), m.gatesDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("set up the gate: %w", err)
		}
	}
	st, err := os.Stat(m.cfg.Binary)
	if err != nil {
		return fmt.Errorf("set up the gate: find its program: %w", err)
	}
	if st.Mode()&0o001 == 0 || !st.Mode().IsRegular() {
		return fmt.Errorf("set up the gate: %s is not a program that uid %d may run", m.cfg.Binary, m.cfg.UID)
	}
	if err := tryNetwork(); err != nil {
		return fmt.Errorf("set up the gate: %w: sandboxes would have no network but the host's, so the daemon does not start", err)
	}
	return nil
}

// tryNetwork makes what each sandbox gets, a namespace with a TAP, in a
// namespace that goes with it. Its errors say what is missing.
func tryNetwork() error {
	entered := false
	_, err := inNewNamespace("", func() (err error) {
		entered = true
		tap, err := openTAP()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, removeTAP(), tap.Close()) }()
		return errors.Join(loopbackUp(), configureLink())
	})
	var remedy string
	switch {
	case err == nil:
		return nil
	case !entered:
		remedy = "run the daemon as root with CAP_SYS_ADMIN, and in a container allow it to unshare network namespaces"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		remedy = "load the tun module (modprobe tun), and in a container pass /dev/net/tun to it"
	default:
		remedy = "run the daemon as root with CAP_NET_ADMIN, and in a container or unit allow it the device /dev/net/tun"
	}
	return fmt.Errorf("%w (%s)", err, remedy)
}

// Close lets go of every network without ending it: gates live on, and a
// later Manager finds them.
func (m *Manager) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.end()
	m.work.Wait()
	return nil
}

func (m *Manager) netnsDir() string              { return filepath.Join(m.cfg.RunDir, "netns") }
func (m *Manager) gatesDir() string              { return filepath.Join(m.cfg.RunDir, "gates") }
func (m *Manager) netnsPath(id string) string    { return filepath.Join(m.netnsDir(), id) }
func (m *Manager) gatePath(id string) string     { return filepath.Join(m.gatesDir(), id) }
func (m *Manager) attachedPath(id string) string { return filepath.Join(m.gatePath(id), "attached") }

// Resolver is the address at which every guest finds its resolver.
func Resolver() netip.Addr { return handover.GateAddr }

// GuestAddr is the address that every guest has.
func GuestAddr() netip.Addr { return handover.GuestAddr }

// idPattern keeps an id a single, harmless path element.
var idPattern = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

func checkID(id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("%q is not a sandbox id", id)
	}
	return nil
}

// get returns the network of id, locked, making an entry if there is none. An
// entry says nothing about what exists.
func (m *Manager) get(id string) (*network, error) {
	for {
		m.mu.Lock()
		if m.closed {
			m.mu.Unlock()
			return nil, errors.New("the gate manager is closed")
		}
		n := m.networks[id]
		if n == nil {
			n = &network{id: id}
			m.networks[id] = n
		}
		m.mu.Unlock()
		n.mu.Lock()
		if m.current(n) {
			return n, nil
		}
		// Detach removed the entry while this call waited for it.
		n.mu.Unlock()
	}
}

func (m *Manager) current(n *network) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.networks[n.id] == n
}

// Attached names every sandbox of which a network, or a part of one, is left.
func (m *Manager) Attached(context.Context) ([]string, error) {
	var ids []string
	for _, dir := range []string{m.netnsDir(), m.gatesDir()} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("list networks: %w", err)
		}
		for _, e := range entries {
			if checkID(e.Name()) == nil {
				ids = append(ids, e.Name())
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
