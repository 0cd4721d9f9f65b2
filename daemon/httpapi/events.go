package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"mediasandbox/daemon/api"
)

func (s *server) routeEvents() {
	o := op("chat-events", http.MethodGet, "/v1/chats/{chat}/events", "Follow a chat's events (Event)")
	s.stream(&o, api.Event{})
	huma.Register(s.api, o, func(ctx context.Context, in *struct {
		ChatPath
		LastEventID string `header:"Last-Event-ID" doc:"Go on after this event."`
		After       string `query:"after" doc:"The same, for callers that can't set headers."`
	}) (*huma.StreamResponse, error) {
		from := in.LastEventID
		if from == "" {
			from = in.After
		}
		var after uint64
		if from != "" {
			n, err := strconv.ParseUint(from, 10, 64)
			if err != nil {
				return nil, s.wire(ctx, api.Errorf(api.CodeInvalid, "event id %q is not a number", from))
			}
			after = n
		}
		key := in.key(ctx)
		if _, err := s.cfg.Engine.Chat(key); err != nil {
			return nil, s.wire(ctx, err)
		}
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			w := newSSE(hc)
			err := s.cfg.Engine.Follow(ctx, key, after, func(ev api.Event) error {
				return w.send(string(ev.Type), strconv.FormatUint(ev.ID, 10), ev)
			})
			if err != nil && !isCanceled(err) {
				w.fail(s.wire(ctx, err))
			}
		}}, nil
	})
}
