package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"mediasandbox/runtime/gate/internal/handover"
	"mediasandbox/runtime/gate/policy"
)

// target is a place that a flow may be dialled to.
type target struct {
	// goal is what was judged: with the real address, and the name if one is
	// known to have led there.
	goal policy.Flow
	to   netip.AddrPort
	// service is set when to is a service of the host's own.
	service bool
	// rule allowed it.
	rule string
}

// aim says where a flow of the guest's may go, or which rule refuses it. For
// an address that stands for a name these are the name's real addresses.
// With a context the name is resolved again if it has to be.
func (g *gate) aim(ctx context.Context, f policy.Flow) (targets []target, denied policy.Flow, rule string) {
	if !handover.Synthetic.Contains(f.Addr) {
		v := g.policy.Load().Decide(f)
		if !v.Allow {
			return nil, f, v.Rule
		}
		return []target{{goal: f, to: netip.AddrPortFrom(f.Addr, f.Port), rule: v.Rule}}, f, ""
	}
	b, ok := g.book.find(f.Addr)
	if !ok {
		return nil, f, g.policy.Load().Decide(f).Rule
	}
	f.Name = b.name
	if to, v, ok := g.policy.Load().Service(f); ok {
		if !v.Allow {
			return nil, f, v.Rule
		}
		f.Addr = to.Addr()
		return []target{{goal: f, to: to, service: true, rule: v.Rule}}, f, ""
	}
	real := b.real
	if ctx != nil && !b.fresh() {
		real = g.refresh(ctx, b)
	}
	return g.judgeAll(f, real)
}

// judgeAll returns those of a name's addresses that a flow may go to.
func (g *gate) judgeAll(f policy.Flow, real []netip.Addr) (targets []target, denied policy.Flow, rule string) {
	p := g.policy.Load()
	denied = f
	for _, addr := range real {
		f.Addr = addr
		v := p.Decide(f)
		if v.Allow {
			targets = append(targets, target{goal: f, to: netip.AddrPortFrom(addr, f.Port), rule: v.Rule})
		} else if rule == "" {
			denied, rule = f, v.Rule
		}
	}
	if len(targets) == 0 && rule == "" {
		rule = policy.RuleDNSName
	}
	return targets, denied, rule
}

// refresh resolves a name again whose addresses no longer hold. While no
// resolver answers, the old ones hold on.
func (g *gate) refresh(ctx context.Context, b binding) []netip.Addr {
	real, ttl, err := g.dns.resolve(ctx, b.name)
	if err != nil {
		if b.usable() {
			return b.real
		}
		return nil
	}
	g.book.give(b.name, real, ttl)
	return real
}

// stillAllowed judges a flow that is open, as the policy is now.
func (g *gate) stillAllowed(t target) (rule string, ok bool) {
	p := g.policy.Load()
	if t.service {
		to, v, found := p.Service(t.goal)
		return v.Rule, found && v.Allow && to == t.to
	}
	v := p.Decide(t.goal)
	return v.Rule, v.Allow
}

// errDenied is what a dial returns when the policy changed its mind between
// the packet and the connection.
type errDenied struct{ rule string }

func (e errDenied) Error() string { return "denied by rule " + e.rule }

// How long one attempt to connect may take: the last of several addresses,
// and each before it. A guest that is more patient sends its SYN again, which
// begins another.
const (
	dialTimeout  = 30 * time.Second
	firstTimeout = 5 * time.Second
)

// dialAny connects to the first of the targets that answers.
func (g *gate) dialAny(network string, targets []target) (conn net.Conn, t target, err error) {
	for i, t := range targets {
		timeout := firstTimeout
		if i == len(targets)-1 {
			timeout = dialTimeout
		}
		if conn, err = g.dial(network, t, timeout); err == nil {
			return conn, t, nil
		}
	}
	return nil, t, err
}

// dial connects to a target. The address that the kernel is about to connect
// to is judged once more, in the last moment.
func (g *gate) dial(network string, t target, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{
		Timeout:   timeout,
		KeepAlive: -1, // set by the flow, which knows whether it is worth it
		Control: func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("judge %q: %w", address, err)
			}
			again := t
			again.to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
			if !t.service {
				again.goal.Addr, again.goal.Port = again.to.Addr(), again.to.Port()
			}
			if rule, ok := g.stillAllowed(again); !ok {
				return errDenied{rule}
			}
			return nil
		},
	}
	// The family is in the network's name so that the net package does not
	// try out, with a bind, which families there are.
	network += "6"
	if t.to.Addr().Is4() {
		network = strings.TrimSuffix(network, "6") + "4"
	}
	conn, err := d.DialContext(g.ctx, network, t.to.String())
	if err != nil {
		var denied errDenied
		if errors.As(err, &denied) {
			g.refuse(t.goal, denied.rule)
		}
		return nil, err
	}
	return conn, nil
}
