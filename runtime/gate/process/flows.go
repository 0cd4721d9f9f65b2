package process

import (
	"sync"
	"sync/atomic"
	"time"

	"mediasandbox/runtime/gate/policy"
	"mediasandbox/runtime/sandbox"
)

// flow is one TCP or UDP flow that was let out: what it is, what it moved, and
// how it is cut off.
type flow struct {
	target
	opened time.Time
	// sent and received count payload bytes, as the guest sees them.
	sent, received atomic.Int64
	// abort ends it at once; it may be called more than once.
	abort func()
	// cut is the rule or limit that cut it off.
	cut atomic.Pointer[string]
}

// record describes the flow.
func (f *flow) record() sandbox.NetworkFlowRecord {
	r := sandbox.NetworkFlowRecord{
		NetworkFlow: sandbox.NetworkFlow{
			Protocol: string(f.goal.Protocol), Addr: f.to.Addr(), Name: f.goal.Name, Port: f.goal.Port,
		},
		Rule: f.rule, OpenedAt: f.opened, Sent: f.sent.Load(), Received: f.received.Load(),
	}
	if f.service {
		r.Addr = r.Addr.Unmap()
	}
	if cut := f.cut.Load(); cut != nil {
		r.Cut = *cut
	}
	return r
}

// cutOff ends a flow for a reason that the guest's owner is told.
func (g *gate) cutOff(f *flow, rule string) {
	if f.cut.CompareAndSwap(nil, &rule) {
		g.meter.cutBy.add(rule)
	}
	f.abort()
}

// keptClosed is how many flows that ended are remembered.
const keptClosed = 64

// flowSet is the flows that are open, and the last that were.
type flowSet struct {
	// tcp and udp count places that are taken, also by flows still dialling.
	tcp, udp atomic.Int64

	mu     sync.Mutex
	ended  bool
	open   map[*flow]struct{}
	closed []sandbox.NetworkFlowRecord
}

// add takes a flow in; false says that the gate is closing.
func (s *flowSet) add(f *flow) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	if s.open == nil {
		s.open = make(map[*flow]struct{})
	}
	s.open[f] = struct{}{}
	return true
}

// remove takes a flow out that has ended.
func (s *flowSet) remove(f *flow) {
	r := f.record()
	r.ClosedAt = time.Now().UTC()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, f)
	if len(s.closed) == keptClosed {
		s.closed = append(s.closed[:0], s.closed[1:]...)
	}
	s.closed = append(s.closed, r)
}

// all returns the flows that are open.
func (s *flowSet) all() []*flow {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := make([]*flow, 0, len(s.open))
	for f := range s.open {
		open = append(open, f)
	}
	return open
}

func (s *flowSet) lastClosed() []sandbox.NetworkFlowRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sandbox.NetworkFlowRecord(nil), s.closed...)
}

// end cuts every flow off and takes no more.
func (s *flowSet) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	for _, f := range s.all() {
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

// take takes a place for a flow of a protocol, under the gate's limit for it
// and the chat's for both. The caller gives the place back with release.
func (g *gate) take(proto policy.Protocol) (others int, release func(), rule string) {
	count, limit := &g.flows.tcp, g.limits.TCPFlows
	if proto == policy.UDP {
		count, limit = &g.flows.udp, g.limits.UDPFlows
	}
	if g.meter.spent() {
		return 0, nil, policy.RuleTotalLimit
	}
	others, ok := reserve(count, limit)
	if !ok {
		return 0, nil, policy.RuleFlowLimit
	}
	release = func() { count.Add(-1) }
	if most := g.meter.limits.Load().Flows; most > 0 && g.flows.tcp.Load()+g.flows.udp.Load() > int64(most) {
		release()
		return 0, nil, policy.RuleFlowLimit
	}
	return others, release, ""
}

// begin lets a flow out that is connected. It is judged again once it is in
// the set: a policy that changed since it was dialled looks only there.
func (g *gate) begin(t target, abort func()) (f *flow, ok bool) {
	f = &flow{target: t, opened: time.Now().UTC(), abort: abort}
	if f.goal.Name == "" {
		f.goal.Name = g.book.seenAs(t.to.Addr())
	}
	if !g.flows.add(f) {
		abort()
		return nil, false
	}
	g.meter.flows.Add(1)
	g.meter.allowedBy.add(f.rule)
	g.recheck(f)
	return f, true
}

// recheck cuts a flow off that the policy no longer allows.
func (g *gate) recheck(f *flow) {
	if rule, ok := g.stillAllowed(f.target); !ok {
		g.refuse(f.goal, rule)
		g.cutOff(f, rule)
	}
}
