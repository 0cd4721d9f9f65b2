package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"mediasandbox/runtime/sandbox"
)

// gateBinary is the real program, built once.
var gateBinary string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if code, ok := badGate(); ok {
		return code
	}
	if len(os.Args) > 1 && os.Args[1] == daemonVerb {
		return playDaemon(os.Args[2:])
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "the gate's tests make network namespaces: run them as root")
		return 1
	}
	dir, err := os.MkdirTemp("", "gate-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	gateBinary = filepath.Join(dir, "sandbox-gate")
	cmd := exec.Command("go", "build", "-o", gateBinary, "mediasandbox/cmd/sandbox-gate")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build sandbox-gate: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// world is the outside that a gate meets in tests: an uplink namespace that
// plays the host, and an outer one with every kind of address. Nothing in it
// can reach the machine's own network.
//
//	guest ─TAP─ gate process (in uplink) ─veth─ outer: the addresses below
type world struct {
	t      testing.TB
	dir    string
	uplink string
	outer  string

	mu   sync.Mutex
	seen []string
}

// Addresses of the world.
const (
	uplinkAddr   = "192.0.2.2"
	uplinkOther  = "192.0.2.77" // the host's too
	outerAddr    = "192.0.2.1"  // a neighbour of the host
	publicAddr   = "198.51.100.10"
	public2Addr  = "203.0.113.10"
	resolverAddr = "10.255.0.53" // private, and the host's resolver
)

// inside lists what exists in the outer namespace and must not be reached.
var inside = []string{
	"10.1.2.3", "172.16.5.6", "192.168.7.8", "100.64.1.1", "169.254.169.254", "169.254.10.10",
	"100.100.100.200", "168.63.129.16", "192.0.0.192", "198.18.7.7", resolverAddr,
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, dir: t.TempDir()}
	w.uplink, w.outer = filepath.Join(w.dir, "uplink"), filepath.Join(w.dir, "outer")
	for _, path := range []string{w.outer, w.uplink} {
		w.must(ignoreMade(inNewNamespace(path, loopbackUp)))
		t.Cleanup(func() {
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
				t.Errorf("unmount %s: %v", path, err)
			}
		})
	}
	outer, err := os.Open(w.outer)
	w.must(err)
	defer func() { _ = outer.Close() }()
	w.in(w.uplink, func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up"}, PeerName: "down", PeerNamespace: netlink.NsFd(int(outer.Fd()))}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		return errors.Join(
			addrs("up", uplinkAddr+"/24", uplinkOther+"/24"),
			netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(outerAddr)}),
			// A host has its resolver near.
			os.WriteFile("/proc/sys/net/ipv4/conf/all/accept_local", []byte("1"), 0),
		)
	})
	list := []string{outerAddr + "/24", publicAddr + "/32", public2Addr + "/32"}
	for _, a := range inside {
		list = append(list, a+"/32")
	}
	w.in(w.outer, func() error { return addrs("down", list...) })
	return w
}

func ignoreMade(_ bool, err error) error { return err }

func addrs(link string, list ...string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	for _, s := range list {
		a, err := netlink.ParseAddr(s)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(l, a); err != nil {
			return fmt.Errorf("add %s: %w", s, err)
		}
	}
	return netlink.LinkSetUp(l)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// in runs f in a namespace.
func (w *world) in(path string, f func() error) {
	w.t.Helper()
	w.must(inNamespace(path, f))
}

// saw records that something arrived at a listener.
func (w *world) saw(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, fmt.Sprintf(format, args...))
}

func (w *world) arrivals() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

// listenTCP accepts at addr, in a namespace, and hands connections to serve.
func (w *world) listenTCP(ns, addr string, serve func(*net.TCPConn)) {
	w.t.Helper()
	var ln net.Listener
	w.in(ns, func() (err error) {
		ln, err = net.Listen("tcp", addr)
		return err
	})
	w.t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			w.saw("tcp %s", c.LocalAddr())
			go serve(c.(*net.TCPConn))
		}
	}()
}

// listenUDP answers every datagram at addr with itself.
func (w *world) listenUDP(ns, addr string) {
	w.t.Helper()
	var pc net.PacketConn
	w.in(ns, func() (err error) {
		pc, err = net.ListenPacket("udp", addr)
		return err
	})
	w.t.Cleanup(func() { _ = pc.Close() })
	go func() {
		buf := make([]byte, 65536)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			w.saw("udp %s", pc.LocalAddr())
			_, _ = pc.WriteTo(buf[:n], from)
		}
	}()
}

func echo(c *net.TCPConn) {
	_, err := io.Copy(c, c)
	if err == nil {
		_ = c.CloseWrite()
	}
	_ = c.Close()
}

