package sandbox

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// NetworkMode is the default a sandbox's traffic meets.
type NetworkMode string

// The modes, from wide to narrow.
const (
	// NetworkPublic allows public addresses and nothing else.
	NetworkPublic NetworkMode = "public"
	// NetworkAllowlist allows what rules allow.
	NetworkAllowlist NetworkMode = "allowlist"
	// NetworkNone allows nothing.
	NetworkNone NetworkMode = "none"
)

// NetworkModes lists them all, the widest first.
func NetworkModes() []NetworkMode {
	return []NetworkMode{NetworkPublic, NetworkAllowlist, NetworkNone}
}

// ParseNetworkMode returns the mode of that name; the empty name is public.
func ParseNetworkMode(s string) (NetworkMode, error) {
	if s == "" {
		return NetworkPublic, nil
	}
	var names []string
	for _, m := range NetworkModes() {
		if s == string(m) {
			return m, nil
		}
		names = append(names, string(m))
	}
	return "", fmt.Errorf("network mode %q is not known: use one of %s", clip(s), strings.Join(names, ", "))
}

// MaxNetworkRules bounds a list of rules.
const MaxNetworkRules = 256

// NetworkPolicy says what a sandbox may reach. A flow leaves when the operator
// and the chat both allow it; package policy gives the order of evaluation.
type NetworkPolicy struct {
	// Mode and Rules are the chat's: they narrow what the operator allows.
	Mode  NetworkMode   `json:"mode"`
	Rules []NetworkRule `json:"rules,omitempty"`
	// Operator is the host's.
	Operator NetworkOperator `json:"operator,omitzero"`
	Limits   NetworkLimits   `json:"limits,omitzero"`
	// Spent counts the bytes that earlier sandboxes of the chat moved; they
	// count toward Limits.Total.
	Spent int64 `json:"spent,omitempty"`
}

// Off tells that no flow can ever leave, so that no gate is needed.
func (p NetworkPolicy) Off() bool {
	return p.Mode == NetworkNone || p.Operator.Mode == NetworkNone
}

// NetworkOperator is the operator's part of a policy. The zero value is mode
// public without a rule.
type NetworkOperator struct {
	Mode  NetworkMode   `json:"mode,omitempty"`
	Rules []NetworkRule `json:"rules,omitempty"`
	// Services are names that lead to the host's own loopback.
	Services []NetworkService `json:"services,omitempty"`
}

// NetworkLimits bound a chat's traffic. A zero field means no limit of that
// kind but what the gate itself can carry.
type NetworkLimits struct {
	// Flows bounds the TCP and UDP flows that are open at once.
	Flows int `json:"flows,omitempty"`
	// Bandwidth bounds both directions together, in bytes a second.
	Bandwidth int64 `json:"bandwidth,omitempty"`
	// Total bounds the bytes of both directions over the chat's life.
	Total int64 `json:"total,omitempty"`
}

// Network gives a sandbox the only network it has.
type Network interface {
	// Attach makes the network of sandbox id. When it returns an error
	// nothing of it is left.
	Attach(ctx context.Context, id string, policy NetworkPolicy) (Attachment, error)
	// Detach removes everything that Attach made for id, also when an
	// earlier daemon made it. It is no error when nothing is there.
	Detach(ctx context.Context, id string) error
	// Attached names every sandbox of which a network is left.
	Attached(ctx context.Context) ([]string, error)
}

// Attachment is where a sandbox finds its network.
type Attachment struct {
	// Namespace is the path of the network namespace that runsc joins.
	Namespace string
	// Resolver answers the guest's DNS queries.
	Resolver netip.Addr
}

// NetworkControl changes networks that are attached, and tells of them.
type NetworkControl interface {
	// SetPolicy puts a policy in force for id: when it returns, new flows
	// meet it, and open ones that it denies are cut off. It returns
	// ErrNoNetwork for a sandbox that was attached with a policy that is Off.
	SetPolicy(ctx context.Context, id string, policy NetworkPolicy) error
	// Traffic tells what id's flows are and were. A network without a gate
	// has none.
	Traffic(ctx context.Context, id string) (NetworkTraffic, error)
	// Refusals returns the last refusals of id that are later than a time,
	// oldest first. It costs little while there are none.
	Refusals(id string, after time.Time) ([]NetworkRefusal, error)
	// Judge says what a policy does to a flow, without sending anything. A
	// flow by name is judged before its addresses are known.
	Judge(policy NetworkPolicy, flow NetworkFlow) (NetworkVerdict, error)
}

