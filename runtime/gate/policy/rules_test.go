package policy

import (
	"net/netip"
	"testing"

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

const (
	public1   = sandbox.NetworkPublic
	allowlist = sandbox.NetworkAllowlist
	modeNone  = sandbox.NetworkNone
)

// ask is one question of a table: tcp to addr:port, by name if there is one.
type ask struct {
	addr string
	port uint16
	name string
	want string // the deciding rule, with "+" in front when it allows
}

func (a ask) flow() Flow {
	f := Flow{Protocol: TCP, Port: a.port, Name: a.name}
	if a.addr != "" {
		f.Addr = netip.MustParseAddr(a.addr)
	}
	return f
}

func (v Verdict) text() string {
	if v.Allow {
		return "+" + v.Rule
	}
	return v.Rule
}

// TestRules holds the order of evaluation: what is built in, the operator, the
// chat, the modes.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		name           string
		mode, hostMode sandbox.NetworkMode
		chat, host     []string
		asks           []ask
	}{
		{"half and half opens nothing", public1, "", nil, []string{"allow 0.0.0.0/1", "allow 128.0.0.0/1", "allow tcp 0.0.0.0/1:1-65535", "allow tcp 128.0.0.0/1:1-65535", "allow tcp *:1-65535"}, []ask{
			{"127.0.0.1", 80, "", "loopback"}, {"169.254.169.254", 80, "", "metadata"}, {"10.0.0.1", 80, "", "private"},
			{"192.168.0.1", 443, "", "private"}, {"100.64.0.1", 443, "", "cgnat"}, {"1.1.1.1", 25, "", "smtp"}, {"1.1.1.1", 80, "", "+operator: allow 0.0.0.0/1"},
			{"224.0.0.1", 80, "", "multicast"}, {"255.255.255.255", 80, "", "broadcast"}, {"198.18.0.2", 80, "", "gate"}, {"192.0.2.2", 80, "", "host"},
			{"::ffff:10.0.0.1", 80, "", "private"}, {"64:ff9b::a00:1", 80, "", "nat64:private"}, {"2002:a00:1::1", 80, "", "6to4:private"},
		}},
		{"a part of a private range", public1, "", nil, []string{"allow tcp 10.1.0.0/16:443", "allow 192.168.0.0/16", "allow tcp 100.64.1.1:80-90", "allow fd00:1::/32", "allow tcp [fd00:2::/32]:443"}, []ask{
			{"10.1.2.3", 443, "", "+operator: allow tcp 10.1.0.0/16:443"}, {"10.1.2.3", 80, "", "private"}, {"10.2.0.1", 443, "", "private"},
			{"10.1.2.3", 443, "in.test", "+operator: allow tcp 10.1.0.0/16:443"},
			{"192.168.1.1", 443, "", "private"}, {"100.64.1.1", 85, "", "+operator: allow tcp 100.64.1.1:80-90"}, {"100.64.1.1", 91, "", "cgnat"},
			{"fd00:1::1", 443, "", "unique-local"}, {"fd00:2::1", 443, "", "+operator: allow tcp [fd00:2::/32]:443"},
			{"64:ff9b::10.1.2.3", 443, "", "nat64:private"},
		}},
		{"a private range by name, or wider than it is", public1, "", nil, []string{"allow tcp in.test:443", "allow tcp 8.0.0.0/5:443", "allow tcp 192.0.0.0/8:443"}, []ask{
			{"10.1.2.3", 443, "in.test", "private"}, {"10.1.2.3", 443, "", "private"}, {"192.168.1.1", 443, "", "private"},
		}},
		{"what nobody can open", public1, "", nil, []string{"allow tcp 127.0.0.1:80", "allow tcp 169.254.0.0/16:80", "allow tcp 100.100.100.200:80", "allow tcp 198.18.0.0/15:80", "allow tcp 192.0.2.2:80", "allow tcp [fd00:ec2::254]:80"}, []ask{
			{"127.0.0.1", 80, "", "loopback"}, {"169.254.169.254", 80, "", "metadata"}, {"169.254.1.1", 80, "", "link-local"},
			{"100.100.100.200", 80, "", "metadata"}, {"198.18.0.2", 80, "", "gate"}, {"198.18.5.5", 80, "", "reserved"}, {"192.0.2.2", 80, "", "host"}, {"fd00:ec2::254", 80, "", "metadata"},
		}},
		{"mail", public1, "", nil, []string{"allow tcp mail.test:25", "allow tcp 203.0.113.0/24:25", "allow tcp 1.1.1.1:20-30", "allow tcp 10.0.0.0/8:1-1000"}, []ask{
			{"9.9.9.9", 25, "mail.test", "+operator: allow tcp mail.test:25"}, {"9.9.9.9", 25, "other.test", "smtp"}, {"203.0.113.9", 25, "", "+operator: allow tcp 203.0.113.0/24:25"},
			{"1.1.1.1", 25, "", "smtp"}, {"1.1.1.1", 26, "", "+operator: allow tcp 1.1.1.1:20-30"}, {"10.0.0.1", 25, "", "private"}, {"10.0.0.1", 26, "", "+operator: allow tcp 10.0.0.0/8:1-1000"},
		}},
		{"the first that matches", public1, "", nil, []string{"allow 1.1.1.1", "deny 1.1.1.0/24", "deny udp *:443"}, []ask{
			{"1.1.1.1", 80, "", "+operator: allow 1.1.1.1"}, {"1.1.1.2", 80, "", "operator: deny 1.1.1.0/24"}, {"9.9.9.9", 443, "", "+mode-public"},
		}},
		{"an operator's denial of what is closed says so", public1, "", nil, []string{"deny 10.0.0.0/8", "allow tcp 10.0.0.0/8:80"}, []ask{
			{"10.0.0.1", 80, "", "operator: deny 10.0.0.0/8"},
		}},
		{"a chat only narrows", public1, "", []string{"allow tcp 10.1.0.0/16:443", "allow tcp 1.1.1.1:25", "deny 9.9.9.9", "allow *"}, []string{"deny 8.8.8.8", "allow tcp 10.2.0.0/16:443"}, []ask{
			{"10.1.2.3", 443, "", "private"}, {"1.1.1.1", 25, "", "smtp"}, {"8.8.8.8", 53, "", "operator: deny 8.8.8.8"}, {"9.9.9.9", 53, "", "chat: deny 9.9.9.9"},
			{"10.2.0.1", 443, "", "+operator: allow tcp 10.2.0.0/16:443"}, {"1.1.1.1", 80, "", "+chat: allow *"},
		}},
		{"a chat's allowlist", allowlist, "", []string{"deny evil.pkg.test", "allow tcp *.pkg.test:443", "allow 203.0.113.0/24"}, []string{"deny tcp b.pkg.test:443"}, []ask{
			{"9.9.9.9", 443, "a.pkg.test", "+chat: allow tcp *.pkg.test:443"}, {"9.9.9.9", 443, "x.a.pkg.test", "+chat: allow tcp *.pkg.test:443"},
			{"9.9.9.9", 443, "pkg.test", "mode-allowlist"}, {"9.9.9.9", 443, "notpkg.test", "mode-allowlist"}, {"9.9.9.9", 443, "a.pkg.test.evil.test", "mode-allowlist"},
			{"9.9.9.9", 80, "a.pkg.test", "mode-allowlist"}, {"9.9.9.9", 443, "evil.pkg.test", "chat: deny evil.pkg.test"}, {"9.9.9.9", 443, "b.pkg.test", "operator: deny tcp b.pkg.test:443"},
			{"9.9.9.9", 443, "", "mode-allowlist"}, {"203.0.113.1", 22, "", "+chat: allow 203.0.113.0/24"}, {"10.0.0.1", 443, "a.pkg.test", "private"}, {"127.0.0.1", 443, "a.pkg.test", "loopback"},
		}},
		{"an operator's allowlist", public1, allowlist, []string{"deny tcp *:80"}, []string{"allow *.debian.test", "allow tcp 1.1.1.1:80"}, []ask{
			{"9.9.9.9", 443, "ftp.debian.test", "+operator: allow *.debian.test"}, {"9.9.9.9", 80, "ftp.debian.test", "chat: deny tcp *:80"},
			{"9.9.9.9", 443, "other.test", "mode-allowlist"}, {"9.9.9.9", 443, "", "mode-allowlist"}, {"1.1.1.1", 80, "", "chat: deny tcp *:80"},
		}},
		{"both lists must have it", allowlist, allowlist, []string{"allow a.test", "allow b.test"}, []string{"allow b.test", "allow c.test"}, []ask{
			{"9.9.9.9", 443, "a.test", "mode-allowlist"}, {"9.9.9.9", 443, "b.test", "+operator: allow b.test"}, {"9.9.9.9", 443, "c.test", "mode-allowlist"},
		}},
		{"none is none", modeNone, "", []string{"allow *"}, []string{"allow *"}, []ask{{"9.9.9.9", 443, "", "mode-none"}}},
		{"the operator's none", public1, modeNone, []string{"allow *"}, []string{"allow *"}, []ask{{"9.9.9.9", 443, "", "mode-none"}}},
	} {
		p := Policy{
			Mode: c.mode, Rules: rulesOf(t, c.chat...), Operator: sandbox.NetworkOperator{Mode: c.hostMode, Rules: rulesOf(t, c.host...)},
			Host: NewHostSet([]netip.Prefix{netip.MustParsePrefix("192.0.2.2/32")}),
		}
		for _, a := range c.asks {
			if got := p.Decide(a.flow()); got.text() != a.want {
				t.Errorf("%s: %+v: %s, want %s", c.name, a, got.text(), a.want)
			}
		}
	}
}

