package gallery

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"strconv"
	"strings"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
)

// recentCommands is how many of a chat's ended commands the page is told.
const recentCommands = 40

// handler answers with an error instead of writing it.
type handler func(http.ResponseWriter, *http.Request) error

func (g *Gallery) routes() http.Handler {
	mux := http.NewServeMux()
	files, err := fs.Sub(web, "web")
	if err != nil {
		panic(err) // the directory is embedded
	}
	mux.Handle("GET /assets/", http.StripPrefix("/assets/", http.FileServerFS(files)))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { g.index(w, "") })
	route := func(pattern string, h handler) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if chat := r.PathValue("chat"); g.cfg.Chat != "" && chat != "" && chat != g.cfg.Chat {
				g.fail(w, r, api.Errorf(api.CodeForbidden, "this page shows the chat %q only", g.cfg.Chat))
				return
			}
			if err := h(w, r); err != nil {
				g.fail(w, r, err)
			}
		})
	}
	route("GET /api/info", g.info)
	route("GET /api/chats", g.chats)
	route("GET /api/chats/{chat}", func(w http.ResponseWriter, r *http.Request) error {
		return answer(w)(g.cfg.Client.Chat(r.Context(), r.PathValue("chat")))
	})
	route("GET /api/chats/{chat}/cells", func(w http.ResponseWriter, r *http.Request) error {
		return answer(w)(g.cfg.Client.FindCells(r.Context(), r.PathValue("chat"), cellQuery(r)))
	})
	route("GET /api/chats/{chat}/commands", g.commands)
	route("GET /api/chats/{chat}/commands/{command}/output", g.output)
	route("POST /api/chats/{chat}/commands/{command}/cancel", g.cancel)
	route("GET /api/chats/{chat}/cells/{ordinal}/provenance", g.provenance)
	route("POST /api/chats/{chat}/cells/{ordinal}/replay", g.replay)
	route("GET /api/chats/{chat}/cells/{ordinal}/content", g.content)
	route("GET /api/chats/{chat}/cells/{ordinal}/preview", g.preview)
	route("GET /api/chats/{chat}/cells/{ordinal}/input", g.input)
	route("GET /api/chats/{chat}/export", g.export)
	mux.HandleFunc("GET /api/events", func(w http.ResponseWriter, r *http.Request) { g.hub.serve(w, r, g.cfg.Chat) })
	return mux
}

// index writes the page. A key is given to it once, when a link was used.
func (g *Gallery) index(w http.ResponseWriter, key string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(bytes.Replace(page, []byte("{{key}}"), []byte(key), 1)) // the browser may have gone
}

// answer writes what a call of the client's returned.
func answer(w http.ResponseWriter) func(v any, err error) error {
	return func(v any, err error) error {
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // the browser may have gone
		return nil
	}
}

// fail writes an error as the daemon's API does.
func (g *Gallery) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return
	}
	var known *api.Error
	var away *client.Unreachable
	status := http.StatusBadRequest
	switch {
	case errors.As(err, &away):
		status = http.StatusBadGateway
		known = api.Errorf(api.CodeUnavailable, "%s", err).CanRetry()
	case !errors.As(err, &known):
		status = http.StatusBadGateway
		known = api.Errorf(api.CodeInternal, "%s", err)
		g.cfg.Log.Warn("answer a browser", "path", r.URL.Path, "error", err)
	case known.Code == api.CodeForbidden:
		status = http.StatusForbidden
	case strings.HasSuffix(string(known.Code), "_not_found"):
		status = http.StatusNotFound
	case known.Retryable:
		status = http.StatusServiceUnavailable
	case r.Header.Get("Range") != "" && known.Code == api.CodeInvalid:
		status = http.StatusRequestedRangeNotSatisfiable
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.ErrorBody{Error: known}) // the browser may have gone
}

func (g *Gallery) info(w http.ResponseWriter, r *http.Request) error {
	info, err := g.cfg.Client.Info(r.Context())
	return answer(w)(map[string]any{
		"chat": g.cfg.Chat, "account": info.Account, "version": info.Version, "limits": info.Limits,
	}, err)
}

func (g *Gallery) chats(w http.ResponseWriter, r *http.Request) error {
	if g.cfg.Chat != "" {
		chat, err := g.cfg.Client.Chat(r.Context(), g.cfg.Chat)
		return answer(w)([]api.Chat{chat}, err)
	}
	return answer(w)(g.cfg.Client.Chats(r.Context()))
}

// commands answers with those that have not ended, and the last that have.
func (g *Gallery) commands(w http.ResponseWriter, r *http.Request) error {
	all, err := g.cfg.Client.Commands(r.Context(), r.PathValue("chat"))
	shown := []api.Command{}
	for i, c := range all {
		if !c.State.Ended() || i >= len(all)-recentCommands {
			shown = append(shown, c)
		}
	}
	return answer(w)(shown, err)
}

// output streams a command's output from its beginning, and its record at its
// end.
func (g *Gallery) output(w http.ResponseWriter, r *http.Request) error {
	s := newStream(w)
	cmd, err := g.cfg.Client.Output(r.Context(), r.PathValue("chat"), r.PathValue("command"), true, func(c api.OutputChunk) error {
		return s.send("output", 0, c)
	})
	if err != nil {
		if r.Context().Err() == nil {
			_ = s.send("fault", 0, map[string]string{"message": err.Error()}) // the browser may have gone
		}
		return nil
	}
	_ = s.send("command", 0, cmd) // the browser may have gone
	return nil
}

func (g *Gallery) cancel(w http.ResponseWriter, r *http.Request) error {
	return answer(w)(struct{}{}, g.cfg.Client.Kill(r.Context(), r.PathValue("chat"), r.PathValue("command"), 0))
}

func (g *Gallery) provenance(w http.ResponseWriter, r *http.Request) error {
	n, err := ordinal(r)
	if err != nil {
		return err
	}
	return answer(w)(g.cfg.Client.Provenance(r.Context(), r.PathValue("chat"), n))
}

func (g *Gallery) replay(w http.ResponseWriter, r *http.Request) error {
	n, err := ordinal(r)
	if err != nil {
		return err
	}
	return answer(w)(g.cfg.Client.Replay(r.Context(), r.PathValue("chat"), n))
}

// ordinal is that of the cell which a request names.
func ordinal(r *http.Request) (int, error) {
	n, err := strconv.Atoi(r.PathValue("ordinal"))
	if err != nil || n < 1 {
		return 0, api.Errorf(api.CodeInvalid, "%q is not a cell's ordinal", r.PathValue("ordinal"))
	}
	return n, nil
}

func cellQuery(r *http.Request) client.CellQuery {
	q := r.URL.Query()
	return client.CellQuery{Pill: api.Pill(q.Get("pill")), Type: q.Get("type"), Label: q.Get("label"), Text: q.Get("q")}
}
