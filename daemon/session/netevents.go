package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/runtime/sandbox"
)

const (
	// refusalEvents bounds the events about refusals of one sandbox. Each
	// place that is refused makes one; a guest that tries very many does not
	// fill the database.
	refusalEvents = 100
	// refusalsEvery is how often the gates' refusals are looked at. In a sandbox
	// where no command runs, only what was left behind can be refused: there
	// only every restingLooks-th look is taken.
	refusalsEvery = 500 * time.Millisecond
	restingLooks  = 16
)

// ruleTexts explain the rules that nobody wrote.
var ruleTexts = map[string]string{
	"host":           "an address of the host itself",
	"invalid":        "not an address, or port 0",
	"protocol":       "neither TCP nor UDP",
	"smtp":           "mail (TCP port 25) is closed unless the operator opens it",
	"gate":           "the gate itself, which answers DNS and nothing else",
	"flow-limit":     "too many flows are open",
	"total-limit":    "the chat has moved all the bytes it may",
	"dns-name":       "not a host name, or one without an address",
	"service":        "a service of the host that the operator mapped to this name, on its port alone",
	"mode-none":      "the chat, or the host, has no network",
	"mode-allowlist": "on no list of what is allowed",
	"mode-public":    "public addresses are open",
	"metadata":       "a cloud's metadata service; nobody can open it",
	"loopback":       "loopback; nobody can open it",
	"link-local":     "link-local; nobody can open it",
	"unspecified":    "not the address of a host",
	"site-local":     "site-local, which no network should use",
	"multicast":      "multicast",
	"broadcast":      "broadcast",
	"reserved":       "reserved, or an address that stands for a name which was not asked for",
	"private":        "a private range; closed unless the operator opens a part of it",
	"cgnat":          "a carrier's private range; closed unless the operator opens a part of it",
	"unique-local":   "a private range of IPv6; closed unless the operator opens a part of it",
}

// explainRule says what a rule is.
func explainRule(rule string) string {
	for prefix, who := range map[string]string{"operator: ": "a rule of the operator's", "chat: ": "a rule of the chat's"} {
		if strings.HasPrefix(rule, prefix) {
			return who
		}
	}
	if form, inner, ok := strings.Cut(rule, ":"); ok {
		return "IPv4 within IPv6 (" + form + "): " + explainRule(inner)
	}
	if text := ruleTexts[rule]; text != "" {
		return text
	}
	return "a rule of the gate's"
}

// refusalText says in one line what was refused and why.
func refusalText(r api.NetworkRefusal) string {
	var to string
	switch {
	case r.Port != 0:
		to = net.JoinHostPort(r.Address, strconv.Itoa(r.Port))
	default:
		to = r.Address
	}
	if r.Name != "" {
		to = strings.TrimSpace(r.Name + " " + to)
	}
	return fmt.Sprintf("%s %s refused by %s: %s", r.Protocol, to, r.Rule, r.Explanation)
}

// watchRefusals turns what the gates refuse into events of their chats. Those
// that a gate wrote while no daemon was there are found in the flows only.
func (e *Engine) watchRefusals() {
	tick := time.NewTicker(refusalsEvery) // one for all: many timers would wake a resting daemon often
	defer tick.Stop()
	for look := 0; ; look++ {
		select {
		case <-tick.C:
		case <-e.ctx.Done():
			return
		}
		e.mu.Lock()
		all := slices.Collect(maps.Values(e.live))
		e.mu.Unlock()
		for _, l := range all {
			if (l.busy() || look%restingLooks == 0) && !l.gone() {
				e.tellRefusals(l)
			}
		}
	}
}

// refusals is what was told of a sandbox's.
type refusals struct {
	seen  map[sandbox.NetworkRefusal]bool
	after time.Time // of the latest
}

// tellRefusals tells what a sandbox's gate has refused since the last time.
func (e *Engine) tellRefusals(l *live) {
	told := &l.refusals // only watchRefusals gets here
	if told.seen == nil {
		told.seen, told.after = make(map[sandbox.NetworkRefusal]bool), l.record.CreatedAt
		if told.after.Before(e.started) {
			told.after = e.started // the sandbox was taken up, not made
		}
	}
	list, err := e.cfg.Network.Control.Refusals(l.record.Spec.ID, told.after)
	if err != nil {
		e.log.Error("read what a gate refused", "sandbox", l.record.Spec.ID, "error", err)
		return
	}
	for _, r := range list {
		w := wireRefusal(r)
		told.after = w.Time
		r.Time, r.Suppressed = "", 0
		if told.seen[r] || len(told.seen) > refusalEvents {
			continue
		}
		told.seen[r] = true
		ev := api.Event{Type: api.EventNetworkRefused, Message: refusalText(w), Refusal: &w}
		if len(told.seen) > refusalEvents {
			ev = api.Event{Type: api.EventNetworkRefused, Message: "more is refused than is told here: `sandboxctl net flows` has the latest"}
		}
		e.tell(l.record.Chat, ev)
	}
}

// watchRestarts tells the chats whose gates were started again.
func (e *Engine) watchRestarts() {
	for {
		select {
		case r := <-e.cfg.Network.Restarts:
			e.gates.restarted()
			e.mu.Lock()
			var chat *ChatKey
			for k, l := range e.live {
				if l.record.Spec.ID == r.Sandbox {
					chat = &k
				}
			}
			e.mu.Unlock()
			if chat != nil {
				e.tell(*chat, api.Event{
					Type:    api.EventNetworkRestarted,
					Message: "the gate ended (" + r.Reason + ") and was started again with its policy; connections that were open are cut",
				})
			}
		case <-e.ctx.Done():
			return
		}
	}
}

// tell adds an event to a chat, if it is still there.
func (e *Engine) tell(k ChatKey, ev api.Event) {
	err := e.update(k, func(tx Tx) error { return emit(tx, k, ev) })
	if err != nil && e.ctx.Err() == nil {
		e.log.Warn("an event of the network is lost", "chat", k.String(), "error", err)
	}
}

// lastTraffic asks for what a sandbox moved, before it is removed.
func (e *Engine) lastTraffic(ctx context.Context, id string) sandbox.NetworkTraffic {
	t, err := e.cfg.Network.Control.Traffic(context.WithoutCancel(ctx), id)
	if err != nil {
		e.log.Warn("what a sandbox moved is not counted", "sandbox", id, "error", err)
	}
	return t
}

// countTraffic adds to the chat's past what a sandbox moved.
func countTraffic(tx Tx, k ChatKey, t sandbox.NetworkTraffic) error {
	if t.Sequence == 0 {
		return nil // it had no gate
	}
	rec, err := tx.Chat(k)
	if errors.Is(err, ErrNotFound) {
		return nil // the chat was deleted
	}
	if err != nil {
		return err
	}
	addTraffic(&rec.Net.Past, t)
	return tx.PutChat(rec)
}

// spend tells the chat's next sandbox, if it is there already, what the last
// one moved: it counts toward the same total.
func (e *Engine) spend(ctx context.Context, k ChatKey, t sandbox.NetworkTraffic) error {
	l := e.liveOf(k)
	if l == nil || t.Sent+t.Received == 0 {
		return nil
	}
	return e.applyNetwork(ctx, l)
}
