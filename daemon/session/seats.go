package session

import "context"

// seats bounds live sandboxes: of each account, and of the host. An account's
// own bound is met first, so that one account's queue holds up nobody else's.
type seats struct{ accounts, host *lanes }

// hostKey is the only key of the host's lanes.
const hostKey = "host"

func newSeats(cfg Config) seats {
	return seats{newLanes(cfg.MaxAccountSandboxes), newLanes(cfg.MaxSandboxes)}
}

// enter waits for a seat on behalf of a command.
func (s seats) enter(ctx context.Context, account, command string) error {
	if err := s.accounts.wait(ctx, s.accounts.join(account, command)); err != nil {
		return err
	}
	if err := s.host.wait(ctx, s.host.join(hostKey, command)); err != nil {
		s.accounts.leave(account)
		return err
	}
	return nil
}

func (s seats) leave(account string) {
	s.host.leave(hostKey)
	s.accounts.leave(account)
}

// take takes a seat for a sandbox that lives already.
func (s seats) take(account string) {
	s.accounts.take(account)
	s.host.take(hostKey)
}

// place is where a command that has not begun stands: behind the chat's other
// commands, or else behind others who want a sandbox. 0 when it does not wait.
func (e *Engine) place(k ChatKey, command string) int {
	if n := e.lanes.place(k.String(), command); n > 0 {
		return n
	}
	if n := e.busy.place(k.Account, command); n > 0 {
		return n
	}
	if n := e.seats.accounts.place(k.Account, command); n > 0 {
		return n
	}
	return e.seats.host.place(hostKey, command)
}
