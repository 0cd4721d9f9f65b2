package httpapi

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/session"
)

func (s *server) routeCells() {
	ordinal := []*huma.Param{{Name: "ordinal", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeInteger}}}
	register(s, op("list-cells", http.MethodGet, "/v1/chats/{chat}/cells", "List a chat's cells by ordinal, or those of them that match"),
		func(ctx context.Context, in *struct {
			ChatPath
			CellQuery
		}) ([]api.Cell, error) {
			return s.cfg.Engine.Cells(in.key(ctx), in.filter())
		})
	register(s, op("get-cell", http.MethodGet, "/v1/chats/{chat}/cells/{ordinal}", "Show a cell"),
		func(ctx context.Context, in *CellPath) (api.Cell, error) {
			return s.cfg.Engine.Cell(in.key(ctx), in.Ordinal)
		})
	register(s, op("get-provenance", http.MethodGet, "/v1/chats/{chat}/cells/{ordinal}/provenance", "Say how a cell was made"),
		func(ctx context.Context, in *CellPath) (api.Provenance, error) {
			return s.cfg.Engine.Provenance(in.key(ctx), in.Ordinal)
		})
	register(s, op("replay-cell", http.MethodPost, "/v1/chats/{chat}/cells/{ordinal}/replay",
		"Run the command that made a cell again, in a fresh sandbox without a network, and compare what it makes"),
		func(ctx context.Context, in *CellPath) (api.Replay, error) {
			return s.cfg.Engine.Replay(ctx, in.key(ctx), in.Ordinal)
		})
	preview := append(slices.Clone(ordinal), &huma.Param{Name: "kind", In: "query", Schema: &huma.Schema{Type: huma.TypeString},
		Description: "thumb (the default), strip or wave."})
	s.routeRaw(op("get-cell-preview", http.MethodGet, "/v1/chats/{chat}/cells/{ordinal}/preview", "Read a small picture of a cell, a WebP"),
		preview, nil, s.getPreview)
	input := append(slices.Clone(ordinal), &huma.Param{Name: "name", In: "query", Required: true, Schema: &huma.Schema{Type: huma.TypeString},
		Description: "Below /inputs, as the cell's provenance lists it."})
	s.routeRaw(op("get-cell-input", http.MethodGet, "/v1/chats/{chat}/cells/{ordinal}/input", "Read a file that a cell was made from, if it is still kept"),
		input, nil, s.getInput)
	s.routeRaw(op("export-cells", http.MethodGet, "/v1/chats/{chat}/export", "Read a chat's cells, or those that match, as a ZIP archive"),
		cellQueryParams, nil, s.exportCells)
	s.routeRaw(op("get-cell-content", http.MethodGet, "/v1/chats/{chat}/cells/{ordinal}/content", "Read a cell's file; ranges are understood"),
		ordinal, nil, s.getCell)
}

// CellPath names a cell.
type CellPath struct {
	ChatPath
	Ordinal int `path:"ordinal" minimum:"1"`
}

// CellQuery picks cells.
type CellQuery struct {
	Pill  api.Pill `query:"pill" enum:"video-edit,frame-extract,image-edit,audio-edit,file" doc:"Of this pill."`
	Type  string   `query:"type" maxLength:"100" doc:"Of this media type, or the part of it before the slash."`
	Label string   `query:"label" maxLength:"100" doc:"Of this label."`
	Text  string   `query:"q" maxLength:"200" doc:"With this text, in upper or lower case, in the name, path, label, type or #ordinal."`
}

func (q CellQuery) filter() session.CellFilter {
	return session.CellFilter{Pill: q.Pill, Type: q.Type, Label: q.Label, Text: q.Text}
}

var cellQueryParams = []*huma.Param{
	{Name: "pill", In: "query", Schema: &huma.Schema{Type: huma.TypeString}, Description: "Of this pill."},
	{Name: "type", In: "query", Schema: &huma.Schema{Type: huma.TypeString}, Description: "Of this media type, or the part of it before the slash."},
	{Name: "label", In: "query", Schema: &huma.Schema{Type: huma.TypeString}, Description: "Of this label."},
	{Name: "q", In: "query", Schema: &huma.Schema{Type: huma.TypeString}, Description: "With this text in the name, path, label, type or #ordinal."},
}

func (s *server) exportCells(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	filter := session.CellFilter{Pill: api.Pill(q.Get("pill")), Type: q.Get("type"), Label: q.Get("label"), Text: q.Get("q")}
	name, write, err := s.cfg.Engine.Export(rawKey(r), filter)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/zip")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	if err := write(r.Context(), w); err != nil {
		if !isCanceled(err) {
			s.cfg.Log.Error("export a chat", "chat", rawKey(r), "error", err)
		}
		panic(http.ErrAbortHandler) // the caller must not take it for whole
	}
}

// rawOrdinal is the cell that a raw route names.
func rawOrdinal(r *http.Request) (int, error) {
	n, err := strconv.Atoi(r.PathValue("ordinal"))
	if err != nil {
		return 0, api.Errorf(api.CodeInvalid, "ordinal %q is not a number", r.PathValue("ordinal"))
	}
	return n, nil
}

func (s *server) getPreview(w http.ResponseWriter, r *http.Request) {
	n, err := rawOrdinal(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	kind := r.URL.Query().Get("kind")
	if kind == "" {
		kind = "thumb"
	}
	cell, content, err := s.cfg.Engine.OpenPreview(rawKey(r), n, kind)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "image/webp")
	s.serveContent(w, r, cell.CreatedAt, content)
	if err := content.Close(); err != nil {
		s.cfg.Log.Error("close a preview", "error", err)
	}
}

func (s *server) getInput(w http.ResponseWriter, r *http.Request) {
	n, err := rawOrdinal(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	in, content, err := s.cfg.Engine.OpenInput(r.Context(), rawKey(r), n, r.URL.Query().Get("name"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", in.ContentType)
	w.Header().Set("ETag", `"`+in.SHA256+`"`)
	s.serveContent(w, r, time.Time{}, content)
	if err := content.Close(); err != nil {
		s.cfg.Log.Error("close an input", "error", err)
	}
}

func (s *server) getCell(w http.ResponseWriter, r *http.Request) {
	n, err := rawOrdinal(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	cell, content, err := s.cfg.Engine.OpenCell(r.Context(), rawKey(r), n)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", cell.File.ContentType)
	h.Set("ETag", `"`+cell.File.SHA256+`"`)
	s.serveContent(w, r, cell.CreatedAt, content)
	if err := content.Close(); err != nil {
		s.cfg.Log.Error("close a cell's file", "error", err)
	}
}

// answer writes a value as JSON.
func (s *server) answer(w http.ResponseWriter, r *http.Request, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil && r.Context().Err() == nil {
		s.cfg.Log.Error("answer a request", "error", err)
	}
}