// TestCould asks about flows of which only a part is known.
func TestCould(t *testing.T) {
	list := Policy{Mode: allowlist, Rules: rulesOf(t, "deny tcp a.test:80", "allow tcp a.test", "deny b.test", "allow *.b.test", "allow b.test", "allow tcp 203.0.113.0/24:443")}
	open := Policy{Mode: public1, Rules: rulesOf(t, "deny tcp a.test:80", "deny *.ads.test")}
	inside := Policy{Mode: public1, Operator: sandbox.NetworkOperator{Rules: rulesOf(t, "allow tcp 10.1.0.0/16:443")}}
	addr := netip.MustParseAddr
	for _, c := range []struct {
		what string
		p    Policy
		f    Flow
		want string
	}{
		{"a name on one port", list, Flow{Name: "a.test"}, "+chat: allow tcp a.test"},
		{"a name that is denied first", list, Flow{Name: "b.test"}, "chat: deny b.test"},
		{"a name by wildcard", list, Flow{Name: "x.b.test"}, "+chat: allow *.b.test"},
		{"a name that might lead into a CIDR", list, Flow{Name: "c.test"}, "mode-allowlist"},
		{"the root", list, Flow{Name: ""}, "mode-allowlist"},
		{"an address of a CIDR", list, Flow{Addr: addr("203.0.113.5")}, "+chat: allow tcp 203.0.113.0/24:443"},
		{"another address", list, Flow{Addr: addr("1.1.1.1")}, "mode-allowlist"},
		{"an allowed name's address", list, Flow{Name: "a.test", Addr: addr("1.1.1.1")}, "+chat: allow tcp a.test"},
		{"an allowed name that leads inside", list, Flow{Name: "a.test", Addr: addr("10.0.0.1")}, "private"},
		{"any name in public", open, Flow{Name: "c.test"}, "+mode-public"},
		{"a name that one port is denied of", open, Flow{Name: "a.test"}, "+mode-public"},
		{"a name that is denied", open, Flow{Name: "x.ads.test"}, "chat: deny *.ads.test"},
		{"a part that was opened", inside, Flow{Addr: addr("10.1.0.1")}, "+operator: allow tcp 10.1.0.0/16:443"},
		{"a part that was not", inside, Flow{Addr: addr("10.2.0.1")}, "private"},
	} {
		if got := c.p.Could(c.f); got.text() != c.want {
			t.Errorf("%s: %s, want %s", c.what, got.text(), c.want)
		}
	}
	for name, want := range map[string]bool{"a.test": true, "x.ads.test": true, "ads.test": false, "c.test": false} {
		if open.ByName(name) != want {
			t.Errorf("ByName(%s) is not %v", name, want)
		}
	}
	if !list.ByName("anything.test") {
		t.Error("in an allowlist every name counts")
	}
}

