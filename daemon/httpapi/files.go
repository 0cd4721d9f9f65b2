package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/session"
)

type FilePath struct {
	ChatPath
	Path string `query:"path" required:"true" maxLength:"4096" doc:"Absolute, below /workspace, /inputs or /outputs."`
}

func (s *server) routeFiles() {
	register(s, op("list-files", http.MethodGet, "/v1/chats/{chat}/files", "List a directory of the chat's sandbox"),
		func(ctx context.Context, in *FilePath) ([]api.FileInfo, error) {
			return s.cfg.Engine.ListFiles(in.key(ctx), in.Path)
		})
	registerEmpty(s, op("remove-file", http.MethodDelete, "/v1/chats/{chat}/files", "Remove a file or a directory"),
		func(ctx context.Context, in *FilePath) error {
			return s.cfg.Engine.RemoveFile(in.key(ctx), in.Path)
		})
	register(s, op("stat-file", http.MethodGet, "/v1/chats/{chat}/files/stat", "Describe a file, a directory or a link of the chat's sandbox"),
		func(ctx context.Context, in *FilePath) (api.FileInfo, error) {
			return s.cfg.Engine.StatFile(in.key(ctx), in.Path)
		})
	register(s, op("move-file", http.MethodPost, "/v1/chats/{chat}/files/move", "Rename a file or a directory of the chat's sandbox"),
		func(ctx context.Context, in *moveFile) (api.FileInfo, error) {
			return s.cfg.Engine.MoveFile(in.key(ctx), in.Body)
		})
	s.routeRaw(op("put-tree", http.MethodPut, "/v1/chats/{chat}/files/tree", "Write a directory, whole or not at all; the body is a tar stream of directories and regular files"), putTreeParams, reflect.TypeFor[api.FileInfo](), s.putTree)
	s.routeRaw(op("get-tree", http.MethodGet, "/v1/chats/{chat}/files/tree", "Read a directory as a tar stream; the trailer "+api.TreeTrailer+" says what was left out"), filePathParams, nil, s.getTree)
	s.routeRaw(op("put-file", http.MethodPut, "/v1/chats/{chat}/files/content", "Write a file, whole or not at all; the body is its content"), filePathParams, reflect.TypeFor[api.FileInfo](), s.putFile)
	s.routeRaw(op("get-file", http.MethodGet, "/v1/chats/{chat}/files/content", "Read a file; ranges are understood"), filePathParams, nil, s.getFile)
}

var filePathParams = []*huma.Param{{
	Name: "path", In: "query", Required: true, Schema: &huma.Schema{Type: huma.TypeString},
	Description: "Absolute, below /workspace, /inputs or /outputs.",
}}

var putTreeParams = append(filePathParams, &huma.Param{
	Name: "replace", In: "query", Schema: &huma.Schema{Type: huma.TypeBoolean}, Description: "Whether what is there may be replaced.",
})

type moveFile struct {
	ChatPath
	Body api.MoveFile
}

// noAnswer is the type of an answer without a body.
var noAnswer = reflect.TypeFor[struct{}]()

// routeRaw serves a file's bytes beside the library, which would hold them in
// memory, and documents it all the same. answer is the type of what an upload
// is answered with; nil is for a download.
func (s *server) routeRaw(o huma.Operation, params []*huma.Param, answer reflect.Type, handle http.HandlerFunc) {
	raw := map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}
	for _, name := range []string{"chat", "skill"} {
		if strings.Contains(o.Path, "{"+name+"}") {
			o.Parameters = append(o.Parameters, &huma.Param{Name: name, In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}})
		}
	}
	o.Parameters = append(o.Parameters, params...)
	o.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: raw}}
	if answer != nil {
		o.RequestBody = &huma.RequestBody{Required: true, Content: raw}
	}
	if answer != nil && answer != noAnswer {
		schema := s.api.OpenAPI().Components.Schemas.Schema(answer, true, "")
		o.Responses["200"].Content = map[string]*huma.MediaType{"application/json": {Schema: schema}}
	}
	if answer == noAnswer {
		o.Responses = map[string]*huma.Response{"204": {Description: "No Content"}}
	}
	s.api.OpenAPI().AddOperation(&o)
	s.mux.HandleFunc(o.Method+" "+o.Path, func(w http.ResponseWriter, r *http.Request) {
		if err := checkQuery(r.URL, o.Parameters); err != nil {
			s.fail(w, r, err)
			return
		}
		handle(w, r)
	})
}

// maxParam bounds one query parameter in bytes.
const maxParam = 4096

// checkQuery refuses parameters that an operation does not declare, as the
// library does for its own.
func checkQuery(u *url.URL, declared []*huma.Param) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return api.Errorf(api.CodeInvalid, "query: %v", err)
	}
	for name, values := range query {
		if !slices.ContainsFunc(declared, func(p *huma.Param) bool { return p.In == "query" && p.Name == name }) {
			return api.Errorf(api.CodeInvalid, "query.%s: unknown query parameter", name).WithHint(seeOpenAPI)
		}
		if len(values) > 1 || len(values[0]) > maxParam {
			return api.Errorf(api.CodeInvalid, "query.%s: it must be given once, in at most %d bytes", name, maxParam).WithHint(seeOpenAPI)
		}
	}
	return nil
}

func rawKey(r *http.Request) session.ChatKey {
	return session.ChatKey{Account: callerOf(r.Context()).account, ID: r.PathValue("chat")}
}

func (s *server) putFile(w http.ResponseWriter, r *http.Request) {
	info, err := s.cfg.Engine.PutFile(r.Context(), rawKey(r), r.URL.Query().Get("path"), r.Body)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.answer(w, r, info)
}

func (s *server) getFile(w http.ResponseWriter, r *http.Request) {
	f, info, err := s.cfg.Engine.OpenFile(rawKey(r), r.URL.Query().Get("path"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	s.serveContent(w, r, info.Modified.Truncate(time.Second), f)
	if err := f.Close(); err != nil && !errors.Is(err, context.Canceled) {
		s.cfg.Log.Error("close a file of a sandbox", "error", err)
	}
}

func (s *server) putTree(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	replace, err := strconv.ParseBool(cmp.Or(query.Get("replace"), "false"))
	if err != nil {
		s.fail(w, r, api.Errorf(api.CodeInvalid, "query.replace: %q is neither true nor false", query.Get("replace")).WithHint(seeOpenAPI))
		return
	}
	info, err := s.cfg.Engine.PutTree(r.Context(), rawKey(r), query.Get("path"), replace, r.Body)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.answer(w, r, info)
}

// getTree streams a directory. What goes wrong after the first byte is said in
// the trailer.
func (s *server) getTree(w http.ResponseWriter, r *http.Request) {
	started := false
	end, err := s.cfg.Engine.PackTree(rawKey(r), r.URL.Query().Get("path"), func() io.Writer {
		started = true
		w.Header().Set("Content-Type", "application/x-tar")
		w.Header().Set("Trailer", api.TreeTrailer)
		return w
	})
	if !started {
		s.fail(w, r, err)
		return
	}
	if err != nil {
		end.Error = s.wire(r.Context(), err).Body
	}
	text, err := json.Marshal(end)
	if err != nil {
		s.cfg.Log.Error("encode the end of a tree", "error", err)
		return
	}
	w.Header().Set(api.TreeTrailer, string(text))
}
