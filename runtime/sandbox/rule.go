package sandbox

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// NetworkRule allows or denies flows. It is written like this, in the
// configuration, the API and on the command line:
//
//	allow|deny [tcp|udp] TARGET[:PORT[-PORT]]
//
// TARGET is a name (example.org), all names below one (*.example.org, which is not
// example.org itself), an address, a CIDR, or * for everything. IPv6 stands in
// brackets where a port follows: [2001:db8::/32]:443.
type NetworkRule struct {
	Allow bool
	// Protocol is "tcp", "udp", or empty for both.
	Protocol string
	// Prefix is the target by address; Name is the target by name, in lower
	// case, without a trailing dot, in its ASCII form. With neither the rule
	// is about everything.
	Prefix netip.Prefix
	Name   string
	// First and Last are the ports; both are 0 for all.
	First, Last uint16
}

// maxRule is the longest rule in bytes. A name has at most 253.
const maxRule = 512

// ruleForm is the remedy in every complaint about a rule.
const ruleForm = `write it like "allow tcp *.example.org:443" or "deny 203.0.113.0/24"`

// ParseNetworkRule reads a rule. What it returns is in normal form: its String
// reads back as the same rule.
func ParseNetworkRule(text string) (r NetworkRule, err error) {
	fail := func(err error) (NetworkRule, error) {
		return NetworkRule{}, fmt.Errorf("network rule %q: %w: %s", clip(text), err, ruleForm)
	}
	fields := strings.Fields(text)
	switch {
	case len(text) > maxRule:
		return fail(errors.New("it is too long"))
	case len(fields) < 2 || len(fields) > 3:
		return fail(errors.New("it does not have two or three words"))
	case fields[0] == "allow":
		r.Allow = true
	case fields[0] != "deny":
		return fail(errors.New("it begins neither with allow nor with deny"))
	}
	if len(fields) == 3 {
		if r.Protocol = fields[1]; r.Protocol != "tcp" && r.Protocol != "udp" {
			return fail(fmt.Errorf("protocol %q is neither tcp nor udp", clip(r.Protocol)))
		}
	}
	target, ports := splitPorts(fields[len(fields)-1])
	if r.First, r.Last, err = parsePorts(ports); err != nil {
		return fail(err)
	}
	if target == "*" {
		return r, nil
	}
	if r.Prefix, err = parsePrefix(target); err == nil {
		return r, nil
	}
	if strings.ContainsAny(target, ":/[]") {
		return fail(fmt.Errorf("%q is not an address or a CIDR", clip(target)))
	}
	name, wild := strings.CutPrefix(target, "*.")
	if r.Name, err = NetworkName(name); err != nil {
		return fail(err)
	}
	if wild {
		r.Name = "*." + r.Name
	}
	return r, nil
}

// clip keeps what a stranger wrote from filling an error.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// splitPorts cuts the ports from a target. A bare IPv6 address has colons of
// its own.
func splitPorts(s string) (target, ports string) {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		inner, after, ok := strings.Cut(rest, "]")
		if port, colon := strings.CutPrefix(after, ":"); ok && (colon && port != "" || after == "") {
			return inner, port
		}
		return s, ""
	}
	at := strings.LastIndexByte(s, ':')
	if at < 0 || strings.Count(s, ":") > 1 {
		return s, ""
	}
	if at == len(s)-1 {
		return s, "" // a colon and no port: no target either
	}
	return s[:at], s[at+1:]
}

func parsePorts(s string) (first, last uint16, err error) {
	if s == "" {
		return 0, 0, nil
	}
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	a, errA := strconv.ParseUint(from, 10, 16)
	b, errB := strconv.ParseUint(to, 10, 16)
	if errA != nil || errB != nil || a == 0 || b < a {
		return 0, 0, fmt.Errorf("%q is not a port or a range of ports", clip(s))
	}
	return uint16(a), uint16(b), nil
}

