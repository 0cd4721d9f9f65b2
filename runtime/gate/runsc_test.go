package gate

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"mediasandbox/runtime/sandbox"
)

// runscBinary returns our own runsc: the one that was built, or one built now.
func runscBinary(t testing.TB) string {
	t.Helper()
	if built, err := filepath.Abs("../../bin/runsc"); err == nil {
		if _, err := os.Stat(built); err == nil {
			return built
		}
	}
	path := filepath.Join(t.TempDir(), "runsc")
	build(t, path, "mediasandbox/cmd/runsc")
	return path
}

func build(t testing.TB, path, pkg string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
}

// guest is a probe in a real sandbox.
type guest struct {
	t   testing.TB
	in  *json.Encoder
	out *bufio.Scanner
}

// Request and reply of the probe.
type ask struct {
	Do, Net, Addr, Send, Keep string
	Count                     int64
	Frames                    [][]byte
}

type told struct {
	Got, Err, Errno string
	Millis          float64
}

// do has the probe try something.
func (g *guest) do(a ask) told {
	g.t.Helper()
	if err := g.in.Encode(a); err != nil {
		g.t.Fatalf("ask the guest: %v", err)
	}
	if !g.out.Scan() {
		g.t.Fatalf("the guest ended: %v", g.out.Err())
	}
	var r told
	if err := json.Unmarshal(g.out.Bytes(), &r); err != nil {
		g.t.Fatalf("read the guest's reply %q: %v", g.out.Text(), err)
	}
	return r
}

