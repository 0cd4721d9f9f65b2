package process

import (
	"container/list"
	"net/netip"
	"slices"
	"sync"
	"time"

	"mediasandbox/runtime/gate/internal/handover"
)

// Bounds of the name book.
const (
	// maxBindings is how many names have an address of their own at a time.
	maxBindings = 4096
	// maxSeen is how many public addresses are remembered with their names.
	maxSeen = 4096
	// ttlFloor and ttlCeiling bound how long a name's addresses hold, whatever
	// its records say. The floor outlasts a client that resolves, waits for a
	// slow page, and connects again.
	ttlFloor   = time.Minute
	ttlCeiling = time.Hour
	// staleLife is how long they hold beyond that while no resolver answers.
	staleLife = time.Hour
)

// nameBook gives names that the policy tells apart an address of their own,
// out of a range that leads nowhere. A flow to such an address is a flow to
// its name: the gate knows the real addresses, and the guest never does. So a
// rule about a name holds for that name alone, also where many names share
// one address.
type nameBook struct {
	mu     sync.Mutex
	byName map[string]*list.Element // of *binding
	byAddr map[netip.Addr]*list.Element
	recent list.List // the last used in front
	next   netip.Addr

	// seen remembers names of real addresses, for display only.
	seen      map[netip.Addr]string
	seenOrder []netip.Addr
}

// binding is one name's entry.
type binding struct {
	name string
	addr netip.Addr
	// real are the addresses behind the name, until then.
	real  []netip.Addr
	until time.Time
}

func newNameBook() *nameBook {
	return &nameBook{
		byName: make(map[string]*list.Element), byAddr: make(map[netip.Addr]*list.Element),
		next: handover.Synthetic.Addr(), seen: make(map[netip.Addr]string),
	}
}

// give records a name's addresses and returns the address that stands for it.
func (b *nameBook) give(name string, real []netip.Addr, ttl time.Duration) netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	until := time.Now().Add(min(max(ttl, ttlFloor), ttlCeiling))
	if e := b.byName[name]; e != nil {
		b.recent.MoveToFront(e)
		old := e.Value.(*binding)
		e.Value = &binding{name: name, addr: old.addr, real: slices.Clone(real), until: until}
		return old.addr
	}
	if b.recent.Len() >= maxBindings {
		last := b.recent.Back()
		old := b.recent.Remove(last).(*binding)
		delete(b.byName, old.name)
		delete(b.byAddr, old.addr)
	}
	// Addresses are given in turn, so that one that is free again is not
	// another name's until 65,000 others were given.
	for {
		if b.next = b.next.Next(); !handover.Synthetic.Contains(b.next) {
			b.next = handover.Synthetic.Addr().Next()
		}
		if b.byAddr[b.next] == nil {
			break
		}
	}
	e := b.recent.PushFront(&binding{name: name, addr: b.next, real: slices.Clone(real), until: until})
	b.byName[name], b.byAddr[b.next] = e, e
	return b.next
}

// find returns the binding of an address that was given.
func (b *nameBook) find(addr netip.Addr) (binding, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.byAddr[addr]
	if e == nil {
		return binding{}, false
	}
	b.recent.MoveToFront(e)
	return *e.Value.(*binding), true
}

// fresh tells whether the real addresses still hold.
func (b binding) fresh() bool { return time.Now().Before(b.until) }

// usable tells whether they can be used for want of better ones.
func (b binding) usable() bool { return time.Now().Before(b.until.Add(staleLife)) }

// see remembers which name led to a real address.
func (b *nameBook) see(name string, addr netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.seen[addr]; !known {
		if len(b.seenOrder) >= maxSeen {
			delete(b.seen, b.seenOrder[0])
			b.seenOrder = b.seenOrder[1:]
		}
		b.seenOrder = append(b.seenOrder, addr)
	}
	b.seen[addr] = name
}

// seenAs returns the name that last led to a real address, or "".
func (b *nameBook) seenAs(addr netip.Addr) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen[addr]
}
