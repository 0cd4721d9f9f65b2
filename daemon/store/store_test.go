package store

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"mediasandbox/daemon/session"
)

func mustOpen(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// closeChecked closes a store that must be consistent.
func closeChecked(t *testing.T, s *Store) {
	t.Helper()
	if err := errors.Join(s.Check(), s.Close()); err != nil {
		t.Error(err)
	}
}

// filled makes a database with something in it and returns its path.
func filled(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	s := mustOpen(t, path)
	defer closeChecked(t, s)
	err := s.Update(func(tx session.Tx) error {
		return tx.PutChat(session.ChatRecord{Account: "uid:0", ID: "default", Title: "Spring"})
	})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// refused checks that a file is not opened, for a reason that names it.
func refused(t *testing.T, path, want string) {
	t.Helper()
	s, err := Open(path)
	if err == nil {
		closeChecked(t, s)
		t.Fatal("it was opened")
	}
	if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v; want one line with %q and the path", err, want)
	}
}

// setVersion writes a schema version as another program would.
func setVersion(t *testing.T, path string, value []byte) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyVersion, value) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestOpenGoesOnWhereItWasLeft(t *testing.T) {
	path := filled(t)
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %s, %v", st.Mode(), err)
	}
	s := mustOpen(t, path)
	defer closeChecked(t, s)
	err = s.View(func(tx session.Tx) error {
		chat, err := tx.Chat(session.ChatKey{Account: "uid:0", ID: "default"})
		if chat.Title != "Spring" {
			t.Errorf("%+v", chat)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	path := filled(t)
	s := mustOpen(t, path)
	defer closeChecked(t, s)
	refused(t, path, "another daemon is using it")
}

func TestNewerSchemaIsRefusedAndLeftAlone(t *testing.T) {
	path := filled(t)
	newer := binary.BigEndian.AppendUint32(nil, Version+1)
	setVersion(t, path, newer)
	refused(t, path, "its schema is version 3, this program knows up to 2: install the newer one again")
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.View(func(tx *bolt.Tx) error {
		if got := tx.Bucket(bucketMeta).Get(keyVersion); string(got) != string(newer) {
			t.Errorf("its version became %x", got)
		}
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	setVersion(t, path, []byte("one"))
	refused(t, path, "its version can't be read")
}

func TestDamagedFilesAreRefused(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"text":      func([]byte) []byte { return []byte("this is no database\n") },
		"one page":  func(b []byte) []byte { return b[:os.Getpagesize()] },
		"3 pages":   func(b []byte) []byte { return b[:3*os.Getpagesize()] },
		"a little":  func(b []byte) []byte { return b[:100] },
		"zeroes":    func(b []byte) []byte { return make([]byte, len(b)) },
		"both meta": func(b []byte) []byte { clear(b[:2*os.Getpagesize()]); return b },
	} {
		t.Run(name, func(t *testing.T) {
			path := filled(t)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, damage(data), 0o600); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			refused(t, path, "open state")
			after, err := os.ReadFile(path)
			if err != nil || string(after) != string(before) {
				t.Errorf("the file was changed, %v", err)
			}
		})
	}
	t.Run("a directory", func(t *testing.T) { refused(t, t.TempDir(), "is a directory") })
	t.Run("no directory", func(t *testing.T) {
		if _, err := Open(filepath.Join(t.TempDir(), "none", "state.db")); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
}

func TestRecordThatCantBeReadIsNamed(t *testing.T) {
	path := filled(t)
	s := mustOpen(t, path)
	defer closeChecked(t, s)
	err := s.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketJobs).Put([]byte("j-1"), []byte("{")) })
	if err != nil {
		t.Fatal(err)
	}
	err = s.View(func(tx session.Tx) error { _, err := tx.Jobs(); return err })
	if err == nil || !strings.Contains(err.Error(), `"j-1"`) {
		t.Error(err)
	}
}
