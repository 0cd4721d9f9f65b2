package session

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/runtime/sandbox"
)

// Network is what an Engine has to do with sandboxes' networks.
type Network struct {
	// Control changes the networks that Runtime's sandboxes have.
	Control sandbox.NetworkControl
	// Operator and Limits hold for every chat, which can narrow them.
	Operator sandbox.NetworkOperator
	Limits   sandbox.NetworkLimits
	// Restarts tells of gates that were started again; nil tells of none.
	Restarts <-chan sandbox.NetworkRestart
}

// NetworkRecord is what is kept of a chat's network beside its mode.
type NetworkRecord struct {
	Rules  []sandbox.NetworkRule `json:"rules,omitempty"`
	Limits sandbox.NetworkLimits `json:"limits,omitzero"`
	// Past is the traffic of the sandboxes that have ended.
	Past api.NetworkTraffic `json:"past,omitzero"`
}

// policy is what the chat's sandboxes may reach.
func (n Network) policy(c ChatRecord) sandbox.NetworkPolicy {
	return sandbox.NetworkPolicy{
		Mode: sandbox.NetworkMode(c.Network), Rules: c.Net.Rules, Operator: n.Operator,
		Limits: n.narrow(c.Net.Limits), Spent: c.Net.Past.Sent + c.Net.Past.Received,
	}
}

// anyChat is the policy of a chat that has set nothing.
func (n Network) anyChat() sandbox.NetworkPolicy {
	return n.policy(ChatRecord{Network: string(sandbox.NetworkPublic)})
}

// narrow returns the narrower of the operator's limits and a chat's.
func (n Network) narrow(l sandbox.NetworkLimits) sandbox.NetworkLimits {
	return sandbox.NetworkLimits{
		Flows:     narrower(n.Limits.Flows, l.Flows),
		Bandwidth: narrower(n.Limits.Bandwidth, l.Bandwidth),
		Total:     narrower(n.Limits.Total, l.Total),
	}
}

