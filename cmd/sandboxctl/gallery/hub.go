package gallery

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
)

const (
	// recentBytes bounds the events that a page which was away can catch up
	// with; one that was away for longer reads everything again.
	recentBytes = 8 << 20
	// pulse is how often the daemon is asked whether it is there.
	pulse = 2 * time.Second
	// patience is how long it may take to answer.
	patience = 3 * time.Second
)

// entry is an event as pages get it.
type entry struct {
	seq  uint64
	chat string
	data []byte
}

// hub follows the account's events once for all pages, and knows whether the
// daemon is there.
type hub struct {
	client  *client.Client
	log     *slog.Logger
	started time.Time

	mu      sync.Mutex
	recent  []entry
	bytes   int
	first   uint64 // the last event that recent does not hold
	last    uint64
	away    string // why the daemon is not there, or empty
	changed chan struct{}
}

func newHub(c *client.Client, log *slog.Logger) *hub {
	return &hub{client: c, log: log, started: time.Now(), changed: make(chan struct{})}
}

// run follows until ctx ends.
func (h *hub) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { h.watch(ctx) })
	for ctx.Err() == nil {
		h.mu.Lock()
		after := h.last
		h.mu.Unlock()
		// The client reconnects by itself while the daemon restarts.
		if err := h.client.AccountEvents(ctx, after, h.take); err != nil && ctx.Err() == nil {
			h.log.Info("follow events", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// take keeps an event for the pages. What happened before the gallery began is
// in what they read at their start.
func (h *hub) take(ev api.AccountEvent) error {
	data, err := json.Marshal(ev)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = ev.Seq
	if ev.Time.Before(h.started) {
		h.first = ev.Seq
		return nil
	}
	h.recent = append(h.recent, entry{ev.Seq, ev.Chat, data})
	for h.bytes += len(data); h.bytes > recentBytes; h.recent = h.recent[1:] {
		h.bytes -= len(h.recent[0].data)
		h.first = h.recent[0].seq
	}
	h.wake()
	return nil
}

// wake tells the pages' streams to look again. mu is held.
func (h *hub) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// watch asks again and again whether the daemon is there.
func (h *hub) watch(ctx context.Context) {
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	for {
		away := ""
		asking, cancel := context.WithTimeout(ctx, patience)
		if _, err := h.client.Info(asking); err != nil {
			away = err.Error()
		}
		cancel()
		h.mu.Lock()
		if away != h.away && ctx.Err() == nil {
			h.away = away
			h.wake()
		}
		h.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// since returns the events after one, and whether they are all of them.
func (h *hub) since(after uint64) (events []entry, whole bool, away string, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(h.recent); i > 0 && h.recent[i-1].seq > after; i-- {
		events = h.recent[i-1:]
	}
	return events, after >= h.first && after <= h.last, h.away, h.changed
}

// serve streams the events of a chat, or of all chats for "", from where the
// page left off. "hello" says whether the page must read everything first, and
// whether the daemon is there.
func (h *hub) serve(w http.ResponseWriter, r *http.Request, chat string) {
	s := newStream(w)
	h.mu.Lock()
	at := h.last
	h.mu.Unlock()
	fresh := true
	if after, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64); err == nil {
		if _, whole, _, _ := h.since(after); whole {
			at, fresh = after, false
		}
	}
	_, _, away, _ := h.since(at)
	if s.send("hello", at, map[string]any{"fresh": fresh, "away": away}) != nil {
		return
	}
	for {
		events, whole, now, changed := h.since(at)
		if now != away {
			away = now
			if s.send("daemon", at, map[string]any{"away": away}) != nil {
				return
			}
		}
		if !whole {
			return // it was too slow: it comes back and reads everything
		}
		for _, e := range events {
			at = e.seq
			if chat != "" && e.chat != chat {
				continue
			}
			if s.send("event", e.seq, json.RawMessage(e.data)) != nil {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// stream writes server-sent events.
type stream struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func newStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	s := &stream{w, http.NewResponseController(w)}
	_, _ = fmt.Fprint(w, "retry: 1000\n\n") // a page that has gone is noticed by the first send
	return s
}

// send writes one event, with its number unless that is 0.
func (s *stream) send(name string, id uint64, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	if id > 0 {
		if _, err := fmt.Fprintf(s.w, "id: %d\n", id); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", name, data); err != nil {
		return err
	}
	return s.rc.Flush()
}
