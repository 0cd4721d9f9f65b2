package main

import (
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"mediasandbox/daemon/config"
)

// TestCommitsAreCounted reads the file while its owner has it open, as a run
// does.
func TestCommitsAreCounted(t *testing.T) {
	d := &daemon{cfg: config.Config{Paths: config.Paths{StateDir: t.TempDir()}}}
	path := filepath.Join(d.cfg.Paths.StateDir, "state.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	before, err := d.transactions()
	if err != nil {
		t.Fatal(err)
	}
	const commits = 5
	for i := range commits {
		err := db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			if err != nil {
				return err
			}
			return b.Put([]byte{byte(i)}, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	after, err := d.transactions()
	if err != nil || after-before != commits {
		t.Errorf("%d commits are counted as %d, %v", commits, after-before, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.transactions(); err == nil {
		t.Error("a file that is no database was taken")
	}
}
