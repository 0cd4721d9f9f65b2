package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"mediasandbox/daemon/api"
)

// day names the day that bytes are counted for.
func day() string { return now().Format(time.DateOnly) }

// countBytes adds what is published to the account's day.
func countBytes(tx Tx, account string, n int64) error {
	rec, err := tx.Account(account)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	rec.Account = account
	if rec.Day != day() {
		rec.Day, rec.DayBytes = day(), 0
	}
	rec.DayBytes += n
	return tx.PutAccount(rec)
}

// bytesOf is what an account's cells have now, and what it has published today.
// It reads all of the account's cells.
func bytesOf(tx Tx, account string) (stored, today int64, err error) {
	rec, err := tx.Account(account)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return 0, 0, err
	}
	if rec.Day == day() {
		today = rec.DayBytes
	}
	chats, err := tx.Chats(account)
	if err != nil {
		return 0, 0, err
	}
	for _, chat := range chats {
		cells, err := tx.Cells(chat.Key())
		if err != nil {
			return 0, 0, err
		}
		for _, c := range cells {
			if c.State != api.CellLost && !c.gone(now()) {
				stored += c.File.Size
			}
		}
	}
	return stored, today, nil
}

// admitAccount refuses a command of an account that has used up its bytes. A
// command that has begun publishes what it makes: so an account may go over its
// limits by what runs at a time.
func (e *Engine) admitAccount(account string) error {
	if e.cfg.MaxAccountStored == 0 && e.cfg.MaxAccountDaily == 0 {
		return nil
	}
	var stored, today int64
	err := e.cfg.Store.View(func(tx Tx) (err error) {
		stored, today, err = bytesOf(tx, account)
		return err
	})
	if err != nil {
		return fmt.Errorf("count an account's bytes: %w", err)
	}
	full := func(have, limit int64, what string) *api.Error {
		return api.Errorf(api.CodeAccountFull, "account %s has %s %s, its limit is %s", account, humanize.IBytes(uint64(have)), what, humanize.IBytes(uint64(limit)))
	}
	switch {
	case e.cfg.MaxAccountStored > 0 && stored >= e.cfg.MaxAccountStored:
		return full(stored, e.cfg.MaxAccountStored, "of cells").WithHint("delete chats that nobody needs, or keep cells for a shorter time")
	case e.cfg.MaxAccountDaily > 0 && today >= e.cfg.MaxAccountDaily:
		return full(today, e.cfg.MaxAccountDaily, "published today").CanRetry().WithHint("the next day begins at midnight UTC")
	}
	return nil
}
