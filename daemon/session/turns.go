package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mediasandbox/daemon/api"
)

// TurnRecord is what is kept of a turn: its clock runs while at least one
// command of its chat runs.
type TurnRecord struct {
	ID       string     `json:"id"`
	Implicit bool       `json:"implicit,omitempty"`
	OpenedAt time.Time  `json:"opened_at"`
	ClosedAt *time.Time `json:"closed_at,omitempty"`
	// Budget is fixed when the turn opens.
	Budget time.Duration `json:"budget"`
	// Used counts up to Since, or up to now when Since is nil.
	Used  time.Duration `json:"used"`
	Since *time.Time    `json:"since,omitempty"`
}

// used is the work done by a moment.
func (t TurnRecord) used(now time.Time) time.Duration {
	if t.Since == nil {
		return t.Used
	}
	return t.Used + max(0, now.Sub(*t.Since))
}

// left is the budget that remains at a moment; never below zero.
func (t TurnRecord) left(now time.Time) time.Duration { return max(0, t.Budget-t.used(now)) }

// stop stops the clock.
func (t *TurnRecord) stop(now time.Time) { t.Used, t.Since = t.used(now), nil }

// work changes how many of the chat's commands run, and with the first and the
// last the clock of its turn.
func (c *ChatRecord) work(change int, now time.Time) {
	c.Working = max(0, c.Working+change)
	switch {
	case c.Turn == nil:
	case c.Working == 0:
		c.Turn.stop(now)
	case c.Turn.Since == nil:
		c.Turn.Since = &now
	}
}

// openTurn closes the chat's turn and opens the next one. Work that goes on
// counts there.
func (e *Engine) openTurn(tx Tx, chat *ChatRecord, id string, implicit bool) error {
	at := now()
	if old := chat.Turn; old != nil {
		old.stop(at)
		old.ClosedAt = &at
		if err := tx.PutTurn(chat.Key(), *old); err != nil {
			return err
		}
	}
	chat.Turns++
	if id == "" {
		id = fmt.Sprintf("t%d", chat.Turns)
	}
	chat.Turn = &TurnRecord{ID: id, Implicit: implicit, OpenedAt: at, Budget: e.cfg.TurnBudget}
	if chat.Working > 0 {
		chat.Turn.Since = &at
	}
	if err := tx.PutTurn(chat.Key(), *chat.Turn); err != nil {
		return err
	}
	if err := tx.PutChat(*chat); err != nil {
		return err
	}
	if err := emit(tx, chat.Key(), api.Event{Type: api.EventTurnOpened, Message: id}); err != nil {
		return err
	}
	// emit gave the event a number.
	fresh, err := tx.Chat(chat.Key())
	*chat = fresh
	return err
}

// enterTurn finds the turn a caller means. Who names none means the open turn
// if somebody opened it by name, and else has a turn of its own: a new one for
// each command, and for a wait once the present one is spent.
func (e *Engine) enterTurn(tx Tx, chat *ChatRecord, want string, waiting bool) (TurnRecord, error) {
	open := chat.Turn
	if want == "" {
		spent := open != nil && open.left(now()) == 0
		switch {
		case open == nil, open.Implicit && (spent || !waiting):
			err := e.openTurn(tx, chat, "", true)
			if err != nil {
				return TurnRecord{}, err
			}
		}
		return *chat.Turn, nil
	}
	if open != nil && open.ID == want {
		return *open, nil
	}
	switch _, err := tx.Turn(chat.Key(), want); {
	case err == nil:
		return TurnRecord{}, api.Errorf(api.CodeTurnClosed, "turn %q is closed", want).WithHint("name a new turn")
	case !errors.Is(err, ErrNotFound):
		return TurnRecord{}, err
	}
	if !api.ValidID.MatchString(want) {
		return TurnRecord{}, api.Errorf(api.CodeInvalid, "turn id %q is not valid", want).
			WithHint("use 1 to 64 of A-Z a-z 0-9 . _ - and begin with a letter or digit")
	}
	err := e.openTurn(tx, chat, want, false)
	return *chat.Turn, err
}

