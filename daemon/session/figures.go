package session

import (
	"context"
	"maps"
	"slices"
	"sync"

	"mediasandbox/daemon/api"
	"mediasandbox/runtime/sandbox"
	"mediasandbox/uploader"
)

// Figures are what an Engine has to tell of all accounts together. Nothing in
// them names an account, a chat or what is in one.
type Figures struct {
	Usage api.Usage
	// PoolReady counts the booted sandboxes that wait for a chat, of PoolSize.
	PoolReady, PoolSize int
	// MaxSandboxes bounds the live sandboxes.
	MaxSandboxes int
	// Ended counts the commands that ended since the engine began, by state.
	Ended   map[api.State]int64
	Uploads uploader.Stats
	// DiskFree is how many bytes the file system of the state has left.
	DiskFree int64
	// OpenTCP and OpenUDP count the flows that are open now; Network counts
	// since the engine began, and GateRestarts the gates that died.
	OpenTCP, OpenUDP int
	Network          map[NetworkCount]float64
	GateRestarts     int64
}

// NetworkCount is one of the things that gates count. Kind is that of the rule
// that decided, where there is one: a word out of a short list.
type NetworkCount struct{ What, Kind string }

// What gates count.
const (
	CountSent         = "sent"          // payload bytes
	CountReceived     = "received"      // payload bytes
	CountQueries      = "queries"       // DNS queries
	CountDropped      = "dropped"       // frames that no host would answer
	CountThrottled    = "throttled"     // waits for bandwidth
	CountAllowed      = "allowed"       // flows, by kind of rule
	CountRefused      = "refused"       // flows, by kind of rule
	CountNamesRefused = "names-refused" // DNS names, by kind of rule
	CountCut          = "cut"           // flows, by kind of rule
)

// Figures asks every gate for an account, and tells what the engine has.
func (e *Engine) Figures(ctx context.Context) (Figures, error) {
	e.askGates(ctx)
	f := Figures{
		Usage: e.Usage(), PoolReady: len(e.pool.ready), PoolSize: e.cfg.Pool, MaxSandboxes: e.cfg.MaxSandboxes,
		Uploads: e.uploads.Stats(), Ended: e.ended.read(),
	}
	e.gates.read(&f)
	var err error
	f.DiskFree, err = e.diskFree()
	return f, err
}

// askGates brings what is known of the gates up to date. Of a gate that does
// not answer what it told last stays.
func (e *Engine) askGates(ctx context.Context) {
	e.mu.Lock()
	all := slices.Collect(maps.Values(e.live))
	e.mu.Unlock()
	var asked sync.WaitGroup
	for _, l := range all {
		asked.Go(func() {
			id := l.record.Spec.ID
			t, err := e.cfg.Network.Control.Traffic(ctx, id)
			if err != nil {
				e.log.Debug("ask a gate for the metrics", "sandbox", id, "error", err)
				return
			}
			e.gates.see(id, t)
		})
	}
	asked.Wait()
}

// stateCounts counts commands by the state they ended in.
type stateCounts struct {
	mu sync.Mutex
	n  map[api.State]int64
}

func (c *stateCounts) add(s api.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = make(map[api.State]int64)
	}
	c.n[s]++
}

func (c *stateCounts) read() map[api.State]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

// gateCounts adds up what the gates count, so that no sum ever falls: a gate
// that died may have forgotten its last seconds, and sandboxes end.
type gateCounts struct {
	mu       sync.Mutex
	past     map[NetworkCount]float64
	live     map[string]*gateCount
	restarts int64
}

// gateCount is what one gate told.
type gateCount struct {
	// taken is set for a gate of an earlier engine until its first account:
	// what it counted before is not this engine's.
	taken            bool
	before, last     map[NetworkCount]float64
	openTCP, openUDP int
}

// join begins to count a sandbox's gate.
func (g *gateCounts) join(id string, taken bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.live == nil {
		g.past, g.live = make(map[NetworkCount]float64), make(map[string]*gateCount)
	}
	g.live[id] = &gateCount{taken: taken, last: make(map[NetworkCount]float64)}
}

// see takes an account in. A sandbox that has left is not counted again.
func (g *gateCounts) see(id string, t sandbox.NetworkTraffic) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.live[id]; c != nil {
		c.see(t)
	}
}

func (c *gateCount) see(t sandbox.NetworkTraffic) {
	if t.Sequence == 0 {
		return // there is no gate
	}
	for what, n := range countsOf(t) {
		c.last[what] = max(c.last[what], n)
	}
	c.openTCP, c.openUDP = max(0, t.OpenTCP), max(0, t.OpenUDP)
	if c.taken {
		c.taken, c.before = false, maps.Clone(c.last)
	}
}

// leave ends the count of a sandbox's gate with its last account.
func (g *gateCounts) leave(id string, t sandbox.NetworkTraffic) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.live[id]
	if c == nil {
		return
	}
	c.see(t)
	c.addTo(g.past)
	delete(g.live, id)
}

func (c *gateCount) addTo(sum map[NetworkCount]float64) {
	for what, n := range c.last {
		sum[what] += n - c.before[what]
	}
}

func (g *gateCounts) restarted() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.restarts++
}

// read fills the network's part of the figures.
func (g *gateCounts) read(f *Figures) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f.Network = make(map[NetworkCount]float64)
	maps.Copy(f.Network, g.past)
	for _, c := range g.live {
		c.addTo(f.Network)
		f.OpenTCP += c.openTCP
		f.OpenUDP += c.openUDP
	}
	f.GateRestarts = g.restarts
}

// countsOf reads an account. It comes from a process that parses hostile
// packets: kinds of rules that there are not become one.
func countsOf(t sandbox.NetworkTraffic) map[NetworkCount]float64 {
	counts := map[NetworkCount]float64{
		{CountSent, ""}: float64(t.Sent), {CountReceived, ""}: float64(t.Received), {CountQueries, ""}: float64(t.Queries),
		{CountDropped, ""}: float64(t.Dropped), {CountThrottled, ""}: float64(t.Throttled),
	}
	for what, by := range map[string]map[string]int64{
		CountAllowed: t.AllowedBy, CountRefused: t.RefusedBy, CountNamesRefused: t.NamesRefusedBy, CountCut: t.CutBy,
	} {
		for kind, n := range by {
			if kind != "operator" && kind != "chat" && ruleTexts[kind] == "" {
				kind = "other"
			}
			counts[NetworkCount{what, kind}] += float64(n)
		}
	}
	return counts
}
