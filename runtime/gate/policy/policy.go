// Package policy decides, one flow at a time, whether a sandbox's traffic may
// leave. It is a pure function of the policy and the flow: no clock, no
// sockets, no names looked up. The gate asks it for every packet that begins
// a flow, again when it dials, and for every address in a DNS answer.
//
// Start reading at Policy.Decide, which gives the order of evaluation.
package policy

import (
	"net/netip"
	"slices"

	"mediasandbox/runtime/sandbox"
)

// Protocol is what a flow speaks above IP.
type Protocol string

// The protocols that a flow can have. Only TCP and UDP ever leave.
const (
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	ICMP Protocol = "icmp"
	// IP is any other protocol.
	IP Protocol = "ip"
)

// Flow is where the guest wants to go.
type Flow struct {
	Protocol Protocol
	Addr     netip.Addr
	Port     uint16
}

// Verdict is what becomes of a flow and why.
type Verdict struct {
	Allow bool
	// Rule names what decided: a rule of this package, or the mode.
	Rule string
}

// Names of rules that other packages give verdicts with, so that one list has
// them all.
const (
	RuleHost      = "host"       // an address of the host itself
	RuleInvalid   = "invalid"    // not an address, or port 0
	RuleProtocol  = "protocol"   // neither TCP nor UDP
	RuleSMTP      = "smtp"       // TCP port 25
	RuleGate      = "gate"       // the link to the gate, DNS aside
	RuleFlowLimit = "flow-limit" // too many flows open
	RuleDNSName   = "dns-name"   // a name no resolver should be asked for
	RuleModeNone  = "mode-none"
	RuleModeOpen  = "mode-public"
)

// Policy is what one sandbox may reach. The zero value allows nothing.
type Policy struct {
	Mode sandbox.NetworkMode
	// Host is the host's own addresses, as they are now.
	Host HostSet
}

// Decide says whether a flow may leave. In this order: what no configuration
// can lift (protocol, port 0, the host's addresses, the table of ranges and
// all IPv6 spellings of those), then ports denied by default, then the mode.
func (p Policy) Decide(f Flow) Verdict {
	if f.Protocol != TCP && f.Protocol != UDP {
		return Verdict{Rule: RuleProtocol}
	}
	if f.Port == 0 {
		return Verdict{Rule: RuleInvalid}
	}
	if v := p.Address(f.Addr); !v.Allow {
		return v
	}
	if f.Protocol == TCP && f.Port == 25 {
		return Verdict{Rule: RuleSMTP}
	}
	return p.mode()
}

// Address says whether any flow to addr could leave. DNS answers are held
// against it, so that a name cannot lead where an address must not.
func (p Policy) Address(addr netip.Addr) Verdict {
	if !addr.IsValid() {
		return Verdict{Rule: RuleInvalid}
	}
	addr = addr.WithZone("").Unmap()
	if rule := p.denied(addr); rule != "" {
		return Verdict{Rule: rule}
	}
	for _, e := range embedded(addr) {
		if rule := p.denied(e.addr); rule != "" {
			return Verdict{Rule: e.form + ":" + rule}
		}
	}
	return p.mode()
}

func (p Policy) mode() Verdict {
	if p.Mode == sandbox.NetworkPublic {
		return Verdict{Allow: true, Rule: RuleModeOpen}
	}
	return Verdict{Rule: RuleModeNone}
}

// denied returns the rule that denies addr itself, or "".
func (p Policy) denied(addr netip.Addr) string {
	if p.Host.Contains(addr) {
		return RuleHost
	}
	for _, r := range builtin {
		if r.prefix.Contains(addr) {
			return r.rule
		}
	}
	return ""
}

// HostSet is the addresses that lead to the host itself.
type HostSet struct {
	addrs    map[netip.Addr]struct{}
	prefixes []netip.Prefix
}

// NewHostSet returns the set of those prefixes. Single addresses are looked
// up in constant time.
func NewHostSet(prefixes []netip.Prefix) HostSet {
	s := HostSet{addrs: make(map[netip.Addr]struct{}, len(prefixes))}
	for _, p := range prefixes {
		if !p.IsValid() {
			continue
		}
		p = unmapPrefix(p).Masked()
		if p.IsSingleIP() {
			s.addrs[p.Addr()] = struct{}{}
			continue
		}
		if !slices.Contains(s.prefixes, p) {
			s.prefixes = append(s.prefixes, p)
		}
	}
	return s
}

// Contains says whether addr is the host's. It takes addresses as Address
// normalises them: no zone, not IPv4-mapped.
func (s HostSet) Contains(addr netip.Addr) bool {
	if _, ok := s.addrs[addr]; ok {
		return true
	}
	for _, p := range s.prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// Len counts the entries.
func (s HostSet) Len() int { return len(s.addrs) + len(s.prefixes) }

func unmapPrefix(p netip.Prefix) netip.Prefix {
	addr := p.Addr().WithZone("")
	if addr.Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(addr.Unmap(), p.Bits()-96)
	}
	return netip.PrefixFrom(addr, p.Bits())
}
