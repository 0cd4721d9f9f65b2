package process

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"mediasandbox/runtime/gate/policy"
	"mediasandbox/runtime/sandbox"
)

var open = policy.Policy{Mode: sandbox.NetworkPublic, Host: policy.NewHostSet([]netip.Prefix{netip.MustParsePrefix("192.0.2.2/32")})}

func packed(t testing.TB, m *dns.Msg) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func question(name string, qtype uint16, change ...func(*dns.Msg)) *dns.Msg {
	m := new(dns.Msg).SetQuestion(name, qtype)
	for _, f := range change {
		f(m)
	}
	return m
}

func records(t testing.TB, lines ...string) []dns.RR {
	t.Helper()
	var out []dns.RR
	for _, l := range lines {
		rr, err := dns.NewRR(l)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rr)
	}
	return out
}

// TestReadQuery holds what is answered without asking anybody.
func TestReadQuery(t *testing.T) {
	none := policy.Policy{Mode: sandbox.NetworkNone}
	for _, c := range []struct {
		name    string
		p       policy.Policy
		m       *dns.Msg
		rcode   int // -1: it is asked
		refused string
	}{
		{"a", open, question("example.com.", dns.TypeA), -1, ""},
		{"upper case", open, question("EXAMPLE.com.", dns.TypeTXT), -1, ""},
		{"srv", open, question("_http._tcp.example.com.", dns.TypeSRV), -1, ""},
		{"the root", open, question(".", dns.TypeNS), -1, ""},
		{"public reverse", open, question("1.1.1.1.in-addr.arpa.", dns.TypePTR), -1, ""},
		{"half a reverse", open, question("1.10.in-addr.arpa.", dns.TypePTR), -1, ""},
		{"private reverse", open, question("1.0.0.10.in-addr.arpa.", dns.TypePTR), dns.RcodeNameError, "private"},
		{"host's reverse", open, question("2.2.0.192.IN-ADDR.arpa.", dns.TypePTR), dns.RcodeNameError, "host"},
		{"reverse of loopback", open, question("1."+strings.Repeat("0.", 31)+"ip6.arpa.", dns.TypePTR), dns.RcodeNameError, "loopback"},
		{"https", open, question("example.com.", dns.TypeHTTPS), dns.RcodeSuccess, ""},
		{"any", open, question("example.com.", dns.TypeANY), dns.RcodeNotImplemented, ""},
		{"zone transfer", open, question("example.com.", dns.TypeAXFR), dns.RcodeNotImplemented, ""},
		{"null", open, question("example.com.", dns.TypeNULL), dns.RcodeNotImplemented, ""},
		{"chaos", open, question("version.bind.", dns.TypeTXT, func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }), dns.RcodeNotImplemented, ""},
		{"update", open, question("example.com.", dns.TypeSOA, func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }), dns.RcodeNotImplemented, ""},
		{"two questions", open, question("a.test.", dns.TypeA, func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }), dns.RcodeFormatError, ""},
		{"no question", open, &dns.Msg{MsgHdr: dns.MsgHdr{Id: 1}}, dns.RcodeFormatError, ""},
		{"an answer in it", open, question("a.test.", dns.TypeA, func(m *dns.Msg) { m.Answer = records(t, "a.test. 1 IN A 1.1.1.1") }), dns.RcodeFormatError, ""},
		{"edns of tomorrow", open, question("a.test.", dns.TypeA, func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }), dns.RcodeBadVers, ""},
		{"nul", open, question(`a\000b.test.`, dns.TypeA), dns.RcodeNameError, policy.RuleDNSName},
		{"dot in a label", open, question(`a\.b.test.`, dns.TypeA), dns.RcodeNameError, policy.RuleDNSName},
		{"blank", open, question(`a\ b.test.`, dns.TypeA), dns.RcodeNameError, policy.RuleDNSName},
		{"above ascii", open, question(`b\195\188cher.test.`, dns.TypeA), dns.RcodeNameError, policy.RuleDNSName},
		{"mode none", none, question("example.com.", dns.TypeA), dns.RcodeNameError, policy.RuleModeNone},
	} {
		q, reply := readQuery(packed(t, c.m), c.p)
		if (reply == nil) != (c.rcode == -1) || reply != nil && reply.Rcode != c.rcode {
			t.Errorf("%s: reply %v, want code %d", c.name, reply, c.rcode)
			continue
		}
		if reply != nil && (reply.Id != c.m.Id || !reply.Response || len(reply.Answer) > 0) {
			t.Errorf("%s: not an empty reply to it: %v", c.name, reply)
		}
		var rules []string
		if q != nil {
			for _, r := range q.refused {
				rules = append(rules, r.rule)
			}
		}
		if strings.Join(rules, " ") != c.refused {
			t.Errorf("%s: refused %q, want %q", c.name, rules, c.refused)
		}
	}
	for name, raw := range map[string][]byte{
		"nothing": nil, "half a header": {1, 2, 3}, "a reply": packed(t, new(dns.Msg).SetReply(question("a.test.", dns.TypeA))),
		"a broken reply": append(packed(t, &dns.Msg{MsgHdr: dns.MsgHdr{Response: true}})[:12], 1),
	} {
		if q, reply := readQuery(raw, open); q != nil || reply != nil {
			t.Errorf("%s: %v, %v, want silence", name, q, reply)
		}
	}
}

