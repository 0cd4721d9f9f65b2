package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"mediasandbox/daemon/api"
)

func (s *server) routeCells() {
	register(s, op("list-cells", http.MethodGet, "/v1/chats/{chat}/cells", "List a chat's cells by ordinal"),
		func(ctx context.Context, in *ChatPath) ([]api.Cell, error) {
			return s.cfg.Engine.Cells(in.key(ctx))
		})
	register(s, op("get-cell", http.MethodGet, "/v1/chats/{chat}/cells/{ordinal}", "Show a cell"),
		func(ctx context.Context, in *struct {
			ChatPath
			Ordinal int `path:"ordinal" minimum:"1"`
		}) (api.Cell, error) {
			return s.cfg.Engine.Cell(in.key(ctx), in.Ordinal)
		})
	ordinal := []*huma.Param{{Name: "ordinal", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeInteger}}}
	s.routeRaw(op("get-cell-content", http.MethodGet, "/v1/chats/{chat}/cells/{ordinal}/content", "Read a cell's file; ranges are understood"),
		ordinal, nil, s.getCell)
}

func (s *server) getCell(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.PathValue("ordinal"))
	if err != nil {
		s.fail(w, r, api.Errorf(api.CodeInvalid, "ordinal %q is not a number", r.PathValue("ordinal")))
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
