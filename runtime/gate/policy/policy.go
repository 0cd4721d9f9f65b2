// Package policy decides, one flow at a time, whether a sandbox's traffic may
// leave. It is a pure function of the policy and the flow: no clock, no
// sockets, no names looked up. The gate asks it for every packet that begins
// a flow, again when it dials, and for every name and address of DNS.
//
// A flow leaves when nothing built in denies it (ranges.go), the operator
// allows it, and the chat allows it. Operator and chat each have a list of
// rules, of which the first that matches counts, and a mode for the rest. So
// a chat can only narrow. Start reading at Policy.Decide.
package policy

import (
	"net/netip"
	"slices"
	"strings"

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

// Flow is where the guest wants to go. Name is the name that led there, in
// the form of sandbox.NetworkName, or empty for a flow by bare address.
type Flow struct {
	Protocol Protocol
	Addr     netip.Addr
	Port     uint16
	Name     string
}

// Verdict is what becomes of a flow and why.
type Verdict struct {
	Allow bool
	// Rule names what decided: a rule of this package, a rule of the
	// operator's or the chat's, or a mode.
	Rule string
}

// Names of rules that other packages give verdicts with, so that one list has
// them all.
const (
	RuleHost       = "host"        // an address of the host itself
	RuleInvalid    = "invalid"     // not an address, or port 0
	RuleProtocol   = "protocol"    // neither TCP nor UDP
	RuleSMTP       = "smtp"        // TCP port 25
	RuleGate       = "gate"        // the link to the gate, DNS aside
	RuleFlowLimit  = "flow-limit"  // too many flows open
	RuleTotalLimit = "total-limit" // the chat has moved its share of bytes
	RuleDNSName    = "dns-name"    // a name no resolver should be asked for
	RuleService    = "service"     // a service of the host's that the operator mapped
	RuleModeNone   = "mode-none"
	RuleModeList   = "mode-allowlist"
	RuleModeOpen   = "mode-public"
)

// Prefixes of the rules that somebody wrote.
const (
	operatorRule = "operator: "
	chatRule     = "chat: "
)

// Kind is what sort of rule a verdict's is, a word out of a short list: for a
// rule that somebody wrote whose it is, for a spelling of an address in IPv6
// what denies the address.
func Kind(rule string) string {
	for prefix, kind := range map[string]string{operatorRule: "operator", chatRule: "chat"} {
		if strings.HasPrefix(rule, prefix) {
			return kind
		}
	}
	return rule[strings.LastIndexByte(rule, ':')+1:]
}

// Policy is what one sandbox may reach. The zero value allows nothing.
type Policy struct {
	// Mode and Rules are the chat's.
	Mode  sandbox.NetworkMode
	Rules []sandbox.NetworkRule
	// Operator is the host's.
	Operator sandbox.NetworkOperator
	// Host is the host's own addresses, as they are now.
	Host HostSet
}

// New returns the policy that p describes, on a host with those addresses.
func New(p sandbox.NetworkPolicy, host HostSet) Policy {
	return Policy{Mode: p.Mode, Rules: p.Rules, Operator: p.Operator, Host: host}
}

// Decide says whether a flow may leave. In this order: what no configuration
// can lift (protocol, port 0, the host's addresses, the table of ranges and
// all IPv6 spellings of those); the operator's rules, which alone can open
// private ranges and SMTP; the chat's rules; the modes.
func (p Policy) Decide(f Flow) Verdict {
	if f.Protocol != TCP && f.Protocol != UDP {
		return Verdict{Rule: RuleProtocol}
	}
	if f.Port == 0 || !f.Addr.IsValid() {
		return Verdict{Rule: RuleInvalid}
	}
	return p.Could(f)
}

// Could says whether any flow could leave that is like f; what is not known of
// f yet is left zero. DNS names are held against it before a resolver is
// asked, and addresses before the guest is told them, so that a name cannot
// lead where an address must not.
func (p Policy) Could(f Flow) Verdict {
	var closed string
	if f.Addr.IsValid() {
		f.Addr = f.Addr.WithZone("").Unmap()
		rule, final := p.closed(f.Addr)
		if final {
			return Verdict{Rule: rule}
		}
		closed = rule
	}
	if closed == "" && f.Protocol == TCP && f.Port == smtpPort {
		closed = RuleSMTP
	}
	host := p.operator(f, closed)
	if !host.Allow {
		return host
	}
	chat := stage{p.Rules, p.Mode, chatRule}.judge(f, nil)
	if !chat.Allow || host.Rule == RuleModeOpen {
		return chat
	}
	return host
}

const smtpPort = 25

// Address says whether any flow to addr could leave.
func (p Policy) Address(addr netip.Addr) Verdict {
	if !addr.IsValid() {
		return Verdict{Rule: RuleInvalid}
	}
	return p.Could(Flow{Addr: addr})
}

// Service says whether a flow may go to a service of the host's, and where
// that is; ok is false for a name that is none. The operator allowed it by
// mapping it, so only the chat's rules are asked. A zero protocol or port
// stands for any.
func (p Policy) Service(f Flow) (to netip.AddrPort, v Verdict, ok bool) {
	if !p.IsService(f.Name) {
		return to, v, false
	}
	at := slices.IndexFunc(p.Operator.Services, func(s sandbox.NetworkService) bool {
		return s.Name == f.Name && (f.Port == 0 || s.Port == f.Port)
	})
	if at < 0 || f.Protocol == UDP || p.Operator.Mode == sandbox.NetworkNone {
		return to, Verdict{Rule: RuleService}, true
	}
	v = stage{p.Rules, p.Mode, chatRule}.judge(f, nil)
	if v.Allow {
		v.Rule = RuleService
	}
	return p.Operator.Services[at].To, v, true
}

// IsService says whether a name is one of the operator's services'.
func (p Policy) IsService(name string) bool {
	return slices.ContainsFunc(p.Operator.Services, func(s sandbox.NetworkService) bool { return s.Name == name })
}

// ByName says whether what becomes of a flow can depend on the name that led
// to it. The guest is told an address of its own for such a name, so that the
// gate knows the name again.
func (p Policy) ByName(name string) bool {
	matches := func(r sandbox.NetworkRule) bool { return r.Name != "" && matchName(r.Name, name) }
	return p.Mode == sandbox.NetworkAllowlist || p.Operator.Mode == sandbox.NetworkAllowlist || p.IsService(name) ||
		slices.ContainsFunc(p.Rules, matches) || slices.ContainsFunc(p.Operator.Rules, matches)
}

// operator asks the operator's rules. What is closed by default is opened only
// by a rule that names a part of it.
func (p Policy) operator(f Flow, closed string) Verdict {
	mode := p.Operator.Mode
	if mode == "" {
		mode = sandbox.NetworkPublic
	}
	var opens func(sandbox.NetworkRule) bool
	if closed != "" {
		opens = func(r sandbox.NetworkRule) bool { return opensClosed(r, f, closed) }
	}
	v := stage{p.Operator.Rules, mode, operatorRule}.judge(f, opens)
	if closed != "" && (v.Rule == RuleModeOpen || v.Rule == RuleModeList || v.Rule == RuleModeNone) {
		return Verdict{Rule: closed}
	}
	return v
}

// opensClosed says whether an allowing rule was written for what is closed by
// default: it names a port, and a CIDR within the range that is closed; for
// SMTP it names the port and no other.
func opensClosed(r sandbox.NetworkRule, f Flow, closed string) bool {
	if closed == RuleSMTP {
		return r.First == smtpPort && r.Last == smtpPort
	}
	if r.First == 0 || !r.Prefix.IsValid() {
		return false
	}
	if f.Protocol == TCP && f.Port == smtpPort && (r.First != smtpPort || r.Last != smtpPort) {
		return false
	}
	return slices.ContainsFunc(private, func(c rangeRule) bool {
		return c.prefix.Contains(f.Addr) && c.prefix.Contains(r.Prefix.Addr()) && r.Prefix.Bits() >= c.prefix.Bits()
	})
}

// stage is one list of rules with the mode for the rest.
type stage struct {
	rules []sandbox.NetworkRule
	mode  sandbox.NetworkMode
	who   string
}

// judge finds the first rule that matches. Where a flow is not known whole, an
// allowing rule matches when it may, and a denying one when it must: what is
// asked is whether anything could be allowed. A filter, if there is one, says
// which allowing rules count.
func (s stage) judge(f Flow, filter func(sandbox.NetworkRule) bool) Verdict {
	if s.mode == sandbox.NetworkNone {
		return Verdict{Rule: RuleModeNone}
	}
	for _, r := range s.rules {
		may, must := match(r, f)
		if r.Allow && may && (filter == nil || filter(r)) || !r.Allow && must {
			return Verdict{Allow: r.Allow, Rule: s.who + r.String()}
		}
	}
	switch s.mode {
	case sandbox.NetworkPublic:
		return Verdict{Allow: true, Rule: RuleModeOpen}
	case sandbox.NetworkAllowlist:
		return Verdict{Rule: RuleModeList}
	}
	return Verdict{Rule: RuleModeNone}
}

// match says whether a rule may, and whether it must, match a flow of which
// not everything is known. A flow that has an address and no name is known to
// have none.
func match(r sandbox.NetworkRule, f Flow) (may, must bool) {
	may, must = true, true
	part := func(known, matches bool) {
		if known {
			may, must = may && matches, must && matches
			return
		}
		must = false
	}
	if r.Protocol != "" {
		part(f.Protocol != "", r.Protocol == string(f.Protocol))
	}
	if r.First != 0 {
		part(f.Port != 0, r.First <= f.Port && f.Port <= r.Last)
	}
	if r.Prefix.IsValid() {
		// A name is not resolved because it might lead into a CIDR: so an
		// address that is not known matches none.
		part(true, f.Addr.IsValid() && r.Prefix.Contains(f.Addr))
	}
	if r.Name != "" {
		part(true, f.Name != "" && matchName(r.Name, f.Name))
	}
	return may, must
}

// matchName holds a name against a rule's. A wildcard stands for one label or
// more.
func matchName(pattern, name string) bool {
	if len(pattern) > 2 && pattern[:2] == "*." {
		suffix := pattern[1:]
		return len(name) > len(suffix) && name[len(name)-len(suffix):] == suffix
	}
	return pattern == name
}

// closed returns the rule by which addr is denied when nobody opens it, or "";
// final says that nobody can.
func (p Policy) closed(addr netip.Addr) (rule string, final bool) {
	if rule, final = p.denied(addr); rule != "" {
		return rule, final
	}
	for _, e := range embedded(addr) {
		if rule, _ := p.denied(e.addr); rule != "" {
			return e.form + ":" + rule, true
		}
	}
	return "", false
}

// denied looks at addr itself.
func (p Policy) denied(addr netip.Addr) (rule string, final bool) {
	if p.Host.Contains(addr) {
		return RuleHost, true
	}
	for _, r := range builtin {
		if r.prefix.Contains(addr) {
			return r.rule, true
		}
	}
	for _, r := range private {
		if r.prefix.Contains(addr) {
			return r.rule, false
		}
	}
	return "", false
}
