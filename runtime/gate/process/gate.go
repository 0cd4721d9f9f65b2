// Package process is the gate itself: an unprivileged process that holds the
// TAP of one sandbox, ends every TCP and UDP flow of the guest in a TCP/IP
// stack of its own, and goes on with an ordinary socket of the host where the
// policy allows it. The guest's packets are parsed here and nowhere else on
// the host, which is why this process can do nothing: see harden.go.
//
// A frame goes this way: tapEndpoint reads it, inspect (frame.go) says what it
// is, Gate.sift asks the policy, the stack delivers it to a forwarder, and the
// forwarder (tcp.go, udp.go) or the resolver (dns.go) deals with the flow. What
// is refused is answered at once (reject.go) and logged (refusals.go).
//
// Start reading at Main, which is the whole life of the process.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

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

	policy    atomic.Pointer[policy.Policy]
	resolvers atomic.Pointer[[]netip.AddrPort]

	link  *tapEndpoint
	stack *stack.Stack
	flows flowSet
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
	g := &gate{log: log, limits: cfg.Limits, refusals: refusals}
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

// configure puts a configuration in force for the flows to come.
func (g *gate) configure(cfg handover.Config) {
	g.resolvers.Store(&cfg.Resolvers)
	g.changePolicy(func(p *policy.Policy) { p.Mode = cfg.Policy.Mode })
}

// setHosts puts the host's addresses in force.
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
			return
		}
	}
}

// run reads packets until the TAP fails or Close is called.
func (g *gate) run() error { return g.link.run() }

// Close ends every flow and waits for what the gate started.
func (g *gate) Close() {
	g.end()
	g.flows.abortAll()
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
		v := g.policy.Load().Decide(p.flow)
		if v.Allow {
			return true, nil
		}
		g.refuse(p.flow, v.Rule)
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
	return false, nil
}

func (g *gate) isDNS(f policy.Flow) bool {
	return f.Addr == handover.GateAddr && f.Port == dnsPort && (f.Protocol == policy.TCP || f.Protocol == policy.UDP)
}

func (g *gate) refuse(f policy.Flow, rule string) {
	g.logRefusal(string(f.Protocol), netip.AddrPortFrom(f.Addr, f.Port), "", rule)
}

func (g *gate) logRefusal(proto string, dst netip.AddrPort, name, rule string) {
	if err := g.refusals.add(proto, dst, name, rule); err != nil && !g.complained.Swap(true) {
		g.log.Error("the refusal log can't be written", "err", err)
	}
}

// errDenied is what a dial returns when the policy changed its mind between
// the packet and the connection.
type errDenied struct{ rule string }

func (e errDenied) Error() string { return "denied by rule " + e.rule }

// dial connects to where a flow wants to go. The address that the kernel is
// about to connect to is judged once more, in the last moment.
func (g *gate) dial(network string, f policy.Flow) (net.Conn, error) {
	d := net.Dialer{
		Timeout:   dialTimeout,
		KeepAlive: -1, // set by the flow, which knows whether it is worth it
		Control: func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("judge %q: %w", address, err)
			}
			again := policy.Flow{Protocol: f.Protocol, Addr: to.Addr().Unmap(), Port: to.Port()}
			if v := g.policy.Load().Decide(again); !v.Allow {
				return errDenied{v.Rule}
			}
			return nil
		},
	}
	conn, err := d.DialContext(g.ctx, network, netip.AddrPortFrom(f.Addr, f.Port).String())
	if err != nil {
		var denied errDenied
		if errors.As(err, &denied) {
			g.refuse(f, denied.rule)
		}
		return nil, err
	}
	return conn, nil
}

// dialTimeout bounds one attempt. A guest that is more patient sends its SYN
// again, which begins another.
const dialTimeout = 30 * time.Second

// flowSet is the flows that are open.
type flowSet struct {
	tcp, udp atomic.Int64

	mu     sync.Mutex
	closed bool
	open   map[flow]struct{}
}

// flow is something that can be cut off.
type flow interface{ abort() }

// add takes a flow in; false says that the gate is closing.
func (s *flowSet) add(f flow) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.open == nil {
		s.open = make(map[flow]struct{})
	}
	s.open[f] = struct{}{}
	return true
}

func (s *flowSet) remove(f flow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, f)
}

func (s *flowSet) abortAll() {
	s.mu.Lock()
	s.closed = true
	open := make([]flow, 0, len(s.open))
	for f := range s.open {
		open = append(open, f)
	}
	s.mu.Unlock()
	for _, f := range open {
		f.abort()
	}
}

// reserve takes a place under a limit, or says that there is none.
func reserve(n *atomic.Int64, limit int) (others int, ok bool) {
	now := n.Add(1)
	if now > int64(limit) {
		n.Add(-1)
		return 0, false
	}
	return int(now - 1), true
}
