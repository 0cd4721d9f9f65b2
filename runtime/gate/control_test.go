package gate

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"mediasandbox/runtime/gate/internal/handover"
	"mediasandbox/runtime/sandbox"
)

func rulesOf(t testing.TB, texts ...string) []sandbox.NetworkRule {
	t.Helper()
	var out []sandbox.NetworkRule
	for _, s := range texts {
		r, err := sandbox.ParseNetworkRule(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// lookup returns the one address of a name, or nothing.
func (w *world) lookup(a sandbox.Attachment, name string) string {
	w.t.Helper()
	m := w.query(a, "udp", name, dns.TypeA)
	if len(m.Answer) != 1 {
		return ""
	}
	return dns.Field(m.Answer[0], 1)
}

// reaches tells whether an echo comes back from addr.
func (w *world) reaches(a sandbox.Attachment, addr string) error {
	w.t.Helper()
	c, _, err := w.guestDial(a, "tcp4", addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return ping(c)
}

func ping(c net.Conn) error {
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

// TestAllowlist resolves and reaches what is listed, and nothing else: what is
// not is not even asked for.
func TestAllowlist(t *testing.T) {
	w := newWorld(t)
	w.resolver(zone(t))
	for _, addr := range []string{publicAddr + ":80", publicAddr + ":81", public2Addr + ":80", public2Addr + ":81", "10.1.2.3:80"} {
		w.listenTCP(w.outer, addr, echo)
	}
	w.listenUDP(w.outer, publicAddr+":80")
	a := w.attachWith(w.manager(nil), "list", sandbox.NetworkPolicy{
		Mode:  sandbox.NetworkAllowlist,
		Rules: rulesOf(t, "deny alias.test", "allow tcp *.test:80", "allow tcp "+public2Addr+":80"),
	})
	for _, name := range []string{"public.test.", "PuBlIc.TEST."} {
		addr := w.lookup(a, name)
		if !handover.Synthetic.Contains(netip.MustParseAddr(addr)) {
			t.Fatalf("%s is %s, want an address that stands for it", name, addr)
		}
		if err := w.reaches(a, addr+":80"); err != nil {
			t.Errorf("an allowed name: %v", err)
		}
		if _, _, err := w.guestDial(a, "tcp4", addr+":81"); !isErrno(err, syscall.ECONNREFUSED) {
			t.Errorf("another port of it: %v", err)
		}
		if err := w.sendTo(a, addr+":80"); !isErrno(err, syscall.ECONNREFUSED) {
			t.Errorf("another protocol of it: %v", err)
		}
	}
	if err := w.reaches(a, public2Addr+":80"); err != nil {
		t.Errorf("an allowed address: %v", err)
	}
	for _, addr := range []string{publicAddr + ":80", public2Addr + ":81", "10.1.2.3:80", "198.19.77.77:80"} {
		if _, _, err := w.guestDial(a, "tcp4", addr); !isErrno(err, syscall.ECONNREFUSED) {
			t.Errorf("%s, which nobody allowed: %v", addr, err)
		}
	}
	// Chains end where they end: the name that was asked for counts.
	if w.lookup(a, "rebind.test.") != "" || w.lookup(a, "rebind-alias.test.") != "" || w.lookup(a, "mixed.test.") == "" {
		t.Error("a name that leads inside is resolved, or one that leads outside too is not")
	}
	asked := len(w.arrivals())
	for _, name := range []string{"alias.test.", "test.", "secret.evil.", "public.test.evil.", "10.100.51.198.in-addr.arpa.", "_http._tcp.evil."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT, dns.TypePTR, dns.TypeSRV} {
			if m := w.query(a, "udp", name, qtype); m.Rcode != dns.RcodeNameError {
				t.Errorf("%s: %s, want NXDOMAIN", name, dns.RcodeToString[m.Rcode])
			}
		}
	}
	if got := w.arrivals()[asked:]; len(got) > 0 {
		t.Errorf("what is not allowed was asked for: %v", got)
	}
	for _, s := range w.arrivals() {
		if s != "tcp "+publicAddr+":80" && s != "tcp "+public2Addr+":80" && !strings.HasPrefix(s, "dns ") {
			t.Errorf("arrived: %s", s)
		}
	}
	w.refusals(t, "list", map[string]string{"10.1.2.3": "private", publicAddr: "mode-allowlist", "198.19.77.77": "reserved"})
}

// TestService reaches a service of the host's loopback under the name that the
// operator gave it, and loopback under no other.
func TestService(t *testing.T) {
	w := newWorld(t)
	w.resolver(zone(t))
	w.listenTCP(w.uplink, "127.0.0.1:8080", echo)
	s, err := sandbox.ParseNetworkService("index.internal:80 = 127.0.0.1:8080")
	w.must(err)
	m := w.manager(nil)
	p := sandbox.NetworkPolicy{Mode: sandbox.NetworkPublic, Operator: sandbox.NetworkOperator{Services: []sandbox.NetworkService{s}}}
	a := w.attachWith(m, "service", p)
	addr := w.lookup(a, "Index.Internal.")
	w.must(w.reaches(a, addr+":80"))
	for _, other := range []string{addr + ":8080", addr + ":22", "127.0.0.1:8080", uplinkAddr + ":8080"} {
		if _, _, err := w.guestDial(a, "tcp4", other); !isErrno(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v", other, err)
		}
	}
	traffic, err := m.Traffic(t.Context(), "service")
	w.must(err)
	if i := slices.IndexFunc(traffic.Closed, func(r sandbox.NetworkFlowRecord) bool { return r.Name == "index.internal" }); i < 0 ||
		traffic.Closed[i].Rule != "service" || traffic.Closed[i].Sent != 1 || traffic.Closed[i].Received != 1 || traffic.Closed[i].Port != 80 {
		t.Errorf("traffic: %+v", traffic)
	}
	// The operator takes it away again.
	p.Operator.Services = nil
	w.must(m.SetPolicy(t.Context(), "service", p))
	if _, _, err := w.guestDial(a, "tcp4", addr+":80"); !isErrno(err, syscall.ECONNREFUSED) {
		t.Errorf("a service that is mapped no more: %v", err)
	}
	for _, s := range w.arrivals() {
		if strings.Contains(s, "internal") {
			t.Errorf("the host's resolver was asked: %s", s)
		}
	}
}

// TestLivePolicy changes policies under open flows.
func TestLivePolicy(t *testing.T) {
	w := newWorld(t)
	w.listenTCP(w.outer, publicAddr+":80", echo)
	w.listenTCP(w.outer, public2Addr+":80", echo)
	w.listenUDP(w.outer, publicAddr+":443")
	m := w.manager(nil)
	a := w.attach(m, "live")
	dial := func(network, addr string) net.Conn {
		c, _, err := w.guestDial(a, network, addr)
		w.must(err)
		t.Cleanup(func() { _ = c.Close() })
		w.must(ping(c))
		return c
	}
	denied, kept, datagrams := dial("tcp4", publicAddr+":80"), dial("tcp4", public2Addr+":80"), dial("udp4", publicAddr+":443")
	deny := publicMode
	deny.Rules = rulesOf(t, "deny "+publicAddr)
	w.must(m.SetPolicy(t.Context(), "live", deny))
	if err := ping(denied); !isErrno(err, syscall.ECONNRESET) {
		t.Errorf("an open flow that is denied now: %v", err)
	}
	if err := ping(datagrams); err == nil {
		t.Error("an open UDP flow that is denied now goes on")
	}
	w.must(ping(kept))
	if _, _, err := w.guestDial(a, "tcp4", publicAddr+":80"); !isErrno(err, syscall.ECONNREFUSED) {
		t.Errorf("a new flow that is denied: %v", err)
	}
	w.refusals(t, "live", map[string]string{publicAddr: "chat: deny " + publicAddr})
	traffic, err := m.Traffic(t.Context(), "live")
	w.must(err)
	if !slices.ContainsFunc(traffic.Closed, func(r sandbox.NetworkFlowRecord) bool { return r.Protocol == "tcp" && r.Cut != "" }) {
		t.Errorf("no flow is told to have been cut off: %+v", traffic)
	}
	// A gate that dies is started again with the policy as it is now.
	old := gatePIDs(t)
	w.must(unix.Kill(old[0], unix.SIGKILL))
	w.eventually("another gate runs", func() bool {
		now := gatePIDs(t)
		return len(now) == 1 && now[0] != old[0]
	})
	w.eventually("it lets out what it should", func() bool { return w.reaches(a, public2Addr+":80") == nil })
	if _, _, err := w.guestDial(a, "tcp4", publicAddr+":80"); !isErrno(err, syscall.ECONNREFUSED) {
		t.Errorf("a denied flow through the new gate: %v", err)
	}
	again, err := m.Traffic(t.Context(), "live")
	w.must(err)
	if again.Sent < traffic.Sent || again.Flows <= traffic.Flows || again.AllowedBy["mode-public"] != again.Flows ||
		again.CutBy["chat"] != 2 || again.RefusedBy["chat"] < 4 {
		t.Errorf("the new gate counts anew: %+v after %+v", again, traffic)
	}
	w.must(m.SetPolicy(t.Context(), "live", sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}))
	if _, _, err := w.guestDial(a, "tcp4", public2Addr+":80"); !isErrno(err, syscall.ECONNREFUSED) {
		t.Errorf("in mode none: %v", err)
	}
	w.must(m.SetPolicy(t.Context(), "live", publicMode))
	w.must(w.reaches(a, publicAddr+":80"))

	bare, err := m.Attach(t.Context(), "bare", sandbox.NetworkPolicy{Mode: sandbox.NetworkNone})
	w.must(err)
	if err := m.SetPolicy(t.Context(), "bare", publicMode); !errors.Is(err, sandbox.ErrNoNetwork) || bare.Resolver.IsValid() {
		t.Errorf("a sandbox made without a network gets one: %v", err)
	}
	w.must(m.Detach(context.Background(), "bare"))
	if err := m.SetPolicy(t.Context(), "nobody", publicMode); err == nil {
		t.Error("a policy for nobody is no error")
	}
}

// TestLimits holds how many flows and bytes there may be.
func TestLimits(t *testing.T) {
	w := newWorld(t)
	w.listenTCP(w.outer, publicAddr+":80", echo)
	m := w.manager(nil)
	p := publicMode
	p.Limits = sandbox.NetworkLimits{Flows: 3}
	a := w.attachWith(m, "limits", p)
	var open []net.Conn
	for range 3 {
		c, _, err := w.guestDial(a, "tcp4", publicAddr+":80")
		w.must(err)
		open = append(open, c)
	}
	if _, _, err := w.guestDial(a, "tcp4", publicAddr+":80"); !isErrno(err, syscall.ECONNREFUSED) {
		t.Errorf("a fourth flow of three: %v", err)
	}
	for _, c := range open[1:] {
		w.must(c.Close())
	}
	w.eventually("a closed flow's place is free", func() bool { return w.reaches(a, publicAddr+":80") == nil })

	// 10,000 bytes there and back; 1,000 of them are spent.
	p.Limits = sandbox.NetworkLimits{Total: 10000}
	p.Spent = 1000
	w.must(m.SetPolicy(t.Context(), "limits", p))
	var err error
	moved := 0
	for moved < 20000 && err == nil {
		if _, err = open[0].Write(make([]byte, 500)); err == nil {
			_, err = io.ReadFull(open[0], make([]byte, 500))
			moved += 1000
		}
	}
	if !isErrno(err, syscall.ECONNRESET) || moved < 7000 || moved > 9000 {
		t.Errorf("%d bytes moved of 9000, then %v", moved, err)
	}
	w.must(open[0].Close())
	if _, _, err := w.guestDial(a, "tcp4", publicAddr+":80"); !isErrno(err, syscall.ECONNREFUSED) {
		t.Errorf("a flow when all is spent: %v", err)
	}
	w.refusals(t, "limits", map[string]string{publicAddr: "flow-limit"})
	w.refusals(t, "limits", map[string]string{publicAddr: "total-limit"})
	traffic, terr := m.Traffic(t.Context(), "limits")
	w.must(terr)
	if traffic.RefusedBy["flow-limit"] < 1 || traffic.RefusedBy["total-limit"] != 1 || traffic.CutBy["total-limit"] == 0 {
		t.Errorf("traffic: %+v", traffic)
	}
	// More is granted.
	p.Limits.Total = 1 << 20
	w.must(m.SetPolicy(t.Context(), "limits", p))
	w.must(w.reaches(a, publicAddr+":80"))
}

// TestJudge tells what would happen, with the host's own addresses.
func TestJudge(t *testing.T) {
	w := newWorld(t)
	m := w.manager(nil)
	p := sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Rules: rulesOf(t, "allow tcp *.test:443", "allow 203.0.113.0/24")}
	s, err := sandbox.ParseNetworkService("index.test:443 = 127.0.0.1:8080")
	w.must(err)
	p.Operator.Services = []sandbox.NetworkService{s}
	for _, c := range []struct {
		f     sandbox.NetworkFlow
		allow bool
		rule  string
	}{
		{sandbox.NetworkFlow{Protocol: "tcp", Name: "a.test", Port: 443}, true, "chat: allow tcp *.test:443"},
		{sandbox.NetworkFlow{Protocol: "tcp", Name: "a.test", Port: 80}, false, "mode-allowlist"},
		{sandbox.NetworkFlow{Protocol: "tcp", Name: "a.evil", Port: 443}, false, "mode-allowlist"},
		{sandbox.NetworkFlow{Protocol: "tcp", Name: "index.test", Port: 443}, true, "service"},
		{sandbox.NetworkFlow{Protocol: "tcp", Addr: netip.MustParseAddr("203.0.113.5"), Port: 1}, true, "chat: allow 203.0.113.0/24"},
		{sandbox.NetworkFlow{Protocol: "tcp", Addr: netip.MustParseAddr(uplinkOther), Port: 443}, false, "host"},
		{sandbox.NetworkFlow{Protocol: "tcp", Addr: netip.MustParseAddr("169.254.169.254"), Port: 80}, false, "metadata"},
	} {
		v, err := m.Judge(p, c.f)
		if err != nil || v.Allow != c.allow || v.Rule != c.rule {
			t.Errorf("%+v: %+v, %v, want %v by %q", c.f, v, err, c.allow, c.rule)
		}
	}
	if got := w.arrivals(); len(got) > 0 {
		t.Errorf("judging sent something: %v", got)
	}
}
