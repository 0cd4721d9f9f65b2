package policy

import (
	"net/netip"
	"strings"
	"testing"

	"mediasandbox/runtime/sandbox"
)

func public(hosts ...string) Policy {
	var prefixes []netip.Prefix
	for _, h := range hosts {
		prefixes = append(prefixes, netip.MustParsePrefix(h))
	}
	return Policy{Mode: sandbox.NetworkPublic, Host: NewHostSet(prefixes)}
}

func TestAddress(t *testing.T) {
	p := public("203.0.113.7/32", "198.51.100.0/28", "2001:db8:1::5/128", "192.168.1.1/32")
	for addr, want := range map[string]string{
		// allowed
		"1.1.1.1": "", "8.8.8.8": "", "192.0.2.1": "", "198.51.100.16": "", "203.0.113.8": "",
		"11.0.0.0": "", "9.255.255.255": "", "172.15.255.255": "", "172.32.0.0": "", "192.167.255.255": "", "192.169.0.0": "",
		"100.63.255.255": "", "100.128.0.0": "", "126.255.255.255": "", "128.0.0.0": "", "169.253.255.255": "", "169.255.0.0": "",
		"198.17.255.255": "", "198.20.0.0": "", "223.255.255.255": "", "192.0.1.0": "",
		"2606:4700::1111": "", "2001:db8::1": "", "2001:4860:4860::8888": "",
		"::ffff:1.1.1.1": "", "64:ff9b::1.1.1.1": "", "2002:101:101::1": "", "::1.1.1.1": "",
		// the host's own, in every spelling
		"203.0.113.7": "host", "::ffff:203.0.113.7": "host", "198.51.100.15": "host", "2001:db8:1::5": "host", "2001:db8:1::5%eth0": "host",
		"192.168.1.1": "host", "64:ff9b::203.0.113.7": "nat64:host", "2002:cb00:7107::1": "6to4:host",
		// the table
		"0.0.0.0": "unspecified", "0.1.2.3": "unspecified", "::": "unspecified",
		"127.0.0.1": "loopback", "127.255.255.254": "loopback", "::1": "loopback", "::ffff:127.0.0.1": "loopback",
		"169.254.169.254": "metadata", "::ffff:169.254.169.254": "metadata", "fd00:ec2::254": "metadata", "168.63.129.16": "metadata",
		"100.100.100.200": "metadata", "192.0.0.192": "metadata", "169.254.170.2": "metadata", "fd20:ce::254": "metadata",
		"169.254.0.1": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "link-local", "febf::1": "link-local",
		"10.0.0.0": "private", "10.255.255.255": "private", "172.16.0.0": "private", "172.31.255.255": "private",
		"192.168.0.0": "private", "192.168.255.255": "private", "fec0::1": "site-local",
		"100.64.0.0": "cgnat", "100.127.255.255": "cgnat",
		"fc00::": "unique-local", "fdff:ffff::1": "unique-local",
		"224.0.0.1": "multicast", "239.255.255.255": "multicast", "ff02::1": "multicast",
		"255.255.255.255": "broadcast", "240.0.0.0": "reserved", "255.255.255.254": "reserved",
		"192.0.0.1": "reserved", "198.19.255.255": "reserved", "192.88.99.1": "reserved", "100::1": "reserved", "64:ff9b:1::7f00:1": "reserved",
		"198.18.0.2": "gate", "198.18.0.3": "gate",
		// IPv4 inside IPv6
		"::127.0.0.1": "ipv4-compatible:loopback", "::10.0.0.1": "ipv4-compatible:private", "::ffff:0:10.0.0.1": "ipv4-translated:private",
		"64:ff9b::10.0.0.1": "nat64:private", "64:ff9b::a9fe:a9fe": "nat64:metadata",
		"2002:7f00:1::": "6to4:loopback", "2002:a9fe:a9fe::1": "6to4:metadata", "2002:c0a8:101::1": "6to4:host",
		"2001:0:a00:1::1":                         "teredo:private", // the server
		"2001:0:101:101::f5ff:fffe":               "teredo:private", // the client, inverted: 10.0.0.1
		"2606:4700::5efe:10.0.0.1":                "isatap:private",
		"2606:4700::200:5efe:169.254.169.254":     "isatap:metadata",
		"2001:db8:1::5efe:1.1.1.1":                "",
		"2001:0000:0101:0101:0000:0000:fefe:fefe": "", // 1.1.1.1 at 1.1.1.1
	} {
		v := p.Address(netip.MustParseAddr(addr))
		if v.Allow != (want == "") || !v.Allow && v.Rule != want {
			t.Errorf("%s: %+v, want rule %q", addr, v, want)
		}
	}
	if v := p.Address(netip.Addr{}); v.Allow || v.Rule != RuleInvalid {
		t.Errorf("no address: %+v", v)
	}
}

