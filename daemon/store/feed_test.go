package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/session"
)

// TestAccountFeed reads the events of two chats in the order in which they
// were put, and passes over those of a chat that is gone.
func TestAccountFeed(t *testing.T) {
	s := mustOpen(t, t.TempDir()+"/state.db")
	defer closeChecked(t, s)
	key := func(id string) session.ChatKey { return session.ChatKey{Account: "uid:0", ID: id} }
	update(t, s, func(tx session.Tx) error {
		return errors.Join(tx.PutChat(session.ChatRecord{Account: "uid:0", ID: "a"}), tx.PutChat(session.ChatRecord{Account: "uid:0", ID: "b"}),
			tx.PutChat(session.ChatRecord{Account: "other", ID: "a"}))
	})
	for i, chat := range []string{"a", "b", "b", "a"} {
		update(t, s, func(tx session.Tx) error {
			id := uint64(1 + i/2)
			return errors.Join(tx.PutEvent(key(chat), api.Event{ID: id, Message: fmt.Sprint(chat, i)}),
				tx.PutEvent(session.ChatKey{Account: "other", ID: "a"}, api.Event{ID: uint64(1 + i)}))
		})
	}
	read := func(after uint64, limit int) (texts []string, last uint64) {
		t.Helper()
		err := s.View(func(tx session.Tx) error {
			events, n, err := tx.AccountEvents("uid:0", after, limit)
			for _, e := range events {
				texts = append(texts, fmt.Sprintf("%d %s %s", e.Seq, e.Chat, e.Message))
			}
			last = n
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return texts, last
	}
	if texts, last := read(0, 10); last != 4 || !slices.Equal(texts, []string{"1 a a0", "2 b b1", "3 b b2", "4 a a3"}) {
		t.Errorf("read %q up to %d", texts, last)
	}
	if texts, last := read(1, 2); last != 3 || len(texts) != 2 {
		t.Errorf("a page is %q up to %d", texts, last)
	}
	update(t, s, func(tx session.Tx) error { return tx.DeleteChat(key("b")) })
	if texts, last := read(1, 10); last != 4 || !slices.Equal(texts, []string{"4 a a3"}) {
		t.Errorf("without the chat: %q up to %d", texts, last)
	}
	if texts, last := read(4, 10); last != 4 || len(texts) != 0 {
		t.Errorf("after the last: %q up to %d", texts, last)
	}
}
