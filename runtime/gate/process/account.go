package process

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"mediasandbox/runtime/sandbox"
)

// Bounds of an account.
const (
	// accountEvery is how often a gate that moves bytes gives one unasked, so
	// that its successor knows what it counted.
	accountEvery = 5 * time.Second
	// listedFlows is how many open flows an account lists.
	listedFlows = 256
	// maxAccount bounds an account that is read back, in bytes.
	maxAccount = 1 << 20
)

// accountFiles is where a gate writes what it counted: two files by turns, so
// that one of them is always whole.
type accountFiles struct {
	mu    sync.Mutex
	files [2]*os.File
	turn  int
	seq   uint64
}

// openAccount takes over the files, and what the last gate wrote there.
func openAccount(files [2]*os.File) (*accountFiles, sandbox.NetworkTraffic, error) {
	a := &accountFiles{files: files}
	var last sandbox.NetworkTraffic
	for i, f := range files {
		b, err := io.ReadAll(io.NewSectionReader(f, 0, maxAccount))
		if err != nil {
			return nil, last, fmt.Errorf("read the last account: %w", err)
		}
		var t sandbox.NetworkTraffic
		if json.Unmarshal(b, &t) != nil {
			continue // there is none yet, or the last gate died as it wrote it
		}
		if t.Sequence >= a.seq {
			last, a.seq, a.turn = t, t.Sequence, 1-i
		}
	}
	return a, last, nil
}

// write replaces the older account.
func (a *accountFiles) write(t sandbox.NetworkTraffic) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	t.Sequence = a.seq + 1
	b, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("give an account: %w", err)
	}
	f := a.files[a.turn]
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("give an account: %w", err)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		return fmt.Errorf("give an account: %w", err)
	}
	a.seq, a.turn = t.Sequence, 1-a.turn
	return nil
}

// account is what the gate has to tell now.
func (g *gate) account() sandbox.NetworkTraffic {
	m := &g.meter
	t := sandbox.NetworkTraffic{
		Generation: g.generation.Load(), At: time.Now().UTC(),
		Sent: m.sent.Load(), Received: m.received.Load(),
		Flows: m.flows.Load(), Refused: m.refused.Load(), Queries: m.queries.Load(), Dropped: m.dropped.Load(),
		Throttled: m.throttled.Load(),
		AllowedBy: m.allowedBy.read(), RefusedBy: m.refusedBy.read(), NamesRefusedBy: m.namesRefusedBy.read(), CutBy: m.cutBy.read(),
		OpenTCP: int(g.flows.tcp.Load()), OpenUDP: int(g.flows.udp.Load()),
		Closed: g.flows.lastClosed(),
	}
	for _, f := range g.flows.all() {
		t.Open = append(t.Open, f.record())
	}
	slices.SortFunc(t.Open, func(a, b sandbox.NetworkFlowRecord) int { return b.OpenedAt.Compare(a.OpenedAt) })
	t.Open = t.Open[:min(len(t.Open), listedFlows)]
	return t
}

// resume goes on counting where the last gate stopped.
func (g *gate) resume(last sandbox.NetworkTraffic) {
	m := &g.meter
	m.sent.Store(last.Sent)
	m.received.Store(last.Received)
	m.flows.Store(last.Flows)
	m.refused.Store(last.Refused)
	m.queries.Store(last.Queries)
	m.dropped.Store(last.Dropped)
	m.throttled.Store(last.Throttled)
	m.allowedBy.resume(last.AllowedBy)
	m.refusedBy.resume(last.RefusedBy)
	m.namesRefusedBy.resume(last.NamesRefusedBy)
	m.cutBy.resume(last.CutBy)
}