// resolver serves the zone at the host's resolver's address.
func (w *world) resolver(zone map[string][]dns.RR) {
	w.t.Helper()
	handler := dns.HandlerFunc(func(rw dns.ResponseWriter, q *dns.Msg) {
		w.saw("dns %s %s %s", rw.LocalAddr().Network(), dns.TypeToString[q.Question[0].Qtype], q.Question[0].Name)
		m := new(dns.Msg)
		m.SetReply(q)
		name := strings.ToLower(q.Question[0].Name)
		rrs, ok := zone[name]
		if !ok {
			m.Rcode = dns.RcodeNameError
		}
		for _, rr := range rrs {
			if rr.Header().Rrtype == q.Question[0].Qtype || rr.Header().Rrtype == dns.TypeCNAME || rr.Header().Name != name {
				m.Answer = append(m.Answer, rr)
			}
		}
		if opt := q.IsEdns0(); opt != nil && rw.LocalAddr().Network() == "udp" {
			m.Truncate(int(opt.UDPSize()))
		}
		_ = rw.WriteMsg(m)
	})
	var pc net.PacketConn
	var ln net.Listener
	w.in(w.outer, func() (err error) {
		if pc, err = net.ListenPacket("udp4", resolverAddr+":53"); err != nil {
			return err
		}
		ln, err = net.Listen("tcp4", resolverAddr+":53")
		return err
	})
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: handler}, {Listener: ln, Handler: handler}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { _ = s.ActivateAndServe() }()
		<-started
		w.t.Cleanup(func() { _ = s.Shutdown() })
	}
}

// config returns a configuration whose gates have the world as their host.
func (w *world) config(change func(*Config)) Config {
	w.t.Helper()
	conf := filepath.Join(w.dir, "resolv.conf")
	w.must(os.WriteFile(conf, []byte("search lan\nnameserver "+resolverAddr+"\n"), 0o644))
	cfg := Config{
		RunDir: filepath.Join(w.dir, "run"), Binary: gateBinary, Uplink: w.uplink, ResolvConf: conf,
		Log: slog.New(slog.NewTextHandler(testWriter{w.t}, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

// manager returns a Manager of that configuration.
func (w *world) manager(change func(*Config)) *Manager {
	w.t.Helper()
	m, err := New(w.config(change))
	w.must(err)
	w.t.Cleanup(func() {
		w.must(m.Close())
		if l := w.count(m.cfg.RunDir); l != (leftovers{}) {
			w.t.Errorf("the test left: %+v", l)
		}
	})
	return m
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Helper()
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// attach makes a network and removes it when the test ends.
func (w *world) attach(m *Manager, id string) sandbox.Attachment {
	w.t.Helper()
	return w.attachWith(m, id, publicMode)
}

func (w *world) attachWith(m *Manager, id string, policy sandbox.NetworkPolicy) sandbox.Attachment {
	w.t.Helper()
	a, err := m.Attach(w.t.Context(), id, policy)
	w.must(err)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			b, _ := os.ReadFile(filepath.Join(m.gatePath(id), "gate.log"))
			w.t.Logf("gate.log of %s:\n%s", id, b)
		}
		w.must(m.Detach(context.Background(), id))
	})
	return a
}

// guestDial dials in the sandbox's namespace, where the kernel plays the guest.
func (w *world) guestDial(a sandbox.Attachment, network, addr string) (c net.Conn, took time.Duration, err error) {
	start := time.Now()
	err = inNamespace(a.Namespace, func() error {
		d := net.Dialer{Timeout: 10 * time.Second}
		c, err = d.Dial(network, addr)
		return err
	})
	return c, time.Since(start), err
}

// eventually polls until ok, or fails.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.t.Fatalf("it never came to this: %s", what)
}

// leftovers is what of networks exists on this machine.
type leftovers struct{ mounts, gates, files int }

// count counts mounts and files below dir, and processes of the gate's binary
// that are children of anybody.
func (w *world) count(runDir string) leftovers {
	w.t.Helper()
	var l leftovers
	b, err := os.ReadFile("/proc/self/mountinfo")
	w.must(err)
	l.mounts = bytes.Count(b, []byte(" "+runDir+"/"))
	w.must(filepath.WalkDir(runDir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			l.files++
		}
		return err
	}))
	l.gates = len(gatePIDs(w.t))
	return l
}

// gatePIDs lists the processes that run this test's gate binary.
func gatePIDs(t testing.TB) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscanf(e.Name(), "%d", &pid); err != nil {
			continue
		}
		if exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe")); err == nil && exe == gateBinary {
			pids = append(pids, pid)
		}
	}
	return pids
}

func isErrno(err error, want syscall.Errno) bool { return errors.Is(err, want) }

// processes counts the children of this one.
func processes(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	return len(bytes.Fields(b))
}