// parsePrefix reads a CIDR, or an address as the CIDR that holds only it.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		addr, err := netip.ParseAddr(s)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, errors.New("not an address")
		}
		p = netip.PrefixFrom(addr, addr.BitLen())
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, errors.New("half of it is IPv4-mapped")
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// NetworkName brings a host name into the form in which names are compared:
// lower case, no trailing dot, internationalized labels in ASCII.
func NetworkName(s string) (string, error) {
	fail := func(why string) (string, error) { return "", fmt.Errorf("%q is not a host name: %s", clip(s), why) }
	name := strings.TrimSuffix(s, ".")
	if !isASCII(name) {
		ascii, err := idna.Lookup.ToASCII(name)
		if err != nil {
			return fail("its letters are not allowed in one")
		}
		name = ascii
	}
	name = strings.ToLower(name)
	const maxName, maxLabel = 253, 63
	if len(name) > maxName {
		return fail("it is longer than 253 characters")
	}
	labels := strings.Split(name, ".")
	for _, l := range labels {
		switch {
		case l == "":
			return fail("it has an empty label")
		case len(l) > maxLabel:
			return fail("a label is longer than 63 characters")
		case strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" || l[0] == '-' || l[len(l)-1] == '-':
			return fail("its letters are not allowed in one")
		}
	}
	if last := labels[len(labels)-1]; last[0] >= '0' && last[0] <= '9' {
		return fail("it looks like an address")
	}
	return name, nil
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// Target is what the rule is about, without ports.
func (r NetworkRule) Target() string {
	switch {
	case r.Name != "":
		return r.Name
	case r.Prefix.IsValid() && r.Prefix.IsSingleIP():
		return r.Prefix.Addr().String()
	case r.Prefix.IsValid():
		return r.Prefix.String()
	}
	return "*"
}

// String writes the rule as ParseNetworkRule reads it.
func (r NetworkRule) String() string {
	var b strings.Builder
	b.WriteString("deny ")
	if r.Allow {
		b.Reset()
		b.WriteString("allow ")
	}
	if r.Protocol != "" {
		b.WriteString(r.Protocol + " ")
	}
	target := r.Target()
	if r.First != 0 && r.Prefix.Addr().Is6() {
		target = "[" + target + "]"
	}
	b.WriteString(target)
	switch {
	case r.First == 0:
	case r.First == r.Last:
		fmt.Fprintf(&b, ":%d", r.First)
	default:
		fmt.Fprintf(&b, ":%d-%d", r.First, r.Last)
	}
	return b.String()
}

// MarshalText implements encoding.TextMarshaler.
func (r NetworkRule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *NetworkRule) UnmarshalText(text []byte) (err error) {
	*r, err = ParseNetworkRule(string(text))
	return err
}

// NetworkService is a service of the host's loopback that the operator lets
// sandboxes reach, under a name and port that they choose. It is written
// "index.internal:443 = 127.0.0.1:8443".
type NetworkService struct {
	Name string
	Port uint16
	To   netip.AddrPort
}

// ParseNetworkService reads a service.
func ParseNetworkService(text string) (s NetworkService, err error) {
	fail := func(err error) (NetworkService, error) {
		return NetworkService{}, fmt.Errorf("network service %q: %w: write it like \"index.internal:443 = 127.0.0.1:8443\"", clip(text), err)
	}
	from, to, ok := strings.Cut(text, "=")
	host, port, hasPort := strings.Cut(strings.TrimSpace(from), ":")
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case !ok:
		return fail(errors.New("it does not say where it is"))
	case !hasPort || err != nil || n == 0:
		return fail(errors.New("its name has no port"))
	}
	s.Port = uint16(n)
	if s.Name, err = NetworkName(host); err != nil {
		return fail(err)
	}
	to = strings.TrimSpace(to)
	if s.To, err = netip.ParseAddrPort(to); err != nil || s.To.Port() == 0 {
		return fail(fmt.Errorf("%q is not an address with a port", clip(to)))
	}
	s.To = netip.AddrPortFrom(s.To.Addr().Unmap(), s.To.Port())
	if !s.To.Addr().IsLoopback() || s.To.Addr().Zone() != "" {
		return fail(fmt.Errorf("%s is not a loopback address; others are opened with a rule", s.To.Addr()))
	}
	return s, nil
}

// Known is the service as guests know it.
func (s NetworkService) Known() string { return fmt.Sprintf("%s:%d", s.Name, s.Port) }

// String writes the service as ParseNetworkService reads it.
func (s NetworkService) String() string { return s.Known() + " = " + s.To.String() }

// MarshalText implements encoding.TextMarshaler.
func (s NetworkService) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *NetworkService) UnmarshalText(text []byte) (err error) {
	*s, err = ParseNetworkService(string(text))
	return err
}
