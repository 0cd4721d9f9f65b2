package client

import (
	"context"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"

	"mediasandbox/daemon/api"
)

// CellQuery picks cells of a chat. An empty field matches all.
type CellQuery struct {
	Pill api.Pill
	// Type is a media type, or the part of one before the slash.
	Type  string
	Label string
	// Text is looked for in names, paths, labels, types and "#ordinal",
	// whatever its case.
	Text string
}

func (q CellQuery) values() url.Values {
	v := url.Values{}
	for key, value := range map[string]string{"pill": string(q.Pill), "type": q.Type, "label": q.Label, "q": q.Text} {
		if value != "" {
			v.Set(key, value)
		}
	}
	return v
}

// Cells lists a chat's cells.
func (c *Client) Cells(ctx context.Context, chat string) ([]api.Cell, error) {
	return c.FindCells(ctx, chat, CellQuery{})
}

// FindCells lists those of a chat's cells that match.
func (c *Client) FindCells(ctx context.Context, chat string, q CellQuery) ([]api.Cell, error) {
	return call[[]api.Cell](ctx, c, request{method: http.MethodGet, path: []string{"chats", chat, "cells"}, query: q.values()}, nil)
}

func cellPath(chat string, ordinal int, rest ...string) []string {
	return append([]string{"chats", chat, "cells", strconv.Itoa(ordinal)}, rest...)
}

// Cell shows one cell.
func (c *Client) Cell(ctx context.Context, chat string, ordinal int) (api.Cell, error) {
	return call[api.Cell](ctx, c, request{method: http.MethodGet, path: cellPath(chat, ordinal)}, nil)
}

// OpenCell reads a cell's file. The caller closes it.
func (c *Client) OpenCell(ctx context.Context, chat string, ordinal int) (io.ReadCloser, int64, error) {
	return c.open(ctx, request{method: http.MethodGet, path: cellPath(chat, ordinal, "content")})
}

// CellContent reads a cell's file, or what header asks for (Range, If-Range,
// If-None-Match), as the answer that the daemon gives: 200, 206 or 304. The
// caller closes its body.
func (c *Client) CellContent(ctx context.Context, chat string, ordinal int, header http.Header) (*http.Response, error) {
	return c.do(ctx, request{method: http.MethodGet, path: cellPath(chat, ordinal, "content"), header: header})
}

// OpenInput reads a file that a cell was made from, by its name below /inputs;
// Provenance lists them. The caller closes it.
func (c *Client) OpenInput(ctx context.Context, chat string, ordinal int, name string) (io.ReadCloser, int64, error) {
	return c.open(ctx, request{method: http.MethodGet, path: cellPath(chat, ordinal, "input"), query: url.Values{"name": {name}}})
}

// OpenPreview reads a small picture of a cell, a WebP: one of those that
// Cell.Previews names. The caller closes it.
func (c *Client) OpenPreview(ctx context.Context, chat string, ordinal int, kind string) (io.ReadCloser, int64, error) {
	return c.open(ctx, request{method: http.MethodGet, path: cellPath(chat, ordinal, "preview"), query: url.Values{"kind": {kind}}})
}

// Provenance says how a cell was made.
func (c *Client) Provenance(ctx context.Context, chat string, ordinal int) (api.Provenance, error) {
	return call[api.Provenance](ctx, c, request{method: http.MethodGet, path: cellPath(chat, ordinal, "provenance")}, nil)
}

// Replay runs the command that made a cell again and compares what it makes.
func (c *Client) Replay(ctx context.Context, chat string, ordinal int) (api.Replay, error) {
	return call[api.Replay](ctx, c, request{method: http.MethodPost, path: cellPath(chat, ordinal, "replay")}, nil)
}

// Export reads a chat's cells, or those that match, as a ZIP archive. It also
// returns what the archive is called. The caller closes it; a read error means
// that the archive is not whole.
func (c *Client) Export(ctx context.Context, chat string, q CellQuery) (io.ReadCloser, string, error) {
	res, err := c.do(ctx, request{method: http.MethodGet, path: []string{"chats", chat, "export"}, query: q.values()})
	if err != nil {
		return nil, "", err
	}
	name := chat + ".zip"
	if _, params, err := mime.ParseMediaType(res.Header.Get("Content-Disposition")); err == nil && params["filename"] != "" {
		name = params["filename"]
	}
	return res.Body, name, nil
}
