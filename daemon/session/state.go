package session

import (
	"fmt"
	"slices"
	"time"

	"mediasandbox/daemon/api"
)

// moves is the table of a command's life; what is not in it can't happen.
var moves = map[api.State][]api.State{
	api.StateQueued: {api.StateRunning, api.StateFailed, api.StateCanceled, api.StateLost},
	api.StateRunning: {
		api.StateSucceeded, api.StateFailed, api.StateTimedOut, api.StateCanceled, api.StateOOMKilled, api.StateLost,
	},
}

// move brings a command into another state. It is the only place that does.
func move(c *CommandRecord, to api.State, now time.Time) error {
	if !slices.Contains(moves[c.State], to) {
		return fmt.Errorf("command %s can't go from %s to %s", c.ID, c.State, to)
	}
	c.State = to
	if to == api.StateRunning {
		c.StartedAt = &now
	}
	if to.Ended() {
		c.EndedAt = &now
	}
	return nil
}
