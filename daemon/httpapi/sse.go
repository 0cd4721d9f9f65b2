package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

// sse writes server-sent events; its methods may be called concurrently.
type sse struct {
	mu sync.Mutex
	w  http.ResponseWriter
	rc *http.ResponseController
}

func newSSE(hc huma.Context) *sse {
	hc.SetHeader("Content-Type", "text/event-stream")
	hc.SetHeader("Cache-Control", "no-store")
	hc.SetStatus(http.StatusOK)
	w := hc.BodyWriter().(http.ResponseWriter) // what the adapter for net/http gives
	s := &sse{w: w, rc: http.NewResponseController(w)}
	_ = s.rc.Flush() // a caller that has gone is noticed by the first send
	return s
}

// send writes one event and makes it visible to the caller at once.
func (s *sse) send(event, id string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != "" {
		if _, err := fmt.Fprintf(s.w, "id: %s\n", id); err != nil {
			return fmt.Errorf("send event: %w", err)
		}
	}
	if _, err := fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", event, data); err != nil {
		return fmt.Errorf("send event: %w", err)
	}
	if err := s.rc.Flush(); err != nil {
		return fmt.Errorf("send event: %w", err)
	}
	return nil
}

// fail ends a stream that had begun with an error.
func (s *sse) fail(e *wireError) { _ = s.send("error", "", e) }

// stream documents an operation's event stream.
func (s *server) stream(o *huma.Operation, events ...any) {
	var schemas []*huma.Schema
	for _, v := range events {
		schemas = append(schemas, s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(v), true, ""))
	}
	o.Responses = map[string]*huma.Response{
		"200": {
			Description: "Server-sent events; the data of each is JSON.",
			Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{OneOf: schemas}}},
		},
	}
}
