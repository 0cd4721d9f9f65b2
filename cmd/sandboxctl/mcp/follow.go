package mcp

import (
	"context"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mediasandbox/daemon/api"
)

// follower follows the chat's events: progress goes to who waits for the command,
// and cells become resources.
type follower struct {
	s *server

	mu      sync.Mutex
	waiting map[string][]chan api.CommandProgress // by command
}

func newFollower(s *server) *follower {
	return &follower{s: s, waiting: make(map[string][]chan api.CommandProgress)}
}

func (f *follower) run(ctx context.Context) {
	err := f.s.cfg.Client.Events(ctx, f.s.cfg.Chat, 0, func(ev api.Event) error {
		switch {
		case ev.Work != nil:
			f.pass(*ev.Work)
		case ev.Type == api.EventCellPublished && ev.Cell != nil:
			f.s.addCellResource(*ev.Cell)
		case (ev.Type == api.EventCellExpired || ev.Type == api.EventCellLost) && ev.Cell != nil:
			f.s.mcp.RemoveResources(cellURI(ev.Cell.Ordinal))
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		f.s.cfg.Log.Warn("follow the chat's events", "error", err)
	}
}

// pass gives progress to who waits; a waiter that is busy gets the next.
func (f *follower) pass(p api.CommandProgress) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.waiting[p.Command] {
		select {
		case c <- p:
		default:
		}
	}
}

// notify sends a command's progress to the client that asked, until ctx ends.
func (f *follower) notify(ctx context.Context, req *sdk.CallToolRequest, command string) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return
	}
	news := make(chan api.CommandProgress, 4)
	f.mu.Lock()
	f.waiting[command] = append(f.waiting[command], news)
	f.mu.Unlock()
	defer f.forget(command, news)
	for told := 0.0; ; {
		select {
		case p := <-news:
			n := &sdk.ProgressNotificationParams{ProgressToken: token, Message: progressText(p), Progress: p.Time}
			if p.Percent != nil {
				n.Progress, n.Total = *p.Percent, 100
			}
			if n.Progress <= told { // the protocol wants it to rise
				continue
			}
			told = n.Progress
			if err := req.Session.NotifyProgress(ctx, n); err != nil {
				return // the client has gone
			}
		case <-ctx.Done():
			return
		}
	}
}

func (f *follower) forget(command string, news chan api.CommandProgress) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := f.waiting[command][:0]
	for _, c := range f.waiting[command] {
		if c != news {
			left = append(left, c)
		}
	}
	if f.waiting[command] = left; len(left) == 0 {
		delete(f.waiting, command)
	}
}
