package store

import (
	"errors"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/session"
	"mediasandbox/uploader"
)

func (t *tx) chat(k session.ChatKey) *bolt.Bucket {
	return find(t.bolt.Bucket(bucketAccounts), []byte(k.Account), []byte(k.ID))
}

// within returns a bucket of a chat that exists: what comes late for a deleted
// chat must not bring it back.
func (t *tx) within(k session.ChatKey, bucket []byte) (*bolt.Bucket, error) {
	b := t.chat(k)
	if b == nil {
		return nil, session.ErrNotFound
	}
	return ensure(b, bucket)
}

// Chat implements session.Tx.
func (t *tx) Chat(k session.ChatKey) (session.ChatRecord, error) {
	return get[session.ChatRecord](t.chat(k), keyChat)
}

// Chats implements session.Tx.
func (t *tx) Chats(account string) ([]session.ChatRecord, error) {
	b := find(t.bolt.Bucket(bucketAccounts), []byte(account))
	if b == nil {
		return nil, nil
	}
	var all []session.ChatRecord
	err := b.ForEachBucket(func(id []byte) error {
		rec, err := get[session.ChatRecord](b.Bucket(id), keyChat)
		all = append(all, rec)
		return err
	})
	return all, err
}

// PutChat implements session.Tx.
func (t *tx) PutChat(rec session.ChatRecord) error {
	b, err := ensure(t.bolt.Bucket(bucketAccounts), []byte(rec.Account), []byte(rec.ID))
	if err != nil {
		return err
	}
	return put(b, keyChat, rec)
}

// DeleteChat implements session.Tx.
func (t *tx) DeleteChat(k session.ChatKey) error {
	b := find(t.bolt.Bucket(bucketAccounts), []byte(k.Account))
	if b == nil {
		return session.ErrNotFound
	}
	err := b.DeleteBucket([]byte(k.ID))
	if errors.Is(err, bolterrors.ErrBucketNotFound) {
		return session.ErrNotFound
	}
	return err
}

// Command implements session.Tx.
func (t *tx) Command(k session.ChatKey, id string) (session.CommandRecord, error) {
	return get[session.CommandRecord](find(t.chat(k), bucketCommands), []byte(id))
}

// Commands implements session.Tx.
func (t *tx) Commands(k session.ChatKey) ([]session.CommandRecord, error) {
	return list[session.CommandRecord](find(t.chat(k), bucketCommands))
}

// ActiveCommands implements session.Tx.
func (t *tx) ActiveCommands() ([]session.CommandRecord, error) {
	var all []session.CommandRecord
	err := t.bolt.Bucket(bucketActive).ForEach(func(id, body []byte) error {
		var k session.ChatKey
		if err := decode(id, body, &k); err != nil {
			return err
		}
		rec, err := t.Command(k, string(id))
		if errors.Is(err, session.ErrNotFound) {
			return nil // its chat was deleted
		}
		all = append(all, rec)
		return err
	})
	return all, err
}

// PutCommand implements session.Tx.
func (t *tx) PutCommand(rec session.CommandRecord) error {
	b, err := t.within(rec.Key(), bucketCommands)
	if err != nil {
		return err
	}
	active := t.bolt.Bucket(bucketActive)
	if rec.State.Ended() {
		err = active.Delete([]byte(rec.ID))
	} else {
		err = put(active, []byte(rec.ID), rec.Key())
	}
	if err != nil {
		return err
	}
	return put(b, []byte(rec.ID), rec)
}

// Turn implements session.Tx.
func (t *tx) Turn(k session.ChatKey, id string) (session.TurnRecord, error) {
	turns, err := t.Turns(k)
	for _, turn := range turns {
		if turn.ID == id {
			return turn, err
		}
	}
	if err == nil {
		err = session.ErrNotFound
	}
	return session.TurnRecord{}, err
}

// Turns implements session.Tx.
func (t *tx) Turns(k session.ChatKey) ([]session.TurnRecord, error) {
	return list[session.TurnRecord](find(t.chat(k), bucketTurns))
}

// PutTurn implements session.Tx. Keys sort by the time of opening.
func (t *tx) PutTurn(k session.ChatKey, rec session.TurnRecord) error {
	b, err := t.within(k, bucketTurns)
	if err != nil {
		return err
	}
	return put(b, append(number(uint64(rec.OpenedAt.UnixNano())), rec.ID...), rec)
}

// Request implements session.Tx.
func (t *tx) Request(k session.ChatKey, key string) (session.RequestRecord, error) {
	return get[session.RequestRecord](find(t.chat(k), bucketRequests), []byte(key))
}

// PutRequest implements session.Tx.
func (t *tx) PutRequest(k session.ChatKey, key string, rec session.RequestRecord) error {
	b, err := t.within(k, bucketRequests)
	if err != nil {
		return err
	}
	return put(b, []byte(key), rec)
}

