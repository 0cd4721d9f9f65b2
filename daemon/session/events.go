package session

import (
	"context"
	"sync"

	"mediasandbox/daemon/api"
)

// eventHub wakes those who follow a chat's events. The events themselves are
// in the store, so that a reader who reconnects misses none.
type eventHub struct {
	mu    sync.Mutex
	chats map[ChatKey]chan struct{}
}

func newEventHub() *eventHub { return &eventHub{chats: make(map[ChatKey]chan struct{})} }

// changed returns a channel that closes at the chat's next event.
func (h *eventHub) changed(k ChatKey) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	ch := h.chats[k]
	if ch == nil {
		ch = make(chan struct{})
		h.chats[k] = ch
	}
	return ch
}

func (h *eventHub) wake(k ChatKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ch := h.chats[k]; ch != nil {
		close(ch)
		delete(h.chats, k)
	}
}

// update runs a transaction and wakes the followers of the chat it changed.
func (e *Engine) update(k ChatKey, f func(Tx) error) error {
	if err := e.cfg.Store.Update(f); err != nil {
		return err
	}
	e.events.wake(k)
	e.events.wake(ChatKey{Account: k.Account}) // who follows them all
	return nil
}

// emit adds an event to a chat within a transaction.
func emit(tx Tx, k ChatKey, ev api.Event) error {
	chat, err := tx.Chat(k)
	if err != nil {
		return err
	}
	chat.Events++
	ev.ID, ev.Time = chat.Events, now()
	if err := tx.PutChat(chat); err != nil {
		return err
	}
	return tx.PutEvent(k, ev)
}

// addURL gives the cell of an event the URL that it has now.
func (e *Engine) addURL(tx Tx, k ChatKey, c *api.Cell) {
	if c == nil || c.State != api.CellPublished {
		return
	}
	if rec, err := tx.Cell(k, c.Ordinal); err == nil { // else it is gone by now
		c.File.URL = e.wireCell(rec).File.URL
	}
}

// eventPage is how many events one look at the store returns.
const eventPage = 256

// Follow calls send with each event of a chat after the given id, and waits
// for more until ctx ends.
func (e *Engine) Follow(ctx context.Context, k ChatKey, after uint64, send func(api.Event) error) error {
	if _, err := e.chatRecord(k); err != nil {
		return err
	}
	return e.follower(ctx, k, func(tx Tx) (func() error, bool, error) {
		if _, err := tx.Chat(k); err != nil {
			return nil, false, notFound(err, api.CodeChatNotFound, "the chat %q was deleted", k.ID)
		}
		events, err := tx.Events(k, after, eventPage)
		for _, ev := range events {
			e.addURL(tx, k, ev.Cell)
		}
		return func() error {
			for _, ev := range events {
				if err := send(ev); err != nil {
					return err
				}
				after = ev.ID
			}
			return nil
		}, len(events) == eventPage, err
	})
}

// FollowAccount is Follow for all chats of an account, in the account's own
// sequence.
func (e *Engine) FollowAccount(ctx context.Context, account string, after uint64, send func(api.AccountEvent) error) error {
	return e.follower(ctx, ChatKey{Account: account}, func(tx Tx) (func() error, bool, error) {
		events, last, err := tx.AccountEvents(account, after, eventPage)
		for _, ev := range events {
			e.addURL(tx, ChatKey{Account: account, ID: ev.Chat}, ev.Cell)
		}
		return func() error {
			for _, ev := range events {
				if err := send(ev); err != nil {
					return err
				}
			}
			after = last
			return nil
		}, len(events) == eventPage, err
	})
}

// follower looks at the store, sends what look found, and waits for k to change
// unless there may be more already.
func (e *Engine) follower(ctx context.Context, k ChatKey, look func(Tx) (send func() error, more bool, err error)) error {
	for {
		changed := e.events.changed(k)
		var send func() error
		var more bool
		err := e.cfg.Store.View(func(tx Tx) (err error) {
			send, more, err = look(tx)
			return err
		})
		if err != nil {
			return err
		}
		if err := send(); err != nil {
			return err
		}
		if more {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
