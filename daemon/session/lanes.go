package session

import (
	"context"
	"slices"
	"sync"
)

// lanes bounds how many users of one key there are at a time: commands of a
// chat, sandboxes of an account, sandboxes of the host. The others wait in the
// order in which they came.
type lanes struct {
	width int

	// mu guards the maps.
	mu      sync.Mutex
	running map[string]int
	waiting map[string][]*laneWaiter
}

// laneWaiter is a command's claim to a lane of a key.
type laneWaiter struct {
	key     string
	command string
	// turn is closed when the lane is the command's.
	turn chan struct{}
}

func newLanes(width int) *lanes {
	return &lanes{width: width, running: make(map[string]int), waiting: make(map[string][]*laneWaiter)}
}

// join puts a command in the queue for a lane.
func (l *lanes) join(k string, command string) *laneWaiter {
	w := &laneWaiter{k, command, make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[k] < l.width {
		l.running[k]++
		close(w.turn)
		return w
	}
	l.waiting[k] = append(l.waiting[k], w)
	return w
}

// ready tells whether the lane is the command's.
func (w *laneWaiter) ready() bool {
	select {
	case <-w.turn:
		return true
	default:
		return false
	}
}

// abandon takes a command out of the queue, or its lane from it.
func (l *lanes) abandon(w *laneWaiter) {
	l.mu.Lock()
	i := slices.Index(l.waiting[w.key], w)
	if i >= 0 {
		l.waiting[w.key] = slices.Delete(l.waiting[w.key], i, i+1)
	}
	l.mu.Unlock()
	if i < 0 { // it has its lane
		l.leave(w.key)
	}
}

// wait returns when the lane is the command's; after an error it never is.
func (l *lanes) wait(ctx context.Context, w *laneWaiter) error {
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	l.abandon(w)
	return context.Cause(ctx)
}

// leave gives the lane to the first who waits.
func (l *lanes) leave(k string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if queue := l.waiting[k]; len(queue) > 0 {
		close(queue[0].turn)
		l.waiting[k] = queue[1:]
		return
	}
	delete(l.waiting, k)
	if l.running[k]--; l.running[k] == 0 {
		delete(l.running, k)
	}
}

// take takes a lane without waiting, for a command that runs already.
func (l *lanes) take(k string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[k]++
}

// place is a command's place in the queue of a key, from 1; 0 when it does not
// wait.
func (l *lanes) place(k string, command string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.IndexFunc(l.waiting[k], func(w *laneWaiter) bool { return w.command == command }) + 1
}
