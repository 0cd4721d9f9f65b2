package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// migrations lead from each version of the schema to the next; the first makes
// version 1 of an empty file. Whoever changes what an older program would read
// wrongly adds one, and a file of the version before to testdata.
var migrations = []func(*bolt.Tx) error{
	makeBuckets(bucketAccounts, bucketActive, bucketSandboxes, bucketJobs),
	// Retention and the accounts' streams: an older program would keep cells
	// beyond their time, and add events that the streams lack.
	makeBuckets(bucketExpiring, bucketDoomed, bucketSettings, bucketFeeds),
}

// Version is the schema's.
var Version = uint32(len(migrations))

// migrate brings the schema to Version, in one transaction.
func migrate(tx *bolt.Tx) error {
	meta, err := tx.CreateBucketIfNotExists(bucketMeta)
	if err != nil {
		return err
	}
	version := uint32(0)
	if v := meta.Get(keyVersion); v != nil {
		if len(v) != 4 {
			return errors.New("its version can't be read")
		}
		version = binary.BigEndian.Uint32(v)
	}
	if version > Version {
		return fmt.Errorf("its schema is version %d, this program knows up to %d: install the newer one again", version, Version)
	}
	if version == Version {
		return nil
	}
	for _, step := range migrations[version:] {
		if err := step(tx); err != nil {
			return fmt.Errorf("bring its schema from version %d to %d: %w", version, Version, err)
		}
	}
	return meta.Put(keyVersion, binary.BigEndian.AppendUint32(nil, Version))
}

// makeBuckets is the migration that adds buckets.
func makeBuckets(names ...[]byte) func(*bolt.Tx) error {
	return func(tx *bolt.Tx) error {
		for _, name := range names {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	}
}
