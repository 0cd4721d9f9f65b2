package session

import (
	"context"
	"errors"
	"os"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/runtime/sandbox"
)

// CreateChat makes a chat. Asking again for the same one with the same wishes
// is no error.
func (e *Engine) CreateChat(account string, req api.NewChat) (api.Chat, error) {
	if req.ID == "" {
		req.ID = newID("c-")
	}
	if !api.ValidID.MatchString(req.ID) {
		return api.Chat{}, api.Errorf(api.CodeInvalid, "chat id %q is not valid", req.ID).
			WithHint("use 1 to 64 of A-Z a-z 0-9 . _ - and begin with a letter or digit")
	}
	mode, err := sandbox.ParseNetworkMode(req.Network)
	if err != nil {
		return api.Chat{}, api.Errorf(api.CodeInvalid, "%v", err)
	}
	if err := checkRetention(req.Retention); err != nil {
		return api.Chat{}, err
	}
	rec := ChatRecord{Account: account, ID: req.ID, Title: req.Title, Network: string(mode), Retention: req.Retention, CreatedAt: now()}
	err = e.cfg.Store.Update(func(tx Tx) error {
		old, err := tx.Chat(rec.Key())
		if errors.Is(err, ErrNotFound) {
			return tx.PutChat(rec)
		}
		if err != nil {
			return err
		}
		if old.Network != rec.Network || (req.Title != "" && old.Title != req.Title) {
			return api.Errorf(api.CodeChatExists, "chat %s exists with another title or network mode", req.ID).
				WithHint("choose another id, or delete the chat first")
		}
		rec = old
		return nil
	})
	if err != nil {
		return api.Chat{}, err
	}
	return e.wireChat(rec), nil
}

// Chat returns one chat.
func (e *Engine) Chat(key ChatKey) (api.Chat, error) {
	rec, err := e.chatRecord(key)
	if err != nil {
		return api.Chat{}, err
	}
	return e.wireChat(rec), nil
}

// chatRecord finds a chat; the default one is made on demand.
func (e *Engine) chatRecord(key ChatKey) (ChatRecord, error) {
	var rec ChatRecord
	err := e.cfg.Store.View(func(tx Tx) (err error) {
		rec, err = tx.Chat(key)
		return err
	})
	if errors.Is(err, ErrNotFound) && key.ID == api.DefaultChat {
		if _, err := e.CreateChat(key.Account, api.NewChat{ID: key.ID}); err != nil {
			return rec, err
		}
		return e.chatRecord(key)
	}
	if errors.Is(err, ErrNotFound) {
		return rec, api.Errorf(api.CodeChatNotFound, "there is no chat %q", key.ID).
			WithHint("list the chats with `sandboxctl chats`, or make one with `sandboxctl chats new %s`", key.ID)
	}
	return rec, err
}

// Chats lists an account's chats.
func (e *Engine) Chats(account string) ([]api.Chat, error) {
	var recs []ChatRecord
	err := e.cfg.Store.View(func(tx Tx) (err error) {
		recs, err = tx.Chats(account)
		return err
	})
	chats := make([]api.Chat, 0, len(recs))
	for _, rec := range recs {
		chats = append(chats, e.wireChat(rec))
	}
	return chats, err
}

func (e *Engine) wireChat(rec ChatRecord) api.Chat {
	c := api.Chat{
		ID: rec.ID, Account: rec.Account, Title: rec.Title, Network: rec.Network,
		CreatedAt: rec.CreatedAt, Cells: rec.Ordinals, Retention: rec.Retention, Skills: e.activeSkills(rec), LastEvent: rec.Events,
	}
	if rec.Retention == "" {
		s, err := e.Settings(rec.Account)
		if err != nil {
			e.log.Error("read an account's settings", "account", rec.Account, "error", err)
		}
		c.Retention = s.Retention
	}
	if rec.Turn != nil {
		t := wireTurn(*rec.Turn)
		c.Turn = &t
	}
	if l := e.liveOf(rec.Key()); l != nil {
		c.Sandbox = l.describe(e.cfg.IdleLife)
	}
	return c
}

// DeleteChat ends the chat's sandbox and removes its records and output. Its
// files go from the store as soon as that allows.
func (e *Engine) DeleteChat(ctx context.Context, key ChatKey) error {
	if _, err := e.chatRecord(key); err != nil {
		return err
	}
	if err := e.cancelAll(ctx, key); err != nil {
		return err
	}
	if l := e.settled(key); l != nil {
		if err := e.endSandbox(ctx, l, "the chat was deleted"); err != nil {
			return err
		}
	}
	var commands []CommandRecord
	err := e.update(key, func(tx Tx) (err error) {
		cells, err := tx.Cells(key)
		if err != nil {
			return err
		}
		for _, c := range cells {
			if err := tx.PutDoomed(c.keys()); err != nil {
				return err
			}
		}
		if commands, err = tx.Commands(key); err != nil {
			return err
		}
		return tx.DeleteChat(key)
	})
	if err != nil {
		return err
	}
	e.wakeSweeper()
	errs := []error{e.inputs.drop(key), e.previews.drop(key)}
	for _, c := range commands {
		errs = append(errs, os.RemoveAll(e.outputDir(c.ID)))
	}
	return errors.Join(errs...)
}

// cancelAll cancels a chat's commands and waits for their ends.
func (e *Engine) cancelAll(ctx context.Context, key ChatKey) error {
	e.mu.Lock()
	var own []*running
	for _, r := range e.commands {
		if r.record().Key() == key {
			own = append(own, r)
		}
	}
	e.mu.Unlock()
	for _, r := range own {
		if err := e.intend(r, api.StateCanceled); err != nil {
			return err
		}
		r.cancel(errCanceled)
	}
	for _, r := range own {
		select {
		case <-r.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// describe is what a chat shows of its sandbox.
func (l *live) describe(idleLife time.Duration) *api.Sandbox {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &api.Sandbox{ID: l.record.Spec.ID, CreatedAt: l.record.CreatedAt}
	if len(l.running) == 0 {
		idle := l.record.IdleSince
		expires := idle.Add(idleLife)
		s.IdleSince, s.ExpiresAt = &idle, &expires
	}
	return s
}
