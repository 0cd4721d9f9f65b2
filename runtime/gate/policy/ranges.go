package policy

import "net/netip"

// builtin is what nobody can open. The first match names the rule, so the
// narrow entries stand before the wide ones.
//
// The documentation ranges (192.0.2.0/24, 198.51.100.0/24, 203.0.113.0/24) are
// not in it on purpose: some networks number real services out of them, and
// where they don't, nothing answers.
var builtin = rules(
	// Instance metadata, by cloud. Some of it lies in ranges that are denied
	// anyway; it stands first so that the refusal says what it was.
	"metadata", "169.254.169.254/32", // AWS, GCP, Azure, DigitalOcean, Oracle and others
	"metadata", "169.254.170.2/32", // AWS container credentials
	"metadata", "168.63.129.16/32", // Azure's platform address, in public space
	"metadata", "100.100.100.200/32", // Alibaba
	"metadata", "192.0.0.192/32", // Oracle, older instances
	"metadata", "fd00:ec2::254/128", // AWS
	"metadata", "fd20:ce::254/128", // GCP

	RuleGate, "198.18.0.2/31",

	"unspecified", "0.0.0.0/8",
	"unspecified", "::/128",
	"loopback", "127.0.0.0/8",
	"loopback", "::1/128",
	"link-local", "169.254.0.0/16",
	"link-local", "fe80::/10",
	"site-local", "fec0::/10", // deprecated but still routed by some
	"multicast", "224.0.0.0/4",
	"multicast", "ff00::/8",
	"broadcast", "255.255.255.255/32",
	"reserved", "240.0.0.0/4",
	"reserved", "192.0.0.0/24", // IETF protocol assignments
	"reserved", "192.88.99.0/24", // 6to4 relays
	"reserved", "198.18.0.0/15", // benchmarking; the link is in it
	"reserved", "100::/64", // discard
	"reserved", "64:ff9b:1::/48", // NAT64 with prefixes of local choice
	"reserved", "5f00::/16", // segment routing identifiers
)

// private is what is denied unless the operator opens a part of it.
var private = rules(
	"private", "10.0.0.0/8",
	"private", "172.16.0.0/12",
	"private", "192.168.0.0/16",
	"cgnat", "100.64.0.0/10",
	"unique-local", "fc00::/7",
)

type rangeRule struct {
	rule   string
	prefix netip.Prefix
}

func rules(pairs ...string) []rangeRule {
	out := make([]rangeRule, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, rangeRule{pairs[i], netip.MustParsePrefix(pairs[i+1])})
	}
	return out
}

type embedding struct {
	form string
	addr netip.Addr
}

var (
	compatible = netip.MustParsePrefix("::/96")
	translated = netip.MustParsePrefix("::ffff:0:0:0/96")
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	teredo     = netip.MustParsePrefix("2001::/32")
)

// embedded returns the IPv4 addresses that an IPv6 address carries, for every
// form that a host or a router on the way may turn back into IPv4. The
// IPv4-mapped form is not among them: callers unmap first.
func embedded(addr netip.Addr) []embedding {
	if !addr.Is6() {
		return nil
	}
	b := addr.As16()
	low := netip.AddrFrom4([4]byte(b[12:16]))
	switch {
	case compatible.Contains(addr):
		return []embedding{{"ipv4-compatible", low}}
	case translated.Contains(addr):
		return []embedding{{"ipv4-translated", low}}
	case nat64.Contains(addr):
		return []embedding{{"nat64", low}}
	case sixToFour.Contains(addr):
		return []embedding{{"6to4", netip.AddrFrom4([4]byte(b[2:6]))}}
	case teredo.Contains(addr):
		// The client's address is stored inverted.
		client := [4]byte{^b[12], ^b[13], ^b[14], ^b[15]}
		return []embedding{
			{"teredo", netip.AddrFrom4([4]byte(b[4:8]))},
			{"teredo", netip.AddrFrom4(client)},
		}
	case b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe:
		return []embedding{{"isatap", low}}
	}
	return nil
}
