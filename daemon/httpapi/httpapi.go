// Package httpapi serves the engine over HTTP: routes, decoding, one error
// writer, event streams. The OpenAPI document at /v1/openapi.json is made from
// the same registrations, so it can't fall behind.
//
// It decides who the caller is (peer.go) and nothing else; what is allowed and
// what happens is the session engine's. Start reading at New.
package httpapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/session"
)

// Config says what a Server serves.
type Config struct {
	Engine *session.Engine
	// Operators name the uids that may act for any account.
	Operators Operators
	// Info fills what the daemon knows of itself.
	Info func() api.Info
	// Metrics answers a request of an operator for the metrics. An error
	// means that nothing was written yet.
	Metrics func(http.ResponseWriter, *http.Request) error
	Log     *slog.Logger
}

// maxBody bounds a JSON request in bytes; files are streamed and not bounded
// here.
const maxBody = 4 << 20

// server holds what handlers share.
type server struct {
	cfg Config
	api huma.API
	mux *routes
}

// routes is a mux that knows what it was given.
type routes struct {
	http.ServeMux
	patterns []string
}

// HandleFunc implements humago.Mux.
func (m *routes) HandleFunc(pattern string, handle func(http.ResponseWriter, *http.Request)) {
	m.patterns = append(m.patterns, pattern)
	m.ServeMux.HandleFunc(pattern, handle)
}

// methods names those that a path is served with.
func (m *routes) methods(u *url.URL) []string {
	var found []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if _, pattern := m.Handler(&http.Request{Method: method, URL: u}); pattern != "/" {
			found = append(found, method)
		}
	}
	return found
}

// New returns the handler of the API. Its connections must come from a server
// with ConnContext.
func New(cfg Config, version string) http.Handler {
	s := newServer(cfg, version)
	return s.identify(s.mux)
}

func newServer(cfg Config, version string) *server {
	s := &server{cfg: cfg, mux: &routes{}}
	hc := huma.DefaultConfig("media-sandbox", version)
	hc.OpenAPIPath = "/v1/openapi"
	hc.DocsPath = ""
	hc.SchemasPath = ""
	hc.CreateHooks = nil
	hc.RejectUnknownQueryParameters = true
	hc.Info.Description = "Runs exact media work in sandboxes. Errors are {\"error\": {code, message, hint, retryable, request_id}}."
	s.api = humago.New(s.mux, hc)
	s.routeChats()
	s.routeCommands()
	s.routeFiles()
	s.routeCells()
	s.routeSkills()
	s.routeEvents()
	s.routeNetwork()
	s.routeMetrics()
	s.mux.HandleFunc("/", s.noRoute)
	return s
}

// noRoute refuses what no other route takes.
func (s *server) noRoute(w http.ResponseWriter, r *http.Request) {
	e := api.Errorf(api.CodeRouteNotFound, "there is no %s %s", r.Method, r.URL.Path)
	if methods := s.mux.methods(r.URL); len(methods) > 0 {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		e.Code = api.CodeMethodNotAllowed
	}
	s.fail(w, r, e.WithHint("GET /v1/openapi.json describes what there is"))
}

// op fills in what all operations share.
func op(id, method, path, summary string) huma.Operation {
	return huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, MaxBodyBytes: maxBody}
}

// ChatPath is the part of a request that names a chat. The library reads only
// exported types that are embedded.
type ChatPath struct {
	Chat string `path:"chat" maxLength:"64" doc:"The chat's id."`
}

func (p ChatPath) key(ctx context.Context) session.ChatKey {
	return session.ChatKey{Account: callerOf(ctx).account, ID: p.Chat}
}

type body[T any] struct{ Body T }

type none struct{}

// register adds an operation whose handler's errors are the API's.
func register[I, O any](s *server, o huma.Operation, handle func(context.Context, *I) (O, error)) {
	huma.Register(s.api, o, func(ctx context.Context, in *I) (*body[O], error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, s.wire(ctx, err)
		}
		return &body[O]{out}, nil
	})
}

// registerEmpty adds an operation that answers 204.
func registerEmpty[I any](s *server, o huma.Operation, handle func(context.Context, *I) error) {
	o.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, o, func(ctx context.Context, in *I) (*struct{}, error) {
		if err := handle(ctx, in); err != nil {
			return nil, s.wire(ctx, err)
		}
		return nil, nil
	})
}

// ConnContext puts the peer's credentials where the handlers find them.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	peer, err := peerOf(c)
	if err != nil {
		return context.WithValue(ctx, peerKey{}, err)
	}
	return context.WithValue(ctx, peerKey{}, peer)
}

func isCanceled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF)
}