// Sandboxes implements session.Tx.
func (t *tx) Sandboxes() ([]session.SandboxRecord, error) {
	var all []session.SandboxRecord
	b := t.bolt.Bucket(bucketSandboxes)
	err := b.ForEachBucket(func(id []byte) error {
		rec, err := get[session.SandboxRecord](b.Bucket(id), keyRecord)
		all = append(all, rec)
		return err
	})
	return all, err
}

// PutSandbox implements session.Tx.
func (t *tx) PutSandbox(rec session.SandboxRecord) error {
	b, err := ensure(t.bolt.Bucket(bucketSandboxes), []byte(rec.Spec.ID))
	if err != nil {
		return err
	}
	return put(b, keyRecord, rec)
}

// DeleteSandbox implements session.Tx.
func (t *tx) DeleteSandbox(id string) error {
	err := t.bolt.Bucket(bucketSandboxes).DeleteBucket([]byte(id))
	if errors.Is(err, bolterrors.ErrBucketNotFound) {
		return nil
	}
	return err
}

// knownFile is a published file of a sandbox and the cell it became.
type knownFile struct {
	Known   uploader.Known `json:"known"`
	Ordinal int            `json:"ordinal"`
}

// Known implements session.Tx.
func (t *tx) Known(sandbox string) ([]uploader.Known, error) {
	files, err := list[knownFile](find(t.bolt.Bucket(bucketSandboxes), []byte(sandbox), bucketKnown))
	known := make([]uploader.Known, len(files))
	for i, f := range files {
		known[i] = f.Known
	}
	return known, err
}

// KnownOrdinal implements session.Tx.
func (t *tx) KnownOrdinal(sandbox string, p uploader.Path) (int, error) {
	f, err := get[knownFile](find(t.bolt.Bucket(bucketSandboxes), []byte(sandbox), bucketKnown), []byte(p))
	return f.Ordinal, err
}

// PutKnown implements session.Tx.
func (t *tx) PutKnown(sandbox string, k uploader.Known, ordinal int) error {
	b, err := ensure(t.bolt.Bucket(bucketSandboxes), []byte(sandbox), bucketKnown)
	if err != nil {
		return err
	}
	return put(b, []byte(k.Path), knownFile{k, ordinal})
}

// Cell implements session.Tx.
func (t *tx) Cell(k session.ChatKey, ordinal int) (session.CellRecord, error) {
	return get[session.CellRecord](find(t.chat(k), bucketCells), number(uint64(ordinal)))
}

// Cells implements session.Tx.
func (t *tx) Cells(k session.ChatKey) ([]session.CellRecord, error) {
	return list[session.CellRecord](find(t.chat(k), bucketCells))
}

// PutCell implements session.Tx.
func (t *tx) PutCell(rec session.CellRecord) error {
	b, err := t.within(rec.ChatKey(), bucketCells)
	if err != nil {
		return err
	}
	if at := rec.File.ExpiresAt; at != nil {
		x := session.Expiring{Chat: rec.ChatKey(), Ordinal: rec.Ordinal, At: *at}
		if err := put(t.bolt.Bucket(bucketExpiring), expiringKey(x), x); err != nil {
			return err
		}
	}
	return put(b, number(uint64(rec.Ordinal)), rec)
}

// Jobs implements session.Tx.
func (t *tx) Jobs() ([]session.JobRecord, error) {
	return list[session.JobRecord](t.bolt.Bucket(bucketJobs))
}

// Job implements session.Tx.
func (t *tx) Job(id string) (session.JobRecord, error) {
	return get[session.JobRecord](t.bolt.Bucket(bucketJobs), []byte(id))
}

// PutJob implements session.Tx.
func (t *tx) PutJob(rec session.JobRecord) error {
	return put(t.bolt.Bucket(bucketJobs), []byte(rec.ID), rec)
}

// DeleteJob implements session.Tx.
func (t *tx) DeleteJob(id string) error { return t.bolt.Bucket(bucketJobs).Delete([]byte(id)) }

// Events implements session.Tx.
func (t *tx) Events(k session.ChatKey, after uint64, limit int) ([]api.Event, error) {
	b := find(t.chat(k), bucketEvents)
	if b == nil {
		return nil, nil
	}
	var events []api.Event
	c := b.Cursor()
	for key, body := c.Seek(number(after + 1)); key != nil && len(events) < limit; key, body = c.Next() {
		var ev api.Event
		if err := decode(key, body, &ev); err != nil {
			return nil, err
		}
		events = append(events, ev)
	}
	return events, nil
}

// PutEvent implements session.Tx.
func (t *tx) PutEvent(k session.ChatKey, ev api.Event) error {
	b, err := t.within(k, bucketEvents)
	if err != nil {
		return err
	}
	return errors.Join(put(b, number(ev.ID), ev), t.putFeed(k, ev.ID))
}