// boot runs a probe in runsc, in the network that a is.
func (w *world) boot(a sandbox.Attachment) *guest {
	t := w.t
	t.Helper()
	runsc := runscBinary(t)
	dir := t.TempDir()
	rootfs := filepath.Join(dir, "rootfs")
	w.must(os.MkdirAll(rootfs, 0o755))
	build(t, filepath.Join(rootfs, "probe"), "mediasandbox/runtime/gate/internal/probe")
	caps := []string{"CAP_NET_RAW", "CAP_NET_ADMIN"} // more than the product gives
	spec := specs.Spec{
		Version: "1.0.0",
		Process: &specs.Process{
			Args: []string{"/probe"}, Cwd: "/", Env: []string{"PATH=/"},
			Capabilities: &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
		},
		Root:     &specs.Root{Path: rootfs, Readonly: true},
		Hostname: "guest",
		Mounts:   []specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc"}},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
			{Type: specs.NetworkNamespace, Path: a.Namespace},
		}},
	}
	b, err := json.Marshal(spec)
	w.must(err)
	w.must(os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600))
	id := strings.ToLower(filepath.Base(a.Namespace))
	flags := []string{"--root", filepath.Join(dir, "state"), "--platform=systrap", "--network=sandbox", "--net-raw", "--allow-packet-socket-write", "--ignore-cgroups"}
	cmd := exec.Command(runsc, append(flags, "run", "--bundle", dir, id)...)
	cmd.Stderr = testWriter{t}
	in, err := cmd.StdinPipe()
	w.must(err)
	out, err := cmd.StdoutPipe()
	w.must(err)
	w.must(cmd.Start())
	t.Cleanup(func() {
		_ = in.Close() // the probe ends with its input, and the sandbox with it
		waited := make(chan error, 1)
		go func() { waited <- cmd.Wait() }()
		select {
		case err := <-waited:
			if err != nil {
				t.Errorf("runsc: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("runsc did not end: %v", cmd.Process.Kill())
			<-waited
		}
		if out, err := exec.Command(runsc, append(flags, "delete", "-force", id)...).CombinedOutput(); err != nil {
			t.Errorf("runsc delete: %v: %s", err, out)
		}
		// runsc pins an empty namespace for its gofers and leaves it.
		if err := unix.Unmount(filepath.Join(dir, "state", "null-netns"), unix.MNT_DETACH); err != nil && !isGone(err) {
			t.Errorf("unpin the gofers' namespace: %v", err)
		}
	})
	return &guest{t: t, in: json.NewEncoder(in), out: bufio.NewScanner(out)}
}

// zone is what the host's resolver knows in tests.
func zone(t testing.TB) map[string][]dns.RR {
	t.Helper()
	z := make(map[string][]dns.RR)
	for _, s := range []string{
		"public.test. 60 IN A " + publicAddr,
		"public.test. 60 IN AAAA 2001:db8::1",
		"alias.test. 60 IN CNAME public.test.",
		"rebind.test. 60 IN A 10.1.2.3",
		"rebind-alias.test. 60 IN CNAME rebind.test.",
		"metadata.test. 60 IN A 169.254.169.254",
		"host.test. 60 IN A " + uplinkAddr,
		"mixed.test. 60 IN A 192.168.7.8",
		"mixed.test. 60 IN A " + publicAddr,
		"_http._tcp.test. 60 IN SRV 0 0 80 public.test.",
		"public.test. 60 IN TXT hello",
		"public.test. 60 IN MX 10 public.test.",
		"public.test. 60 IN HTTPS 1 . ipv4hint=10.1.2.3",
		"10.100.51.198.in-addr.arpa. 60 IN PTR public.test.",
		"3.2.1.10.in-addr.arpa. 60 IN PTR secret.inside.",
	} {
		rr, err := dns.NewRR(s)
		if err != nil {
			t.Fatal(err)
		}
		z[rr.Header().Name] = append(z[rr.Header().Name], rr)
	}
	// Chains, as a resolver answers them.
	z["alias.test."] = append(z["alias.test."], z["public.test."][0])
	z["rebind-alias.test."] = append(z["rebind-alias.test."], z["rebind.test."][0])
	for i := range 60 {
		rr, err := dns.NewRR("big.test. 60 IN A 198.51.100." + string(rune('1'+i%9)) + string(rune('0'+i/9)))
		if err != nil {
			t.Fatal(err)
		}
		rr.Header().Name = "big.test."
		z["big.test."] = append(z["big.test."], rr)
	}
	return z
}

// TestRealSandbox takes the whole way: a static program in gVisor, its own
// network stack, the TAP, the gate, the host's sockets, a listener.
func TestRealSandbox(t *testing.T) {
	w := newWorld(t)
	w.resolver(zone(t))
	w.listenTCP(w.outer, publicAddr+":80", echo)
	w.listenUDP(w.outer, publicAddr+":443")
	for _, a := range inside {
		w.listenTCP(w.outer, a+":80", echo)
		w.listenUDP(w.outer, a+":80")
	}
	for _, a := range []string{uplinkAddr, uplinkOther, "127.0.0.1"} {
		w.listenTCP(w.uplink, a+":80", echo)
		w.listenUDP(w.uplink, a+":80")
	}
	m := w.manager(nil)
	a := w.attach(m, "real")
	g := w.boot(a)

	ok := func(what string, r told, want string) {
		t.Helper()
		if r.Err != "" || r.Got != want {
			t.Errorf("%s: got %+v, want %q", what, r, want)
		}
	}
	fails := func(what string, r told, errno string) {
		t.Helper()
		if r.Errno != errno || r.Millis > 1000 {
			t.Errorf("%s: got %+v, want %s at once", what, r, errno)
		}
	}
	ok("tcp", g.do(ask{Do: "tcp", Addr: publicAddr + ":80", Send: "over tcp"}), "over tcp")
	ok("udp", g.do(ask{Do: "udp", Addr: publicAddr + ":443", Send: "over udp"}), "over udp")
	resolver := a.Resolver.String() + ":53"
	ok("lookup", g.do(ask{Do: "lookup", Addr: resolver, Send: "public.test"}), "["+publicAddr+"]")
	ok("ping the gate", g.do(ask{Do: "ping", Addr: a.Resolver.String()}), "type 0 code 0 from "+a.Resolver.String())
	ok("ping another", g.do(ask{Do: "ping", Addr: publicAddr}), "type 3 code 10 from "+a.Resolver.String())
	for _, name := range []string{"rebind.test", "rebind-alias.test", "metadata.test", "host.test", "nothing.test"} {
		if r := g.do(ask{Do: "lookup", Addr: resolver, Send: name}); r.Err == "" || r.Millis > 2000 {
			t.Errorf("lookup %s: %+v, want an error at once", name, r)
		}
	}
	before := len(w.arrivals())
	for _, addr := range append([]string{uplinkAddr, uplinkOther, "255.255.255.255", "240.1.2.3", "224.0.0.1", "192.0.2.255"}, inside...) {
		fails("tcp "+addr, g.do(ask{Do: "tcp", Addr: addr + ":80", Send: "x"}), "ECONNREFUSED")
		if addr != "255.255.255.255" { // which a guest may not even try
			fails("udp "+addr, g.do(ask{Do: "udp", Addr: addr + ":80", Send: "x"}), "ECONNREFUSED")
		}
	}
	fails("smtp", g.do(ask{Do: "tcp", Addr: publicAddr + ":25", Send: "x"}), "ECONNREFUSED")
	fails("closed port", g.do(ask{Do: "tcp", Addr: publicAddr + ":81", Send: "x"}), "ECONNREFUSED")
	fails("ipv6", g.do(ask{Do: "tcp", Net: "6", Addr: "[2001:db8::1]:80"}), "ENETUNREACH")
	if got := w.arrivals()[before:]; len(got) > 0 {
		t.Errorf("refused flows arrived: %v", got)
	}
	killedGate(t, w, m, g)
}

// killedGate kills the gate under a sandbox that has a connection open.
func killedGate(t *testing.T, w *world, m *Manager, g *guest) {
	t.Helper()
	if r := g.do(ask{Do: "tcp", Addr: publicAddr + ":80", Send: "before", Keep: "old"}); r.Got != "before" {
		t.Fatalf("open a connection: %+v", r)
	}
	old := gatePIDs(t)
	if len(old) != 1 {
		t.Fatalf("gates: %v, want one", old)
	}
	w.must(unix.Kill(old[0], unix.SIGKILL))
	w.eventually("another gate runs", func() bool {
		now := gatePIDs(t)
		return len(now) == 1 && now[0] != old[0]
	})
	w.eventually("new flows work", func() bool {
		return g.do(ask{Do: "tcp", Addr: publicAddr + ":80", Send: "after"}).Got == "after"
	})
	if r := g.do(ask{Do: "send", Keep: "old", Send: "x"}); r.Errno != "ECONNRESET" {
		t.Errorf("the old connection: %+v, want ECONNRESET", r)
	}
}