// NetworkFlow is where a guest wants to go.
type NetworkFlow struct {
	Protocol string     `json:"protocol"`
	Addr     netip.Addr `json:"addr,omitzero"`
	Name     string     `json:"name,omitempty"`
	Port     uint16     `json:"port"`
}

// NetworkVerdict is what becomes of a flow, and the rule that decides it.
type NetworkVerdict struct {
	Allow bool
	Rule  string
}

// NetworkTraffic is what a gate counted. It comes from a process that parses
// hostile packets, and is believed for display and for the guest's own limits.
type NetworkTraffic struct {
	// Generation is that of the policy in force; see handover.Config.
	Generation uint64 `json:"generation"`
	// Sequence rises with each account that the gate gives.
	Sequence uint64    `json:"sequence"`
	At       time.Time `json:"at"`
	// Sent and Received count payload bytes of TCP and UDP, as the guest sees
	// them.
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	// Flows counts those that were allowed, Refused the flows and names that
	// were not, Queries the DNS queries, and Dropped the frames that no host
	// would answer.
	Flows   int64 `json:"flows"`
	Refused int64 `json:"refused"`
	Queries int64 `json:"queries"`
	Dropped int64 `json:"dropped"`
	// Throttled counts the times that a flow waited, or lost a datagram, because
	// the bandwidth was spent.
	Throttled int64 `json:"throttled,omitempty"`
	// The same flows and refusals by the kind of rule that decided: flows that
	// were allowed, flows and names that were not, and flows that were open and
	// were cut off. A kind is "operator", "chat", or a rule that nobody wrote.
	AllowedBy      map[string]int64 `json:"allowed_by,omitempty"`
	RefusedBy      map[string]int64 `json:"refused_by,omitempty"`
	NamesRefusedBy map[string]int64 `json:"names_refused_by,omitempty"`
	CutBy          map[string]int64 `json:"cut_by,omitempty"`
	// OpenTCP and OpenUDP count the flows that are open. Open lists the
	// newest of them, Closed the last that ended.
	OpenTCP int                 `json:"open_tcp"`
	OpenUDP int                 `json:"open_udp"`
	Open    []NetworkFlowRecord `json:"open,omitempty"`
	Closed  []NetworkFlowRecord `json:"closed,omitempty"`
}

// NetworkFlowRecord is one flow that was allowed.
type NetworkFlowRecord struct {
	NetworkFlow
	// Rule allowed it.
	Rule     string    `json:"rule"`
	OpenedAt time.Time `json:"opened_at"`
	ClosedAt time.Time `json:"closed_at,omitzero"`
	Sent     int64     `json:"sent"`
	Received int64     `json:"received"`
	// Cut says which rule or limit cut it off, if one did.
	Cut string `json:"cut,omitempty"`
}

// NetworkRefusal is one flow or name that a gate refused, and the rule that
// did it.
type NetworkRefusal struct {
	// Time is when it was refused, in RFC 3339 with nanoseconds, UTC.
	Time string `json:"time"`
	// Protocol is "tcp", "udp", "icmp", "dns" or "ip".
	Protocol string     `json:"protocol"`
	Addr     netip.Addr `json:"addr,omitzero"`
	Port     uint16     `json:"port,omitempty"`
	// Name is the name that was asked for, or that led to the address.
	Name string `json:"name,omitempty"`
	Rule string `json:"rule"`
	// Suppressed counts the refusals since the line before that were not
	// logged because the log's rate was spent.
	Suppressed uint64 `json:"suppressed,omitempty"`
}

// NetworkRestart says that a gate had died under a living sandbox and was
// started again with its policy.
type NetworkRestart struct{ Sandbox, Reason string }
