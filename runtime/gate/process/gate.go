// Package process is the gate itself: an unprivileged process that holds the
// TAP of one sandbox, ends every TCP and UDP flow of the guest in a TCP/IP
// stack of its own, and goes on with an ordinary socket of the host where the
// policy allows it. The guest's packets are parsed here and nowhere else on
// the host, which is why this process can do nothing: see harden.go.
//
// A frame goes this way: tapEndpoint reads it, inspect (frame.go) says what it
// is, gate.sift asks the policy, the stack delivers it to a forwarder, and the
// forwarder (tcp.go, udp.go) finds out where the flow may go (aim.go) and dials,
// or the resolver (dns.go) answers. Names that the policy tells apart have
// addresses of their own (names.go). What is refused is answered at once
// (reject.go) and logged (refusals.go); what leaves is counted and limited
// (flows.go, meter.go, account.go).
//
// Start reading at Main, which is the whole life of the process.
package process

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"mediasandbox/runtime/gate/internal/handover"
	"mediasandbox/runtime/gate/policy"
)

// gate is one running gate.
type gate struct {
	log      *slog.Logger
	limits   handover.Limits
	refusals *refusalLog

	policy     atomic.Pointer[policy.Policy]
	resolvers  atomic.Pointer[[]netip.AddrPort]
	generation atomic.Uint64

	link  *tapEndpoint
	stack *stack.Stack
	flows flowSet
	meter meter
	book  *nameBook
	dns   dnsServer

	// complained is set once the refusal log failed.
	complained atomic.Bool

	// work counts the goroutines that Close waits for.
	work sync.WaitGroup
	ctx  context.Context
	end  context.CancelFunc
}

// newGate returns a gate that answers packets on tap once run is called.
func newGate(log *slog.Logger, tap *os.File, refusals *refusalLog, cfg handover.Config, hosts policy.HostSet) (*gate, error) {
	g := &gate{log: log, limits: cfg.Limits, refusals: refusals, book: newNameBook()}
	g.ctx, g.end = context.WithCancel(context.Background())
	g.policy.Store(&policy.Policy{Host: hosts})
	g.configure(cfg)
	g.link = newTapEndpoint(tap, g.sift)
	s, err := newStack(g.link)
	if err != nil {
		g.end()
		return nil, err
	}
	g.stack = s
	g.dns.init(g)
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, tcp.NewForwarder(s, minBuffer, cfg.Limits.Dialing, g.handleTCP).HandlePacket)
	s.SetTransportProtocolHandler(udp.ProtocolNumber, udp.NewForwarder(s, g.handleUDP).HandlePacket)
	if err := g.dns.listen(); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// configure puts a configuration in force: for the flows to come, and for
// those that are open, which end if it denies them.
func (g *gate) configure(cfg handover.Config) {
	g.resolvers.Store(&cfg.Resolvers)
	g.meter.configure(cfg.Policy.Limits, cfg.Policy.Spent)
	g.changePolicy(func(p *policy.Policy) { *p = policy.New(cfg.Policy, p.Host) })
	g.generation.Store(cfg.Generation)
	if g.meter.spent() {
		g.cutAll(policy.RuleTotalLimit)
	}
}

// setHosts puts the host's addresses in force, in the same way.
func (g *gate) setHosts(hosts policy.HostSet) {
	g.changePolicy(func(p *policy.Policy) { p.Host = hosts })
}

// changePolicy changes one part of the policy and keeps what others changed.
func (g *gate) changePolicy(change func(*policy.Policy)) {
	for {
		old := g.policy.Load()
		p := *old
		change(&p)
		if g.policy.CompareAndSwap(old, &p) {
			break
		}
	}
	for _, f := range g.flows.all() {
		g.recheck(f)
	}
}

// run reads packets until the TAP fails or Close is called.
func (g *gate) run() error { return g.link.run() }

// Close ends every flow and waits for what the gate started.
func (g *gate) Close() {
	g.end()
	g.flows.end()
	g.dns.close()
	g.work.Wait()
	g.stack.Close()
}

// goWork runs f in a goroutine that Close waits for.
func (g *gate) goWork(f func()) {
	g.work.Go(f)
}

// sift decides whether the stack sees a packet, and what is answered if not.
func (g *gate) sift(p packet) (ok bool, answer []byte) {
	switch p.what {
	case deliver:
		return true, nil
	case judge:
		if g.isDNS(p.flow) {
			return true, nil
		}
		denied, rule := g.judge(p.flow)
		if rule == "" {
			return true, nil
		}
		g.refuse(denied, rule)
		return false, refusalFor(p)
	case refuse:
		v := g.policy.Load().Decide(p.flow)
		if v.Allow {
			// The policy has no objection, but the stack can't carry it.
			v.Rule = policy.RuleProtocol
		}
		g.refuse(p.flow, v.Rule)
		return false, refusalFor(p)
	}
	g.meter.dropped.Add(1)
	return false, nil
}

// judge returns the rule that refuses a flow, or "". The forwarder, which finds
// out where the flow goes, judges once more.
func (g *gate) judge(f policy.Flow) (denied policy.Flow, rule string) {
	if !handover.Synthetic.Contains(f.Addr) {
		if v := g.policy.Load().Decide(f); !v.Allow {
			return f, v.Rule
		}
		return f, ""
	}
	if b, ok := g.book.find(f.Addr); ok && f.Protocol == policy.TCP && !b.fresh() {
		return f, "" // the forwarder resolves it anew
	}
	targets, denied, rule := g.aim(nil, f)
	if len(targets) > 0 {
		return f, ""
	}
	return denied, rule
}

func (g *gate) isDNS(f policy.Flow) bool {
	return f.Addr == handover.GateAddr && f.Port == dnsPort && (f.Protocol == policy.TCP || f.Protocol == policy.UDP)
}

func (g *gate) refuse(f policy.Flow, rule string) {
	g.logRefusal(string(f.Protocol), netip.AddrPortFrom(f.Addr, f.Port), f.Name, rule)
}

func (g *gate) logRefusal(proto string, dst netip.AddrPort, name, rule string) {
	g.meter.refused.Add(1)
	if proto == "dns" {
		g.meter.namesRefusedBy.add(rule)
	} else {
		g.meter.refusedBy.add(rule)
	}
	if err := g.refusals.add(proto, dst, name, rule); err != nil && !g.complained.Swap(true) {
		g.log.Error("the refusal log can't be written", "err", err)
	}
}