func TestDecide(t *testing.T) {
	addr := netip.MustParseAddr
	for _, c := range []struct {
		name string
		p    Policy
		f    Flow
		want Verdict
	}{
		{"web", public(), Flow{Protocol: TCP, Addr: addr("1.1.1.1"), Port: 443}, Verdict{true, RuleModeOpen}},
		{"quic", public(), Flow{Protocol: UDP, Addr: addr("1.1.1.1"), Port: 443}, Verdict{true, RuleModeOpen}},
		{"another resolver", public(), Flow{Protocol: UDP, Addr: addr("8.8.8.8"), Port: 53}, Verdict{true, RuleModeOpen}},
		{"mail", public(), Flow{Protocol: TCP, Addr: addr("1.1.1.1"), Port: 25}, Verdict{false, RuleSMTP}},
		{"mail over udp is none", public(), Flow{Protocol: UDP, Addr: addr("1.1.1.1"), Port: 25}, Verdict{true, RuleModeOpen}},
		{"submission", public(), Flow{Protocol: TCP, Addr: addr("1.1.1.1"), Port: 587}, Verdict{true, RuleModeOpen}},
		{"port 0", public(), Flow{Protocol: TCP, Addr: addr("1.1.1.1"), Port: 0}, Verdict{false, RuleInvalid}},
		{"ping", public(), Flow{Protocol: ICMP, Addr: addr("1.1.1.1"), Port: 0}, Verdict{false, RuleProtocol}},
		{"sctp", public(), Flow{Protocol: IP, Addr: addr("1.1.1.1"), Port: 80}, Verdict{false, RuleProtocol}},
		{"nothing", public(), Flow{}, Verdict{false, RuleProtocol}},
		{"mode none", Policy{Mode: sandbox.NetworkNone}, Flow{Protocol: TCP, Addr: addr("1.1.1.1"), Port: 443}, Verdict{false, RuleModeNone}},
		{"an address says more than the mode", Policy{Mode: sandbox.NetworkNone}, Flow{Protocol: TCP, Addr: addr("10.0.0.1"), Port: 443}, Verdict{false, "private"}},
		{"the zero policy", Policy{}, Flow{Protocol: TCP, Addr: addr("1.1.1.1"), Port: 443}, Verdict{false, RuleModeNone}},
		{"the host's mail", public("1.1.1.1/32"), Flow{Protocol: TCP, Addr: addr("1.1.1.1"), Port: 25}, Verdict{false, RuleHost}},
	} {
		if got := c.p.Decide(c.f); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestHostSet(t *testing.T) {
	s := NewHostSet([]netip.Prefix{
		{}, netip.MustParsePrefix("10.1.2.3/8"), netip.MustParsePrefix("10.9.9.9/8"),
		netip.MustParsePrefix("::ffff:1.2.3.4/128"), netip.MustParsePrefix("1.2.3.4/32"),
	})
	if s.Len() != 2 {
		t.Errorf("%d entries, want 2", s.Len())
	}
	for addr, want := range map[string]bool{"10.200.0.1": true, "1.2.3.4": true, "1.2.3.5": false, "11.0.0.0": false} {
		if s.Contains(netip.MustParseAddr(addr)) != want {
			t.Errorf("Contains(%s) is not %v", addr, want)
		}
	}
}

func TestKind(t *testing.T) {
	for rule, want := range map[string]string{
		"private": "private", "mapped:private": "private", "operator: allow tcp [::]:80": "operator",
		"chat: deny a.test:80-90": "chat", "mode-public": "mode-public", "flow-limit": "flow-limit",
	} {
		if got := Kind(rule); got != want {
			t.Errorf("%q is a rule of kind %q, want %q", rule, got, want)
		}
	}
}

// FuzzPolicy holds the policy against a second, slower reading of the same
// promises, over any sixteen bytes.
func FuzzPolicy(f *testing.F) {
	for _, s := range []string{"127.0.0.1", "::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "2001::", "1.1.1.1", "fe80::1", "2606:4700::5efe:a00:1"} {
		a := netip.MustParseAddr(s)
		f.Add(a.AsSlice(), uint16(80), true)
	}
	const host = "93.184.216.34"
	p := public(host + "/32")
	f.Fuzz(func(t *testing.T, b []byte, port uint16, tcp bool) {
		addr, ok := netip.AddrFromSlice(b)
		flow := Flow{Protocol: UDP, Addr: addr, Port: port}
		if tcp {
			flow.Protocol = TCP
		}
		v := p.Decide(flow)
		if v.Rule == "" {
			t.Fatalf("%v: a verdict without a rule", flow)
		}
		if !v.Allow {
			return
		}
		if !ok || port == 0 || tcp && port == 25 {
			t.Fatalf("%v is allowed", flow)
		}
		for _, a := range append(windows(addr), addr.Unmap()) {
			if bad(a) || a == netip.MustParseAddr(host) {
				t.Fatalf("%v is allowed, and holds %v", flow, a)
			}
		}
		if strings.Contains(v.Rule, ":") {
			t.Fatalf("%v is allowed by %q", flow, v.Rule)
		}
	})
}

// bad asks the standard library.
func bad(a netip.Addr) bool {
	return a.IsLoopback() || a.IsPrivate() || a.IsMulticast() || a.IsUnspecified() ||
		a.IsLinkLocalUnicast() || a.IsLinkLocalMulticast() || a.IsInterfaceLocalMulticast()
}

// windows returns the IPv4 addresses where well-known prefixes carry them.
func windows(a netip.Addr) []netip.Addr {
	if !a.Is6() || a.Is4In6() {
		return nil
	}
	b := a.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	switch {
	case b[0] == 0x20 && b[1] == 0x02:
		return []netip.Addr{at(2)}
	case b[0] == 0x20 && b[1] == 0x01 && b[2] == 0 && b[3] == 0:
		return []netip.Addr{at(4)}
	case [12]byte(b[:12]) == [12]byte{0, 0x64, 0xff, 0x9b}:
		return []netip.Addr{at(12)}
	}
	return nil
}
