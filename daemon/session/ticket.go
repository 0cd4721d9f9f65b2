package session

import "context"

// ticket is a command's way to run: it needs a lane of its chat, and then one of
// its account.
type ticket struct {
	e             *Engine
	account       string
	command       string
	chatLane, own *laneWaiter
}

// queueUp puts a command in line.
func (e *Engine) queueUp(rec CommandRecord) *ticket {
	t := &ticket{e: e, account: rec.Account, command: rec.ID, chatLane: e.lanes.join(rec.Key().String(), rec.ID)}
	t.advance()
	return t
}

// advance lines up for the account's lane once the chat's is there.
func (t *ticket) advance() {
	if t.own == nil && t.chatLane.ready() {
		t.own = t.e.busy.join(t.account, t.command)
	}
}

// ready tells whether the command may run.
func (t *ticket) ready() bool { return t.own != nil && t.own.ready() }

// wait returns when the command may run; after an error it never may.
func (t *ticket) wait(ctx context.Context) error {
	if err := t.e.lanes.wait(ctx, t.chatLane); err != nil {
		return err
	}
	t.advance()
	if err := t.e.busy.wait(ctx, t.own); err != nil {
		t.e.lanes.leave(t.chatLane.key)
		return err
	}
	return nil
}

// leave gives the lanes to those who wait.
func (t *ticket) leave() {
	t.e.busy.leave(t.own.key)
	t.e.lanes.leave(t.chatLane.key)
}

// abandon takes a command out of line, wherever it stands.
func (t *ticket) abandon() {
	if t.own != nil {
		t.e.busy.abandon(t.own)
	}
	t.e.lanes.abandon(t.chatLane)
}

// takeLanes takes what a command has that runs already, leaveLanes gives it up.
func (e *Engine) takeLanes(rec CommandRecord) {
	e.lanes.take(rec.Key().String())
	e.busy.take(rec.Account)
}

func (e *Engine) leaveLanes(rec CommandRecord) {
	e.lanes.leave(rec.Key().String())
	e.busy.leave(rec.Account)
}
