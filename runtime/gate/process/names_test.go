package process

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"mediasandbox/runtime/gate/internal/handover"
	"mediasandbox/runtime/sandbox"
)

func TestNameBook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNameBook()
		real := []netip.Addr{netip.MustParseAddr("1.1.1.1")}
		first := b.give("a.test", real, time.Second)
		second := b.give("b.test", real, 2*time.Hour)
		if first == second || !handover.Synthetic.Contains(first) || !handover.Synthetic.Contains(second) {
			t.Fatalf("two names with one address stand at %s and %s", first, second)
		}
		if again := b.give("a.test", real, time.Second); again != first {
			t.Errorf("a.test moved from %s to %s", first, again)
		}
		if _, ok := b.find(netip.MustParseAddr("198.19.200.1")); ok {
			t.Error("an address that was never given is found")
		}
		// A TTL has a floor, a ceiling, and a grace for resolvers that are away.
		for _, c := range []struct {
			addr          netip.Addr
			after         time.Duration
			fresh, usable bool
		}{
			{first, 0, true, true}, {first, 59 * time.Second, true, true}, {first, 2 * time.Second, false, true}, {first, time.Hour, false, false},
		} {
			time.Sleep(c.after)
			got, ok := b.find(c.addr)
			if !ok || got.name != "a.test" || got.fresh() != c.fresh || got.usable() != c.usable {
				t.Errorf("%s later: %+v, %v", c.after, got, ok)
			}
		}
		if got, _ := b.find(second); got.fresh() {
			t.Error("a TTL of two hours holds for longer than one")
		}
		// Among very many names the ones that are used stay.
		for i := range 3 * maxBindings {
			b.give(fmt.Sprintf("%d.test", i), real, time.Minute)
			if got, ok := b.find(first); !ok || got.name != "a.test" {
				t.Fatalf("a name that is used is forgotten after %d others", i)
			}
		}
		if _, ok := b.find(second); ok || len(b.byName) != maxBindings || len(b.byAddr) != maxBindings {
			t.Errorf("%d names, %d addresses are kept, want %d", len(b.byName), len(b.byAddr), maxBindings)
		}
		for i := range 3 * maxSeen {
			b.see("seen.test", netip.AddrFrom4([4]byte{1, byte(i >> 16), byte(i >> 8), byte(i)}))
		}
		if len(b.seen) != maxSeen || len(b.seenOrder) != maxSeen || b.seenAs(netip.MustParseAddr("1.0.47.255")) != "seen.test" {
			t.Errorf("%d, %d addresses are remembered", len(b.seen), len(b.seenOrder))
		}
	})
}

// TestMeter holds traffic against a bandwidth and a total.
func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{book: newNameBook()}
		const second, piece = 256 << 10, 64 << 10
		g.meter.configure(sandbox.NetworkLimits{Bandwidth: second}, 0)
		f := &flow{abort: func() {}}
		start := time.Now()
		for range 10 * second / piece {
			if err := g.pay(t.Context(), &f.sent, &g.meter.sent, piece); err != nil {
				t.Fatal(err)
			}
		}
		// The first second's worth is the burst.
		if took := time.Since(start); took != 9*time.Second {
			t.Errorf("ten seconds' worth of bytes took %v, want 9s", took)
		}
		if n := g.meter.throttled.Load(); n != 9*second/piece {
			t.Errorf("%d waits are counted, want one for each copy after the burst", n)
		}
		if g.payNow(&f.sent, &g.meter.sent, 1000) {
			t.Error("a datagram finds room where there is none")
		}
		time.Sleep(time.Second)
		if !g.payNow(&f.sent, &g.meter.sent, 1000) {
			t.Error("a datagram finds no room where there is some")
		}
		if sent := f.sent.Load(); sent != g.meter.sent.Load() || sent != 10*second+1000 {
			t.Errorf("%d bytes are counted", sent)
		}
		cut := 0
		f.abort = func() { cut++ }
		g.flows.add(f)
		g.meter.configure(sandbox.NetworkLimits{Total: 12 * second}, second)
		if err := g.pay(t.Context(), &f.received, &g.meter.received, second-2000); err != nil || g.meter.spent() {
			t.Errorf("within the total: %v", err)
		}
		if err := g.pay(t.Context(), &f.received, &g.meter.received, 1000); err != errSpent || cut != 1 || f.record().Cut != "total-limit" {
			t.Errorf("at the total: %v, cut %d times, %+v", err, cut, f.record())
		}
	})
}