func TestFilter(t *testing.T) {
	const ok = dns.RcodeSuccess
	for _, c := range []struct {
		name     string
		qtype    uint16
		rcode    int
		answer   []string
		want     []string
		wantCode int
		refused  []string
	}{
		{"plain", dns.TypeA, ok, []string{"x. 1 IN A 1.1.1.1"}, []string{"1.1.1.1"}, ok, nil},
		{"chain", dns.TypeA, ok, []string{"x. 1 IN CNAME y.", "y. 1 IN A 1.1.1.1"}, []string{"y.", "1.1.1.1"}, ok, nil},
		{"rebinding", dns.TypeA, ok, []string{"x. 1 IN A 10.0.0.1"}, nil, dns.RcodeNameError, []string{"private"}},
		{"rebinding at the end of a chain", dns.TypeA, ok, []string{"x. 1 IN CNAME y.", "y. 1 IN A 169.254.169.254"}, nil, dns.RcodeNameError, []string{"metadata"}},
		{"the host", dns.TypeA, ok, []string{"x. 1 IN A 192.0.2.2"}, nil, dns.RcodeNameError, []string{"host"}},
		{"mixed", dns.TypeA, ok, []string{"x. 1 IN A 10.0.0.1", "x. 1 IN A 1.1.1.1"}, []string{"1.1.1.1"}, ok, []string{"private"}},
		{"an address where none was asked for", dns.TypeTXT, ok, []string{"x. 1 IN TXT hi", "x. 1 IN A 10.0.0.1"}, nil, dns.RcodeNameError, []string{"private"}},
		{"no address in it", dns.TypeA, ok, []string{"x. 1 IN A"}, nil, ok, nil},
		{"ipv6", dns.TypeAAAA, ok, []string{"x. 1 IN AAAA 2606:4700::1111"}, nil, ok, nil},
		{"ipv6 inside", dns.TypeAAAA, ok, []string{"x. 1 IN AAAA fe80::1"}, nil, ok, nil},
		{"hints", dns.TypeA, ok, []string{"x. 1 IN HTTPS 1 . ipv4hint=10.0.0.1", "x. 1 IN A 1.1.1.1"}, []string{"1.1.1.1"}, ok, nil},
		{"no such name", dns.TypeA, dns.RcodeNameError, nil, nil, dns.RcodeNameError, nil},
		{"server failed", dns.TypeA, dns.RcodeRefused, nil, nil, dns.RcodeServerFailure, nil},
		{"nothing of that type", dns.TypeA, ok, nil, nil, ok, nil},
	} {
		q, reply := readQuery(packed(t, question("x.", c.qtype)), open)
		if reply != nil {
			t.Fatalf("%s: answered without asking: %v", c.name, reply)
		}
		from := &dns.Msg{Answer: records(t, c.answer...), Extra: records(t, "inside. 1 IN A 10.0.0.1")}
		from.Rcode = c.rcode
		from.Ns = records(t, "x. 1 IN SOA ns. me. 1 1 1 1 1", "x. 1 IN NS inside.")
		m := q.filter(from, open)
		var got, rules []string
		for _, rr := range m.Answer {
			got = append(got, dns.Field(rr, 1))
		}
		for _, r := range q.refused {
			rules = append(rules, r.rule)
		}
		if !slices.Equal(got, c.want) || m.Rcode != c.wantCode || !slices.Equal(rules, c.refused) {
			t.Errorf("%s: %v code %d refused %v, want %v code %d refused %v", c.name, got, m.Rcode, rules, c.want, c.wantCode, c.refused)
		}
		if len(m.Extra) > 0 || len(m.Ns) > 1 {
			t.Errorf("%s: %v %v came along", c.name, m.Ns, m.Extra)
		}
	}
}

