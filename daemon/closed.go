package daemon

import (
	"mediasandbox/daemon/session"
	"mediasandbox/runtime/guest"
)

// closedFiles reads what a sandbox's PID 1 recorded of finished outputs.
func closedFiles(disk string) (map[string]session.FileState, error) {
	closed, err := guest.ClosedFiles(disk)
	states := make(map[string]session.FileState, len(closed))
	for path, st := range closed {
		states[path] = session.FileState(st)
	}
	return states, err
}
