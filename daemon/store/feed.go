package store

import (
	"encoding/binary"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/session"
)

// maxFeed is how many events of an account keep their place in its sequence.
const maxFeed = 100_000

// feedEntry names an event of a chat.
type feedEntry struct {
	Chat string `json:"chat"`
	ID   uint64 `json:"id"`
}

// putFeed gives an event the account's next number, and takes it from the
// oldest.
func (t *tx) putFeed(k session.ChatKey, id uint64) error {
	b, err := ensure(t.bolt.Bucket(bucketFeeds), []byte(k.Account))
	if err != nil {
		return err
	}
	seq, err := b.NextSequence()
	if err != nil {
		return err
	}
	if seq > maxFeed {
		if err := b.Delete(number(seq - maxFeed)); err != nil {
			return err
		}
	}
	return put(b, number(seq), feedEntry{k.ID, id})
}

// AccountEvents implements session.Tx. Events of deleted chats are passed over.
func (t *tx) AccountEvents(account string, after uint64, limit int) (events []api.AccountEvent, last uint64, err error) {
	last = after
	b := find(t.bolt.Bucket(bucketFeeds), []byte(account))
	if b == nil {
		return nil, last, nil
	}
	c := b.Cursor()
	for key, body := c.Seek(number(after + 1)); key != nil && len(events) < limit; key, body = c.Next() {
		var entry feedEntry
		if err := decode(key, body, &entry); err != nil {
			return nil, last, err
		}
		last = binary.BigEndian.Uint64(key)
		found := find(t.chat(session.ChatKey{Account: account, ID: entry.Chat}), bucketEvents)
		if found == nil || found.Get(number(entry.ID)) == nil {
			continue
		}
		ev, err := get[api.Event](found, number(entry.ID))
		if err != nil {
			return nil, last, err
		}
		events = append(events, api.AccountEvent{Seq: last, Chat: entry.Chat, Event: ev})
	}
	return events, last, nil
}
