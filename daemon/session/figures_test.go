package session

import (
	"testing"

	"mediasandbox/runtime/sandbox"
)

// TestGateCounts adds up gates that come, die and end: no sum may fall, and no
// byte is counted twice.
func TestGateCounts(t *testing.T) {
	var g gateCounts
	read := func() Figures {
		var f Figures
		g.read(&f)
		return f
	}
	sent := func(want float64) {
		t.Helper()
		if got := read().Network[NetworkCount{CountSent, ""}]; got != want {
			t.Errorf("%v bytes are sent, want %v", got, want)
		}
	}
	account := func(n int64) sandbox.NetworkTraffic { return sandbox.NetworkTraffic{Sequence: 1, Sent: n, OpenTCP: 2} }
	sent(0)
	g.join("a", false)
	g.see("a", account(100))
	sent(100)
	// A gate that was restarted may have forgotten its last seconds.
	g.see("a", account(90))
	sent(100)
	// One of an earlier engine counts from where it was found.
	g.join("b", true)
	g.see("b", sandbox.NetworkTraffic{})
	sent(100)
	g.see("b", account(5000))
	sent(100)
	g.see("b", account(5010))
	sent(110)
	if f := read(); f.OpenTCP != 4 || f.OpenUDP != 0 {
		t.Errorf("%+v", f)
	}
	// It ends, and a look that was slow comes after the end.
	g.leave("a", account(150))
	sent(160)
	g.see("a", account(150))
	g.leave("a", account(150))
	g.leave("never", account(7))
	sent(160)
	g.leave("b", sandbox.NetworkTraffic{}) // it did not answer
	sent(160)
	if f := read(); f.OpenTCP != 0 {
		t.Errorf("%+v", f)
	}
}

// TestKindsAreFew takes an account from a gate that is out of its mind.
func TestKindsAreFew(t *testing.T) {
	counts := countsOf(sandbox.NetworkTraffic{
		Sequence: 1, Sent: 1 << 62,
		RefusedBy: map[string]int64{"private": 1, "operator": 2, "chat": 3, "a\nb": 4, "evil.test": 5, "": 6},
	})
	for kind, want := range map[string]float64{"private": 1, "operator": 2, "chat": 3, "other": 15, "evil.test": 0} {
		if got := counts[NetworkCount{CountRefused, kind}]; got != want {
			t.Errorf("%q: %v, want %v", kind, got, want)
		}
	}
}