// narrower returns the lower of two limits, of which 0 is none.
func narrower[T int | int64](a, b T) T {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Network describes a chat's network.
func (e *Engine) Network(ctx context.Context, k ChatKey) (api.Network, error) {
	rec, err := e.chatRecord(k)
	if err != nil {
		return api.Network{}, err
	}
	p := e.cfg.Network.policy(rec)
	n := api.Network{
		Mode: rec.Network, Rules: textsOf(rec.Net.Rules), Limits: api.NetworkLimits(p.Limits),
		Operator: api.NetworkOperator{Mode: string(p.Operator.Mode), Rules: textsOf(p.Operator.Rules), Services: []string{}},
		Traffic:  rec.Net.Past,
	}
	for _, s := range p.Operator.Services {
		n.Operator.Services = append(n.Operator.Services, s.Known())
	}
	l := e.liveOf(k)
	if l == nil {
		return n, nil
	}
	n.Pending = l.record.Spec.Network.Off() && !p.Off()
	t, err := e.cfg.Network.Control.Traffic(ctx, l.record.Spec.ID)
	if err != nil {
		return n, err
	}
	addTraffic(&n.Traffic, t)
	n.Traffic.Open = t.OpenTCP + t.OpenUDP
	return n, nil
}

func textsOf(rules []sandbox.NetworkRule) []string {
	texts := make([]string, 0, len(rules))
	for _, r := range rules {
		texts = append(texts, r.String())
	}
	return texts
}

// addTraffic adds what a sandbox moved.
func addTraffic(sum *api.NetworkTraffic, t sandbox.NetworkTraffic) {
	sum.Sent += t.Sent
	sum.Received += t.Received
	sum.Flows += t.Flows
	sum.Refused += t.Refused
	sum.Queries += t.Queries
	sum.Dropped += t.Dropped
}

// SetNetwork changes a chat's network, and puts the change in force: new flows
// meet it, and open ones that it denies are cut off, before this returns.
func (e *Engine) SetNetwork(ctx context.Context, k ChatKey, set api.NetworkSettings) (api.Network, error) {
	if _, err := e.chatRecord(k); err != nil { // which makes the default one
		return api.Network{}, err
	}
	change, err := readSettings(set)
	if err != nil {
		return api.Network{}, err
	}
	err = e.update(k, func(tx Tx) error {
		rec, err := tx.Chat(k)
		if err != nil {
			return notFound(err, api.CodeChatNotFound, "there is no chat %q", k.ID)
		}
		change(&rec)
		if err := tx.PutChat(rec); err != nil {
			return err
		}
		return emit(tx, k, api.Event{Type: api.EventNetworkChanged, Message: networkText(rec)})
	})
	if err != nil {
		return api.Network{}, err
	}
	if l := e.settled(k); l != nil {
		if err := e.applyNetwork(ctx, l); err != nil {
			return api.Network{}, err
		}
	}
	return e.Network(ctx, k)
}

// readSettings checks settings and returns what they do to a chat.
func readSettings(set api.NetworkSettings) (change func(*ChatRecord), err error) {
	invalid := func(err error) (func(*ChatRecord), error) { return nil, api.Errorf(api.CodeInvalid, "%v", err) }
	var changes []func(*ChatRecord)
	if set.Mode != nil {
		mode, err := sandbox.ParseNetworkMode(*set.Mode)
		if err != nil {
			return invalid(err)
		}
		changes = append(changes, func(c *ChatRecord) { c.Network = string(mode) })
	}
	if set.Rules != nil {
		if len(*set.Rules) > sandbox.MaxNetworkRules {
			return invalid(fmt.Errorf("%d network rules are given, a chat may have %d", len(*set.Rules), sandbox.MaxNetworkRules))
		}
		var rules []sandbox.NetworkRule
		for _, text := range *set.Rules {
			r, err := sandbox.ParseNetworkRule(text)
			if err != nil {
				return invalid(err)
			}
			rules = append(rules, r)
		}
		changes = append(changes, func(c *ChatRecord) { c.Net.Rules = rules })
	}
	if l := set.Limits; l != nil {
		changes = append(changes, func(c *ChatRecord) {
			setIf(&c.Net.Limits.Flows, l.Flows)
			setIf(&c.Net.Limits.Bandwidth, l.Bandwidth)
			setIf(&c.Net.Limits.Total, l.Total)
		})
	}
	if len(changes) == 0 {
		return invalid(errors.New("the network settings change nothing: give mode, rules or limits"))
	}
	return func(c *ChatRecord) {
		for _, f := range changes {
			f(c)
		}
	}, nil
}

// setIf sets a limit that is given. The API lets no negative one through.
func setIf[T int | int64](limit, to *T) {
	if to != nil {
		*limit = *to
	}
}

// networkText says in one line what a chat's network is.
func networkText(c ChatRecord) string {
	text := "mode " + c.Network
	switch n := len(c.Net.Rules); n {
	case 0:
	case 1:
		text += ", 1 rule"
	default:
		text += fmt.Sprintf(", %d rules", n)
	}
	return text
}

// applyNetwork puts the chat's network, as it is recorded now, in force in its
// sandbox. A sandbox that was made without a network keeps none.
func (e *Engine) applyNetwork(ctx context.Context, l *live) error {
	unlock := e.netLocks.lock(l.record.Spec.ID)
	defer unlock()
	rec, err := e.chatRecord(l.record.Chat)
	if err != nil {
		return err
	}
	err = e.cfg.Network.Control.SetPolicy(ctx, l.record.Spec.ID, e.cfg.Network.policy(rec))
	if errors.Is(err, sandbox.ErrNoNetwork) {
		return nil
	}
	return err
}

// NetworkFlows lists the flows of the chat's live sandbox.
func (e *Engine) NetworkFlows(ctx context.Context, k ChatKey) (api.NetworkFlows, error) {
	flows := api.NetworkFlows{Open: []api.NetworkFlow{}, Closed: []api.NetworkFlow{}, Refused: []api.NetworkRefusal{}}
	if _, err := e.chatRecord(k); err != nil {
		return flows, err
	}
	l := e.liveOf(k)
	if l == nil {
		return flows, nil
	}
	t, err := e.cfg.Network.Control.Traffic(ctx, l.record.Spec.ID)
	if err != nil {
		return flows, err
	}
	refused, err := e.cfg.Network.Control.Refusals(l.record.Spec.ID, time.Time{})
	if err != nil {
		return flows, err
	}
	for _, f := range t.Open {
		flows.Open = append(flows.Open, wireFlow(f))
	}
	for _, f := range t.Closed {
		flows.Closed = append(flows.Closed, wireFlow(f))
	}
	for _, r := range refused {
		flows.Refused = append(flows.Refused, wireRefusal(r))
	}
	return flows, nil
}

func wireFlow(f sandbox.NetworkFlowRecord) api.NetworkFlow {
	w := api.NetworkFlow{
		Protocol: f.Protocol, Name: f.Name, Address: f.Addr.String(), Port: int(f.Port), Rule: f.Rule,
		OpenedAt: f.OpenedAt, Sent: f.Sent, Received: f.Received, Cut: f.Cut,
	}
	if !f.ClosedAt.IsZero() {
		w.ClosedAt = &f.ClosedAt
	}
	return w
}

func wireRefusal(r sandbox.NetworkRefusal) api.NetworkRefusal {
	w := api.NetworkRefusal{
		Protocol: r.Protocol, Name: r.Name, Port: int(r.Port), Rule: r.Rule, Explanation: explainRule(r.Rule), Suppressed: r.Suppressed,
	}
	if r.Addr.IsValid() {
		w.Address = r.Addr.String()
	}
	w.Time, _ = time.Parse(time.RFC3339Nano, r.Time) // a gate that is out of its mind has no time
	return w
}

// TestNetwork says what would become of a flow of the chat's.
func (e *Engine) TestNetwork(k ChatKey, req api.NetworkTest) (api.NetworkVerdict, error) {
	rec, err := e.chatRecord(k)
	if err != nil {
		return api.NetworkVerdict{}, err
	}
	f := sandbox.NetworkFlow{Protocol: req.Protocol, Port: 443}
	if f.Protocol == "" {
		f.Protocol = "tcp"
	}
	if req.Port != 0 {
		f.Port = uint16(req.Port)
	}
	host := strings.TrimSuffix(strings.TrimPrefix(req.Host, "["), "]")
	if f.Addr, err = netip.ParseAddr(host); err != nil {
		if f.Name, err = sandbox.NetworkName(host); err != nil {
			return api.NetworkVerdict{}, api.Errorf(api.CodeInvalid, "%v", err)
		}
	}
	v, err := e.cfg.Network.Control.Judge(e.cfg.Network.policy(rec), f)
	if err != nil {
		return api.NetworkVerdict{}, err
	}
	w := api.NetworkVerdict{
		Protocol: f.Protocol, Host: f.Name, Port: int(f.Port), Allow: v.Allow, Rule: v.Rule, Explanation: explainRule(v.Rule),
		Conditional: v.Allow && f.Name != "" && !slices.ContainsFunc(e.cfg.Network.Operator.Services, func(s sandbox.NetworkService) bool { return s.Name == f.Name }),
	}
	if f.Name == "" {
		w.Host = f.Addr.String()
	}
	return w, nil
}
