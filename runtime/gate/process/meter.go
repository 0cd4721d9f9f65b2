package process

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"mediasandbox/runtime/gate/policy"
	"mediasandbox/runtime/sandbox"
)

// meter counts what a gate does, and holds its traffic within its limits.
type meter struct {
	sent, received                   atomic.Int64
	flows, refused, queries, dropped atomic.Int64
	throttled                        atomic.Int64
	// The same by the kind of the rule that decided.
	allowedBy, refusedBy, namesRefusedBy, cutBy tally

	limits atomic.Pointer[sandbox.NetworkLimits]
	// before is what earlier sandboxes of the chat moved.
	before atomic.Int64
	// bandwidth is nil when there is no limit.
	bandwidth atomic.Pointer[rate.Limiter]
}

// tally counts by the kind of a rule.
type tally struct {
	mu sync.Mutex
	by map[string]int64
}

func (t *tally) add(rule string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = make(map[string]int64)
	}
	t.by[policy.Kind(rule)]++
}

func (t *tally) read() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.by)
}

func (t *tally) resume(by map[string]int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.by = maps.Clone(by)
}

// errSpent ends a flow of a chat that has moved its share of bytes.
var errSpent = errors.New("the chat has moved all the bytes it may")

// configure puts limits in force. The bandwidth's bucket is kept when it does
// not change.
func (m *meter) configure(l sandbox.NetworkLimits, before int64) {
	old := m.limits.Swap(&l)
	m.before.Store(before)
	switch {
	case l.Bandwidth == 0:
		m.bandwidth.Store(nil)
	case old == nil || old.Bandwidth != l.Bandwidth:
		// A burst of a second, and at least one copy, which must fit.
		m.bandwidth.Store(rate.NewLimiter(rate.Limit(l.Bandwidth), int(max(l.Bandwidth, copySize))))
	}
}

// spent tells whether the chat has moved its share.
func (m *meter) spent() bool {
	most := m.limits.Load().Total
	return most > 0 && m.before.Load()+m.sent.Load()+m.received.Load() >= most
}

// pay counts n bytes of a flow that are about to move, and waits until the
// bandwidth has room for them.
func (g *gate) pay(ctx context.Context, own, all *atomic.Int64, n int) error {
	own.Add(int64(n))
	all.Add(int64(n))
	if g.meter.spent() {
		g.cutAll(policy.RuleTotalLimit)
		return errSpent
	}
	l := g.meter.bandwidth.Load()
	if l == nil || allowNow(l, n) {
		return nil
	}
	g.meter.throttled.Add(1)
	return l.WaitN(ctx, n)
}

// payNow is pay for a datagram, which does not wait: false says that it is
// lost, as on a wire that is full.
func (g *gate) payNow(own, all *atomic.Int64, n int) bool {
	if l := g.meter.bandwidth.Load(); l != nil && !allowNow(l, n) {
		g.meter.throttled.Add(1)
		return false
	}
	own.Add(int64(n))
	all.Add(int64(n))
	if g.meter.spent() {
		g.cutAll(policy.RuleTotalLimit)
		return false
	}
	return true
}

// allowNow takes n from a bucket if they are there.
func allowNow(l *rate.Limiter, n int) bool { return n == 0 || l.AllowN(time.Now(), n) }

// cutAll cuts every flow off.
func (g *gate) cutAll(rule string) {
	for _, f := range g.flows.all() {
		g.cutOff(f, rule)
	}
}
