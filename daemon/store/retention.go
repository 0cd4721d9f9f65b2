package store

import (
	"bytes"
	"slices"

	bolt "go.etcd.io/bbolt"

	"mediasandbox/daemon/session"
)

// expiringKey sorts by time.
func expiringKey(x session.Expiring) []byte {
	return slices.Concat(number(uint64(x.At.UnixNano())), number(uint64(x.Ordinal)), []byte(x.Chat.Account), []byte{0}, []byte(x.Chat.ID))
}

// first calls f with the first entries of a bucket, at most limit.
func first(b *bolt.Bucket, limit int, f func(key, body []byte) error) error {
	c := b.Cursor()
	for key, body := c.First(); key != nil && limit > 0; key, body = c.Next() {
		if err := f(key, body); err != nil {
			return err
		}
		limit--
	}
	return nil
}

// DeleteCell implements session.Tx.
func (t *tx) DeleteCell(k session.ChatKey, ordinal int) error {
	b := find(t.chat(k), bucketCells)
	if b == nil {
		return session.ErrNotFound
	}
	return b.Delete(number(uint64(ordinal)))
}

// Expiring implements session.Tx.
func (t *tx) Expiring(limit int) ([]session.Expiring, error) {
	var all []session.Expiring
	err := first(t.bolt.Bucket(bucketExpiring), limit, func(key, body []byte) error {
		var x session.Expiring
		err := decode(key, body, &x)
		all = append(all, x)
		return err
	})
	return all, err
}

// DeleteExpiring implements session.Tx.
func (t *tx) DeleteExpiring(x session.Expiring) error {
	return t.bolt.Bucket(bucketExpiring).Delete(expiringKey(x))
}

// Doomed implements session.Tx.
func (t *tx) Doomed(limit int) ([]string, error) {
	var keys []string
	err := first(t.bolt.Bucket(bucketDoomed), limit, func(key, _ []byte) error {
		keys = append(keys, string(bytes.Clone(key)))
		return nil
	})
	return keys, err
}

// PutDoomed implements session.Tx.
func (t *tx) PutDoomed(keys []string) error {
	for _, key := range keys {
		if err := t.bolt.Bucket(bucketDoomed).Put([]byte(key), nil); err != nil {
			return err
		}
	}
	return nil
}

// DeleteDoomed implements session.Tx.
func (t *tx) DeleteDoomed(keys []string) error {
	for _, key := range keys {
		if err := t.bolt.Bucket(bucketDoomed).Delete([]byte(key)); err != nil {
			return err
		}
	}
	return nil
}

// Account implements session.Tx.
func (t *tx) Account(account string) (session.AccountRecord, error) {
	return get[session.AccountRecord](t.bolt.Bucket(bucketSettings), []byte(account))
}

// PutAccount implements session.Tx.
func (t *tx) PutAccount(rec session.AccountRecord) error {
	return put(t.bolt.Bucket(bucketSettings), []byte(rec.Account), rec)
}