func TestService(t *testing.T) {
	s, err := sandbox.ParseNetworkService("index.internal:443 = 127.0.0.1:8443")
	if err != nil {
		t.Fatal(err)
	}
	host := sandbox.NetworkOperator{Services: []sandbox.NetworkService{s}}
	for _, c := range []struct {
		what string
		p    Policy
		f    Flow
		want string
		ok   bool
	}{
		{"mapped", Policy{Mode: public1, Operator: host}, Flow{Protocol: TCP, Name: "index.internal", Port: 443}, "+service", true},
		{"for any port", Policy{Mode: public1, Operator: host}, Flow{Name: "index.internal"}, "+service", true},
		{"another port", Policy{Mode: public1, Operator: host}, Flow{Protocol: TCP, Name: "index.internal", Port: 80}, "service", true},
		{"udp", Policy{Mode: public1, Operator: host}, Flow{Protocol: UDP, Name: "index.internal", Port: 443}, "service", true},
		{"not in the chat's list", Policy{Mode: allowlist, Operator: host}, Flow{Protocol: TCP, Name: "index.internal", Port: 443}, "mode-allowlist", true},
		{"in the chat's list", Policy{Mode: allowlist, Operator: host, Rules: rulesOf(t, "allow index.internal")}, Flow{Protocol: TCP, Name: "index.internal", Port: 443}, "+service", true},
		{"denied by the chat", Policy{Mode: public1, Operator: host, Rules: rulesOf(t, "deny *.internal")}, Flow{Protocol: TCP, Name: "index.internal", Port: 443}, "chat: deny *.internal", true},
		{"in mode none", Policy{Mode: modeNone, Operator: host}, Flow{Protocol: TCP, Name: "index.internal", Port: 443}, "mode-none", true},
		{"another name", Policy{Mode: public1, Operator: host}, Flow{Protocol: TCP, Name: "x.internal", Port: 443}, "", false},
		{"no name", Policy{Mode: public1, Operator: host}, Flow{Protocol: TCP, Port: 443}, "", false},
	} {
		to, v, ok := c.p.Service(c.f)
		if v.text() != c.want || ok != c.ok || v.Allow && to != s.To {
			t.Errorf("%s: %v %s %v, want %s %v", c.what, to, v.text(), ok, c.want, c.ok)
		}
	}
	if p := (Policy{Mode: public1, Operator: host}); p.Address(s.To.Addr()).Allow || !p.ByName(s.Name) {
		t.Error("a mapped service opens loopback itself, or its name does not count")
	}
}

