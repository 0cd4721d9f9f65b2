// Package store keeps the session engine's records in bbolt. It implements
// session.Store.
//
// The schema, version 2; migrate.go makes it of an older one. Every value is
// JSON but for those said otherwise:
//
//	meta/
//	  version                          → uint32, big-endian
//	accounts/ACCOUNT/CHAT/
//	  chat                             → session.ChatRecord
//	  turns/OPENED ID                  → session.TurnRecord (key: uint64 ns, then the id)
//	  requests/KEY                     → session.RequestRecord of an idempotency key
//	  commands/ID                      → session.CommandRecord
//	  cells/ORDINAL                    → session.CellRecord (key: uint64)
//	  events/ID                        → api.Event (key: uint64)
//	active/COMMAND                     → session.ChatKey of a command that has not ended
//	sandboxes/ID/
//	  record                           → session.SandboxRecord
//	  known/PATH                       → knownFile (key: the path's bytes)
//	jobs/ID                            → session.JobRecord
//	settings/ACCOUNT                   → session.AccountRecord
//	expiring/WHEN…                     → session.Expiring (key: see expiringKey)
//	doomed/KEY                         → a file of the store that is to be removed
//
// Numeric keys are big-endian, so that a cursor walks them in order.
package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"mediasandbox/daemon/session"
)

var (
	bucketMeta      = []byte("meta")
	bucketAccounts  = []byte("accounts")
	bucketActive    = []byte("active")
	bucketSandboxes = []byte("sandboxes")
	bucketJobs      = []byte("jobs")
	bucketExpiring  = []byte("expiring")
	bucketDoomed    = []byte("doomed")
	bucketSettings  = []byte("settings")
	bucketFeeds     = []byte("feeds")
	bucketCommands  = []byte("commands")
	bucketTurns     = []byte("turns")
	bucketRequests  = []byte("requests")
	bucketCells     = []byte("cells")
	bucketEvents    = []byte("events")
	bucketKnown     = []byte("known")
	keyVersion      = []byte("version")
	keyChat         = []byte("chat")
	keyRecord       = []byte("record")
)

// Store is an open database.
type Store struct{ db *bolt.DB }

var _ session.Store = (*Store)(nil)

// lockTimeout is how long another daemon on the same state is waited for.
const lockTimeout = time.Second

// Open opens the database at path and makes it when it is missing. It refuses
// one that is damaged, that another process uses, or whose schema is newer.
func Open(path string) (*Store, error) {
	if err := checkLength(path); err != nil {
		return nil, fmt.Errorf("open state %s: %w", path, err)
	}
	db, err := openBolt(path, 0o600, &bolt.Options{Timeout: lockTimeout, FreelistType: bolt.FreelistMapType})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open state %s: another daemon is using it", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open state %s: %w", path, err)
	}
	s := &Store{db: db}
	if err := db.Update(migrate); err != nil {
		return nil, errors.Join(fmt.Errorf("open state %s: %w", path, err), db.Close())
	}
	return s, nil
}

// openBolt opens the file. What bbolt finds impossible in a damaged one, it
// panics of; what it reads beyond the end is a fault.
func openBolt(path string, mode os.FileMode, options *bolt.Options) (db *bolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it is damaged (%v): restore it from a backup", p)
		}
	}()
	return bolt.Open(path, mode, options)
}

// Close closes the database.
func (s *Store) Close() error { return s.db.Close() }

// Check reads the whole file and returns what is inconsistent in it.
func (s *Store) Check() error {
	return s.db.View(func(tx *bolt.Tx) error {
		var errs []error
		for err := range tx.Check() {
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// View implements session.Store.
func (s *Store) View(f func(session.Tx) error) error {
	return s.db.View(func(t *bolt.Tx) error { return f(&tx{t}) })
}

// Update implements session.Store.
func (s *Store) Update(f func(session.Tx) error) error {
	return s.db.Update(func(t *bolt.Tx) error { return f(&tx{t}) })
}

// tx is one transaction.
type tx struct{ bolt *bolt.Tx }

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// find descends into nested buckets; nil when one is missing.
func find(b *bolt.Bucket, path ...[]byte) *bolt.Bucket {
	for _, name := range path {
		if b == nil {
			return nil
		}
		b = b.Bucket(name)
	}
	return b
}

// ensure descends into nested buckets and makes those that are missing.
func ensure(b *bolt.Bucket, path ...[]byte) (*bolt.Bucket, error) {
	for _, name := range path {
		next, err := b.CreateBucketIfNotExists(name)
		if err != nil {
			return nil, fmt.Errorf("make bucket %q: %w", name, err)
		}
		b = next
	}
	return b, nil
}

func get[T any](b *bolt.Bucket, key []byte) (T, error) {
	var v T
	if b == nil {
		return v, session.ErrNotFound
	}
	body := b.Get(key)
	if body == nil {
		return v, session.ErrNotFound
	}
	return v, decode(key, body, &v)
}

func decode(key, body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("decode record %q: %w", key, err)
	}
	return nil
}

func put(b *bolt.Bucket, key []byte, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode record %q: %w", key, err)
	}
	return b.Put(key, body)
}

func list[T any](b *bolt.Bucket) ([]T, error) {
	if b == nil {
		return nil, nil
	}
	var all []T
	err := b.ForEach(func(k, body []byte) error {
		if body == nil {
			return nil // a nested bucket
		}
		var v T
		if err := decode(k, body, &v); err != nil {
			return err
		}
		all = append(all, v)
		return nil
	})
	return all, err
}
