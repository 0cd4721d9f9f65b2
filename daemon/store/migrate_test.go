package store

import (
	"compress/gzip"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/session"
)

// oldState unpacks a database of testdata. Version 1 was written by a daemon that
// was killed: a chat with two cells, a turn that it named, a command under an
// idempotency key, and one that ran.
func oldState(t *testing.T, version string) string {
	t.Helper()
	packed, err := os.Open(filepath.Join("testdata", "state-"+version+".db.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	r, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(path, body, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func schemaOf(t *testing.T, s *Store) (version uint32) {
	t.Helper()
	err := s.db.View(func(tx *bolt.Tx) error {
		version = binary.BigEndian.Uint32(tx.Bucket(bucketMeta).Get(keyVersion))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// TestMigrationFromVersion1 reads and writes what the old program left.
func TestMigrationFromVersion1(t *testing.T) {
	path := oldState(t, "v1")
	s := mustOpen(t, path)
	if got := schemaOf(t, s); got != Version {
		t.Errorf("the schema is version %d", got)
	}
	k := session.ChatKey{Account: "uid:0", ID: "spring"}
	checkOld := func(tx session.Tx) error {
		chat, err := tx.Chat(k)
		if err != nil || chat.Title != "Spring drop" || chat.Network != "none" || chat.Ordinals != 2 || chat.Turn == nil || chat.Turn.ID != "second" {
			t.Errorf("chat: %+v, %v", chat, err)
		}
		cells, err := tx.Cells(k)
		if err != nil || len(cells) != 2 || cells[0].File.Name != "half.png" || cells[0].File.Width != 300 || cells[0].Label != "thumbs" {
			t.Errorf("cells: %+v, %v", cells, err)
		}
		commands, err := tx.Commands(k)
		var states []api.State
		for _, c := range commands {
			states = append(states, c.State)
		}
		want := []api.State{api.StateSucceeded, api.StateFailed, api.StateSucceeded, api.StateRunning}
		if err != nil || !slices.Equal(states, want) {
			t.Errorf("commands: %v, %v", states, err)
		}
		if active, err := tx.ActiveCommands(); err != nil || len(active) != 1 || active[0].Argv[0] != "sleep" {
			t.Errorf("active: %+v, %v", active, err)
		}
		if r, err := tx.Request(k, "once"); err != nil || r.Command != commands[2].ID {
			t.Errorf("request: %+v, %v", r, err)
		}
		if turns, err := tx.Turns(k); err != nil || len(turns) != 4 || turns[3].ID != "second" {
			t.Errorf("turns: %+v, %v", turns, err)
		}
		boxes, err := tx.Sandboxes()
		if err != nil || len(boxes) != 1 || boxes[0].Chat != k || boxes[0].Inputs["coffee.png"].Size == 0 {
			t.Errorf("sandboxes: %+v, %v", boxes, err)
		}
		if known, err := tx.Known(boxes[0].Spec.ID); err != nil || len(known) != 2 {
			t.Errorf("known files: %+v, %v", known, err)
		}
		events, err := tx.Events(k, 0, 1000)
		if err != nil || uint64(len(events)) != chat.Events || events[0].ID != 1 {
			t.Errorf("%d events, %v", len(events), err)
		}
		return nil
	}
	if err := s.View(checkOld); err != nil {
		t.Error(err)
	}
	// What is new in version 2 works.
	update(t, s, func(tx session.Tx) error {
		return tx.PutAccount(session.AccountRecord{Account: "uid:0", Retention: "1d"})
	})
	closeChecked(t, s)
	s = mustOpen(t, path)
	defer closeChecked(t, s)
	if err := s.View(checkOld); err != nil {
		t.Error(err)
	}
}

// TestMigrationIsWhole holds that a step that fails leaves the old file.
func TestMigrationIsWhole(t *testing.T) {
	path := oldState(t, "v1")
	whole := migrations
	t.Cleanup(func() { migrations = whole })
	migrations = []func(*bolt.Tx) error{whole[0], func(tx *bolt.Tx) error {
		if _, err := tx.CreateBucket([]byte("half")); err != nil {
			return err
		}
		return io.ErrShortWrite
	}}
	refused(t, path, "from version 1 to 2: short write")
	migrations = whole
	s := mustOpen(t, path)
	defer closeChecked(t, s)
	err := s.db.View(func(tx *bolt.Tx) error {
		if tx.Bucket([]byte("half")) != nil {
			t.Error("half of a migration is there")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