// FuzzRules adds rules of the guest's owner and the operator to a policy:
// nothing that is built in opens, and a chat's rules open nothing at all.
func FuzzRules(f *testing.F) {
	f.Add("allow 0.0.0.0/1", "allow tcp 128.0.0.0/1:1-65535", []byte{10, 0, 0, 1}, uint16(80), "a.test")
	f.Add("allow *", "allow tcp 10.0.0.0/8:80", []byte{10, 0, 0, 1}, uint16(80), "")
	f.Add("deny *", "allow tcp [::]:80", []byte{127, 0, 0, 1}, uint16(25), "x")
	f.Fuzz(func(t *testing.T, chat, host string, b []byte, port uint16, name string) {
		addr, _ := netip.AddrFromSlice(b)
		flow := Flow{TCP, addr, port, name}
		p := public("93.184.216.34/32")
		if r, err := sandbox.ParseNetworkRule(host); err == nil {
			p.Operator.Rules = append(p.Operator.Rules, r)
		}
		without := p.Decide(flow)
		if r, err := sandbox.ParseNetworkRule(chat); err == nil {
			p.Rules = append(p.Rules, r)
		}
		v := p.Decide(flow)
		if v.Allow && !without.Allow {
			t.Fatalf("%v: the chat's %q opens it", flow, chat)
		}
		if v.Allow && !p.Could(Flow{Addr: addr, Name: name}).Allow {
			t.Fatalf("%v is allowed, but not to be told", flow)
		}
		if !v.Allow {
			return
		}
		a := addr.Unmap()
		if a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a.String() == "93.184.216.34" {
			t.Fatalf("%v is opened by %q", flow, host)
		}
		if a.IsPrivate() && len(p.Operator.Rules) == 0 {
			t.Fatalf("%v is allowed without a rule", flow)
		}
	})
}