func TestReplySize(t *testing.T) {
	var lines []string
	for range 200 {
		lines = append(lines, "x. 1 IN TXT "+strings.Repeat("a", 50))
	}
	from := &dns.Msg{Answer: records(t, lines...)}
	for _, c := range []struct {
		edns uint16
		over int
	}{{0, 512}, {100, 512}, {1232, 1232}, {65535, maxReply}} {
		q, _ := readQuery(packed(t, question("x.", dns.TypeTXT, func(m *dns.Msg) {
			if c.edns > 0 {
				m.SetEdns0(c.edns, false)
			}
		})), open)
		b := pack(q.filter(from, open), q.limit)
		m := new(dns.Msg)
		if err := m.Unpack(b); err != nil || len(b) > c.over || !m.Truncated || (m.IsEdns0() != nil) != (c.edns > 0) {
			t.Errorf("with EDNS %d: %d bytes, truncated %v, %v", c.edns, len(b), m.Truncated, err)
		}
		if b := pack(q.filter(from, open), 0); len(b) < 200*50 {
			t.Errorf("over TCP: %d bytes", len(b))
		}
	}
}

func TestAnsweredBy(t *testing.T) {
	q, _ := readQuery(packed(t, question("MiXed.test.", dns.TypeA)), open)
	out := q.upstream()
	good := func() *dns.Msg { return new(dns.Msg).SetReply(out.Copy()) }
	if !q.answeredBy(out, good()) {
		t.Error("a reply is not taken")
	}
	for name, spoil := range map[string]func(*dns.Msg){
		"id":        func(m *dns.Msg) { m.Id++ },
		"query":     func(m *dns.Msg) { m.Response = false },
		"name":      func(m *dns.Msg) { m.Question[0].Name = "other.test." },
		"type":      func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeTXT },
		"questions": func(m *dns.Msg) { m.Question = nil },
	} {
		m := good()
		spoil(m)
		if q.answeredBy(out, m) {
			t.Errorf("a reply with another %s is taken", name)
		}
	}
}

// FuzzDNS takes what a guest could send and what a resolver could answer. What
// comes out is a message, and no address in it is denied.
func FuzzDNS(f *testing.F) {
	reply := new(dns.Msg).SetReply(question("x.", dns.TypeA))
	reply.Answer = records(f, "x. 1 IN CNAME y.", "y. 1 IN A 10.0.0.1", "y. 1 IN A 1.1.1.1", "y. 1 IN AAAA ::1", "y. 1 IN HTTPS 1 . ipv4hint=10.0.0.1")
	f.Add(packed(f, question("x.", dns.TypeA)), packed(f, reply), false)
	f.Add(packed(f, question("1.0.0.10.in-addr.arpa.", dns.TypePTR)), packed(f, reply), false)
	f.Add(packed(f, question("x.", dns.TypeTXT, func(m *dns.Msg) { m.SetEdns0(1232, true) })), packed(f, reply), false)
	f.Add(packed(f, question("A.tEst.", dns.TypeA)), packed(f, reply), true)
	f.Add(packed(f, question("a.test.evil.", dns.TypeTXT)), packed(f, reply), true)
	list := open
	list.Mode = sandbox.NetworkAllowlist
	list.Rules = []sandbox.NetworkRule{{Allow: true, Name: "*.test"}}
	f.Fuzz(func(t *testing.T, raw, answer []byte, listed bool) {
		open := open
		if listed {
			open = list
		}
		q, m := readQuery(raw, open)
		if q != nil && m == nil {
			if listed && !strings.HasSuffix(strings.ToLower(q.question.Name), ".test.") {
				t.Fatalf("%q is asked for, and is on no list", q.question.Name)
			}
			if strings.Contains(q.question.Name, `\`) {
				t.Fatalf("%q is asked for", q.question.Name)
			}
			if out, err := q.upstream().Pack(); err != nil || len(out) > 512 {
				t.Fatalf("the question %q: %d bytes, %v", q.question.Name, len(out), err)
			}
			from := new(dns.Msg)
			if from.Unpack(answer) != nil {
				return
			}
			m = q.filter(from, open)
			for _, rr := range m.Answer {
				a, isA := rr.(*dns.A)
				if _, is6 := rr.(*dns.AAAA); is6 {
					t.Fatalf("an IPv6 address is handed out: %v", rr)
				}
				if !isA {
					continue
				}
				if addr, ok := netip.AddrFromSlice(a.A); !ok || !open.Could(policy.Flow{Name: q.name, Addr: addr.Unmap()}).Allow {
					t.Fatalf("a denied address is handed out: %v", rr)
				}
			}
		}
		if b := pack(m, 512); b != nil {
			if err := new(dns.Msg).Unpack(b); err != nil {
				t.Fatalf("the reply can't be read: %v", err)
			}
			if len(b) > 512 {
				t.Fatalf("the reply has %d bytes", len(b))
			}
		}
	})
}