// errSpent refuses a command of a turn without budget.
func errSpent(t TurnRecord) error {
	return api.Errorf(api.CodeTurnSpent, "turn %s has used its budget of %g s", t.ID, t.Budget.Seconds()).
		WithHint("go on in the next turn: what still runs is picked up there").CanRetry()
}

// OpenTurn opens the chat's next turn, which closes the one before it.
func (e *Engine) OpenTurn(k ChatKey, req api.NewTurn) (api.Turn, error) {
	if _, err := e.chatRecord(k); err != nil {
		return api.Turn{}, err
	}
	var turn TurnRecord
	err := e.update(k, func(tx Tx) error {
		chat, err := tx.Chat(k)
		if err != nil {
			return err
		}
		if req.ID == "" {
			err = e.openTurn(tx, &chat, "", false)
			turn = *chat.Turn
			return err
		}
		turn, err = e.enterTurn(tx, &chat, req.ID, false)
		return err
	})
	return wireTurn(turn), err
}

// Turns lists a chat's turns, the open one last.
func (e *Engine) Turns(k ChatKey) ([]api.Turn, error) {
	chat, err := e.chatRecord(k)
	if err != nil {
		return nil, err
	}
	var recs []TurnRecord
	err = e.cfg.Store.View(func(tx Tx) (err error) {
		recs, err = tx.Turns(k)
		return err
	})
	turns := make([]api.Turn, 0, len(recs))
	for _, t := range recs {
		if chat.Turn != nil && t.ID == chat.Turn.ID {
			t = *chat.Turn
		}
		turns = append(turns, wireTurn(t))
	}
	return turns, err
}

func wireTurn(t TurnRecord) api.Turn {
	at := now()
	return api.Turn{
		ID: t.ID, Implicit: t.Implicit, OpenedAt: t.OpenedAt, ClosedAt: t.ClosedAt,
		Budget: t.Budget.Seconds(), Used: t.used(at).Seconds(), Left: t.left(at).Seconds(),
	}
}

// Wait returns the command once it has ended, or as it is when ctx ends, or
// marked as continuing when the caller's turn is over.
func (e *Engine) Wait(ctx context.Context, k ChatKey, id, turn string) (api.Command, error) {
	// In this order: one that ends in between is read as it ended.
	r := e.runningOf(id)
	c, err := e.Command(k, id)
	if err != nil || r == nil {
		return c, err
	}
	in, err := e.waitTurn(k, turn)
	if err != nil {
		return c, err
	}
	over, err := e.await(ctx, k, r, in)
	if err != nil {
		return c, err
	}
	c, err = e.Command(k, id)
	c.Continues = over && !c.State.Ended()
	return c, err
}

// waitTurn finds the turn in which somebody waits. Mostly it is the open one.
func (e *Engine) waitTurn(k ChatKey, want string) (TurnRecord, error) {
	chat, err := e.chatRecord(k)
	if err != nil {
		return TurnRecord{}, err
	}
	if open := chat.Turn; open != nil && (want == open.ID || want == "" && !(open.Implicit && open.left(now()) == 0)) {
		return *open, nil
	}
	var turn TurnRecord
	err = e.update(k, func(tx Tx) error {
		chat, err := tx.Chat(k)
		if err != nil {
			return err
		}
		turn, err = e.enterTurn(tx, &chat, want, true)
		return err
	})
	return turn, err
}

// await returns when the command has ended, ctx has, or the turn is over: its
// budget is spent, or another one was opened by name. Callers who name none have
// one for each command: the wait goes on in the newest.
func (e *Engine) await(ctx context.Context, k ChatKey, r *running, turn TurnRecord) (over bool, err error) {
	for {
		changed := e.events.changed(k)
		chat, err := e.chatRecord(k)
		if err != nil {
			return false, err
		}
		if chat.Turn == nil || chat.Turn.ID != turn.ID && !(turn.Implicit && chat.Turn.Implicit) {
			return true, nil
		}
		turn = *chat.Turn
		left := chat.Turn.left(now())
		if left == 0 {
			return true, nil
		}
		timer := time.NewTimer(left)
		select {
		case <-r.done:
		case <-ctx.Done():
		case <-changed:
			timer.Stop()
			continue
		case <-timer.C:
			continue
		}
		timer.Stop()
		return false, nil
	}
}
