package store

import (
	"errors"
	"slices"
	"testing"
	"time"

	"mediasandbox/daemon/session"
)

func update(t *testing.T, s *Store, f func(session.Tx) error) {
	t.Helper()
	if err := s.Update(f); err != nil {
		t.Fatal(err)
	}
}

// TestExpiringCells lists them by time, over chats and accounts, whatever was
// revised or deleted meanwhile.
func TestExpiringCells(t *testing.T) {
	s := mustOpen(t, t.TempDir()+"/state.db")
	defer closeChecked(t, s)
	base := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	cell := func(k session.ChatKey, ordinal, minutes int) session.CellRecord {
		at := base.Add(time.Duration(minutes) * time.Minute)
		c := session.CellRecord{Account: k.Account}
		c.Chat, c.Ordinal, c.File.ExpiresAt = k.ID, ordinal, &at
		return c
	}
	a, b := session.ChatKey{Account: "uid:0", ID: "a"}, session.ChatKey{Account: "uid:1", ID: "a"}
	update(t, s, func(tx session.Tx) error {
		forever := cell(a, 4, 0)
		forever.File.ExpiresAt = nil
		return errors.Join(
			tx.PutChat(session.ChatRecord{Account: a.Account, ID: a.ID}), tx.PutChat(session.ChatRecord{Account: b.Account, ID: b.ID}),
			tx.PutCell(cell(a, 1, 30)), tx.PutCell(cell(b, 1, 10)), tx.PutCell(cell(a, 2, 20)), tx.PutCell(cell(a, 3, 10)), tx.PutCell(forever),
		)
	})
	listed := func() (all []session.Expiring) {
		t.Helper()
		err := s.View(func(tx session.Tx) (err error) {
			all, err = tx.Expiring(10)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	var order []string
	for _, x := range listed() {
		order = append(order, x.Chat.String()+"#"+string(rune('0'+x.Ordinal))+x.At.Format(" 4"))
	}
	if want := []string{"uid:1/a#1 10", "uid:0/a#3 10", "uid:0/a#2 20", "uid:0/a#1 30"}; !slices.Equal(order, want) {
		t.Errorf("listed %v, want %v", order, want)
	}
	update(t, s, func(tx session.Tx) error {
		for _, x := range listed()[:2] {
			if err := errors.Join(tx.DeleteExpiring(x), tx.DeleteCell(x.Chat, x.Ordinal)); err != nil {
				return err
			}
		}
		return nil
	})
	if left := listed(); len(left) != 2 || left[0].Ordinal != 2 {
		t.Errorf("left are %v", left)
	}
	err := s.View(func(tx session.Tx) error {
		_, err := tx.Cell(a, 3)
		return err
	})
	if !errors.Is(err, session.ErrNotFound) {
		t.Errorf("a deleted cell: %v", err)
	}
}

func TestDoomedKeys(t *testing.T) {
	path := t.TempDir() + "/state.db"
	s := mustOpen(t, path)
	update(t, s, func(tx session.Tx) error { return tx.PutDoomed([]string{"c", "a", "b", "a"}) })
	closeChecked(t, s)
	s = mustOpen(t, path)
	defer closeChecked(t, s)
	update(t, s, func(tx session.Tx) error {
		keys, err := tx.Doomed(2)
		if !slices.Equal(keys, []string{"a", "b"}) {
			t.Errorf("doomed are %v", keys)
		}
		return errors.Join(err, tx.DeleteDoomed(keys))
	})
	update(t, s, func(tx session.Tx) error {
		keys, err := tx.Doomed(9)
		if !slices.Equal(keys, []string{"c"}) {
			t.Errorf("left are %v", keys)
		}
		return err
	})
}

func TestAccountSettings(t *testing.T) {
	s := mustOpen(t, t.TempDir()+"/state.db")
	defer closeChecked(t, s)
	update(t, s, func(tx session.Tx) error {
		if _, err := tx.Account("uid:7"); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("an account without settings: %v", err)
		}
		return tx.PutAccount(session.AccountRecord{Account: "uid:7", Retention: "7d"})
	})
	update(t, s, func(tx session.Tx) error {
		rec, err := tx.Account("uid:7")
		if rec.Retention != "7d" {
			t.Errorf("settings: %+v", rec)
		}
		return err
	})
}
