package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"mediasandbox/daemon/api"
)

// EventsFrom says after which event a stream begins.
type EventsFrom struct {
	LastEventID string `header:"Last-Event-ID" doc:"Go on after this event."`
	After       string `query:"after" doc:"The same, for callers that can't set headers."`
}

func (f EventsFrom) after() (uint64, error) {
	from := f.LastEventID
	if from == "" {
		from = f.After
	}
	if from == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(from, 10, 64)
	if err != nil {
		return 0, api.Errorf(api.CodeInvalid, "event id %q is not a number", from)
	}
	return n, nil
}

func (s *server) routeEvents() {
	o := op("chat-events", http.MethodGet, "/v1/chats/{chat}/events", "Follow a chat's events (Event)")
	s.stream(&o, api.Event{})
	huma.Register(s.api, o, func(ctx context.Context, in *struct {
		ChatPath
		EventsFrom
	}) (*huma.StreamResponse, error) {
		key := in.key(ctx)
		after, err := in.after()
		if err == nil {
			_, err = s.cfg.Engine.Chat(key)
		}
		if err != nil {
			return nil, s.wire(ctx, err)
		}
		return s.follow(ctx, func(w *sse) error {
			return s.cfg.Engine.Follow(ctx, key, after, func(ev api.Event) error {
				return w.send(string(ev.Type), strconv.FormatUint(ev.ID, 10), ev)
			})
		}), nil
	})
	all := op("account-events", http.MethodGet, "/v1/events", "Follow the events of all of the account's chats (AccountEvent)")
	s.stream(&all, api.AccountEvent{})
	huma.Register(s.api, all, func(ctx context.Context, in *EventsFrom) (*huma.StreamResponse, error) {
		after, err := in.after()
		if err != nil {
			return nil, s.wire(ctx, err)
		}
		account := callerOf(ctx).account
		return s.follow(ctx, func(w *sse) error {
			return s.cfg.Engine.FollowAccount(ctx, account, after, func(ev api.AccountEvent) error {
				return w.send(string(ev.Type), strconv.FormatUint(ev.Seq, 10), ev)
			})
		}), nil
	})
}

// follow answers with what run sends, until the caller goes.
func (s *server) follow(ctx context.Context, run func(*sse) error) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		w := newSSE(hc)
		if err := run(w); err != nil && !isCanceled(err) {
			w.fail(s.wire(ctx, err))
		}
	}}
}
