package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"mediasandbox/daemon/api"
)

// AccountRecord is what is kept of an account.
type AccountRecord struct {
	Account   string        `json:"account"`
	Retention api.Retention `json:"retention,omitempty"`
	// DayBytes were published on Day, a date in UTC.
	Day      string `json:"day,omitempty"`
	DayBytes int64  `json:"day_bytes,omitempty"`
}

// Expiring names a cell and when it is to be removed.
type Expiring struct {
	Chat    ChatKey   `json:"chat"`
	Ordinal int       `json:"ordinal"`
	At      time.Time `json:"at"`
}

// retentionOf is how long cells are kept that a chat publishes now: the chat's
// own word, or its account's, or the configuration's.
func (e *Engine) retentionOf(tx Tx, chat ChatRecord) (api.Retention, error) {
	if chat.Retention != "" {
		return chat.Retention, nil
	}
	account, err := tx.Account(chat.Account)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return "", err
	}
	if account.Retention != "" {
		return account.Retention, nil
	}
	return e.cfg.Retention, nil
}

func checkRetention(r api.Retention) error {
	if r != "" && !slices.Contains(api.Retentions(), r) {
		return api.Errorf(api.CodeInvalid, "retention %q is not known", r).WithHint("use one of %v", api.Retentions())
	}
	return nil
}

// Settings returns an account's settings.
func (e *Engine) Settings(account string) (api.Settings, error) {
	s := api.Settings{Account: account, StoredLimit: e.cfg.MaxAccountStored, TodayLimit: e.cfg.MaxAccountDaily}
	err := e.cfg.Store.View(func(tx Tx) (err error) {
		if s.Retention, err = e.retentionOf(tx, ChatRecord{Account: account}); err != nil {
			return err
		}
		s.Stored, s.Today, err = bytesOf(tx, account)
		return err
	})
	return s, err
}

// ChangeSettings changes an account's settings, for cells published from now
// on.
func (e *Engine) ChangeSettings(account string, req api.ChangeSettings) (api.Settings, error) {
	if err := checkRetention(req.Retention); err != nil {
		return api.Settings{}, err
	}
	err := e.cfg.Store.Update(func(tx Tx) error {
		rec, err := tx.Account(account)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		rec.Account = account
		if req.Retention != "" {
			rec.Retention = req.Retention
		}
		return tx.PutAccount(rec)
	})
	if err != nil {
		return api.Settings{}, err
	}
	return e.Settings(account)
}

// ChangeChat changes a chat's title and retention.
func (e *Engine) ChangeChat(k ChatKey, req api.ChangeChat) (api.Chat, error) {
	if _, err := e.chatRecord(k); err != nil {
		return api.Chat{}, err
	}
	if req.Retention != nil && *req.Retention == api.RetentionAccount {
		*req.Retention = ""
	}
	if req.Retention != nil {
		if err := checkRetention(*req.Retention); err != nil {
			return api.Chat{}, err
		}
	}
	err := e.update(k, func(tx Tx) error {
		chat, err := tx.Chat(k)
		if err != nil {
			return err
		}
		if req.Title != nil {
			chat.Title = *req.Title
		}
		if req.Retention != nil {
			chat.Retention = *req.Retention
		}
		return tx.PutChat(chat)
	})
	if err != nil {
		return api.Chat{}, err
	}
	return e.Chat(k)
}

// gone tells whether the cell's time is over. It is hidden from then on, also
// while its file is still being removed.
func (c CellRecord) gone(now time.Time) bool {
	return c.File.ExpiresAt != nil && !c.File.ExpiresAt.After(now)
}

// The sweeper's periods.
const (
	// sweepEvery bounds its sleep: clocks are set, and stores come back.
	sweepEvery = time.Minute
	// sweepAgain is how soon it tries again what did not work.
	sweepAgain = 5 * time.Second
	sweepBatch = 500
)

// sweep removes cells whose time is over, and files of what was deleted, until
// the engine ends.
func (e *Engine) sweep() {
	for e.ctx.Err() == nil {
		next, err := e.sweepOnce(e.ctx)
		if err != nil && e.ctx.Err() == nil {
			e.log.Error("remove what is expired or deleted", "error", err)
			next = min(next, sweepAgain)
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-e.expiring:
		case <-e.ctx.Done():
		}
		timer.Stop()
	}
}

// sweepOnce removes what is due and says how long to sleep.
func (e *Engine) sweepOnce(ctx context.Context) (time.Duration, error) {
	next, err := e.expireDue()
	all, doomErr := e.removeDoomed(ctx)
	if !all {
		next = 0
	}
	return next, errors.Join(err, doomErr)
}

// expireDue expires the cells whose time is over.
func (e *Engine) expireDue() (time.Duration, error) {
	var due []Expiring
	err := e.cfg.Store.View(func(tx Tx) (err error) {
		due, err = tx.Expiring(sweepBatch)
		return err
	})
	if err != nil {
		return sweepEvery, err
	}
	for _, x := range due {
		if wait := time.Until(x.At); wait > 0 {
			return min(wait, sweepEvery), nil
		}
		if err := e.expire(x); err != nil { // stays listed, for the next time
			return sweepAgain, fmt.Errorf("cell #%d of chat %s: %w", x.Ordinal, x.Chat, err)
		}
	}
	return sweepEvery, nil
}

// expire removes one cell's record and dooms its file. One that was revised
// has another expiry by now; one that is still being uploaded is met again when
// it is published.
func (e *Engine) expire(x Expiring) error {
	expired := false
	err := e.update(x.Chat, func(tx Tx) error {
		cell, err := tx.Cell(x.Chat, x.Ordinal)
		if errors.Is(err, ErrNotFound) || err == nil && !cell.gone(now()) {
			return tx.DeleteExpiring(x)
		}
		if err != nil || cell.State == api.CellPending {
			return err
		}
		expired = true
		err = errors.Join(tx.DeleteExpiring(x), tx.DeleteCell(x.Chat, x.Ordinal), tx.PutDoomed(cell.keys()))
		return errors.Join(err, emit(tx, x.Chat, cellEvent(api.EventCellExpired, cell)))
	})
	if err == nil && expired {
		err = e.previews.remove(x.Chat, x.Ordinal, 0)
	}
	return err
}

// removeDoomed removes files from the store that no record knows any more. What
// the store refuses stays doomed.
func (e *Engine) removeDoomed(ctx context.Context) (all bool, err error) {
	var keys []string
	err = e.cfg.Store.View(func(tx Tx) (err error) {
		keys, err = tx.Doomed(sweepBatch)
		return err
	})
	if err != nil || len(keys) == 0 {
		return true, err
	}
	for i, key := range keys {
		if err := e.deleteBlob(ctx, key); err != nil {
			keys = keys[:i]
			return true, errors.Join(err, e.forgetDoomed(keys))
		}
	}
	return len(keys) < sweepBatch, e.forgetDoomed(keys)
}

func (e *Engine) forgetDoomed(keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	return e.cfg.Store.Update(func(tx Tx) error { return tx.DeleteDoomed(keys) })
}

// keys are those of all that the store has of a cell.
func (c CellRecord) keys() []string {
	keys := []string{c.Key}
	if c.Replaced != "" {
		keys = append(keys, c.Replaced)
	}
	return keys
}

// wakeSweeper tells the sweeper that there is something new.
func (e *Engine) wakeSweeper() {
	select {
	case e.expiring <- struct{}{}:
	default:
	}
}
