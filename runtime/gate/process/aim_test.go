package process

import (
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"mediasandbox/runtime/gate/internal/handover"
	"mediasandbox/runtime/gate/policy"
	"mediasandbox/runtime/sandbox"
)

// nameServer answers every question for an A record with what it holds, on
// loopback; the empty string is no such name.
func nameServer(t *testing.T) (at netip.AddrPort, answer *atomic.Value, stop func()) {
	t.Helper()
	answer = new(atomic.Value)
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	s := &dns.Server{PacketConn: pc, NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if text := answer.Load().(string); text == "" {
			m.Rcode = dns.RcodeNameError
		} else {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.ParseIP(text)}}
		}
		_ = w.WriteMsg(m) // a reply that is lost fails the test
	})}
	served := make(chan error, 1)
	go func() { served <- s.ActivateAndServe() }()
	<-started
	stop = func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
		<-served
	}
	return netip.MustParseAddrPort(pc.LocalAddr().String()), answer, stop
}

// TestAimResolvesAgain follows a name whose addresses change after the guest
// was told where it is. Nothing is dialled.
func TestAimResolvesAgain(t *testing.T) {
	g, _ := testGate(t, sandbox.NetworkNone)
	at, answer, stop := nameServer(t)
	g.configure(handover.Config{
		Policy:    sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Rules: []sandbox.NetworkRule{{Allow: true, Protocol: "tcp", Name: "a.test"}}},
		Resolvers: []netip.AddrPort{at},
	})
	standIn := g.book.give("a.test", []netip.Addr{netip.MustParseAddr("203.0.113.1")}, 0)
	age := func(by time.Duration) {
		e := g.book.byAddr[standIn]
		b := *e.Value.(*binding)
		b.until = time.Now().Add(-by)
		e.Value = &b
	}
	aim := func() (addr, rule string) {
		targets, denied, rule := g.aim(t.Context(), policy.Flow{Protocol: policy.TCP, Addr: standIn, Port: 443})
		if len(targets) == 0 {
			return denied.Addr.String(), rule
		}
		if targets[0].goal.Name != "a.test" || targets[0].to.Port() != 443 {
			t.Errorf("aims at %+v", targets[0])
		}
		return targets[0].to.Addr().String(), ""
	}
	for _, c := range []struct {
		what, answer string
		age          time.Duration
		addr, rule   string
	}{
		{"its time is not over", "203.0.113.2", -time.Minute, "203.0.113.1", ""},
		{"its time is over", "203.0.113.2", time.Second, "203.0.113.2", ""},
		{"it was asked a moment ago", "203.0.113.3", -time.Minute, "203.0.113.2", ""},
		{"it leads inside now", "10.1.2.3", time.Second, standIn.String(), policy.RuleDNSName},
		{"it is back", "203.0.113.4", time.Second, "203.0.113.4", ""},
		{"it is gone", "", time.Second, standIn.String(), policy.RuleDNSName},
		{"it is back again", "203.0.113.5", time.Second, "203.0.113.5", ""},
	} {
		answer.Store(c.answer)
		age(c.age)
		if addr, rule := aim(); addr != c.addr || rule != c.rule {
			t.Errorf("%s: %s by %q, want %s by %q", c.what, addr, rule, c.addr, c.rule)
		}
	}
	// While no resolver answers, old addresses hold for a while, and no longer.
	stop()
	age(time.Second)
	if addr, rule := aim(); addr != "203.0.113.5" || rule != "" {
		t.Errorf("without a resolver: %s by %q", addr, rule)
	}
	age(staleLife + time.Second)
	if _, rule := aim(); rule != policy.RuleDNSName {
		t.Errorf("without a resolver for long: by %q", rule)
	}
	if _, _, rule := g.aim(t.Context(), policy.Flow{Protocol: policy.TCP, Addr: netip.MustParseAddr("198.19.200.200"), Port: 443}); rule != "reserved" {
		t.Errorf("an address that was never given: by %q", rule)
	}
}
