package session

import (
	"context"
	"errors"
	"io"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/export"
)

// Export returns what writes the chat's cells that filter picks as a ZIP
// archive, and what the archive is called.
func (e *Engine) Export(k ChatKey, filter CellFilter) (name string, write func(context.Context, io.Writer) error, err error) {
	chat, err := e.Chat(k)
	if err != nil {
		return "", nil, err
	}
	cells, err := e.Cells(k, filter)
	if err != nil {
		return "", nil, err
	}
	if len(cells) == 0 {
		return "", nil, api.Errorf(api.CodeCellNotFound, "there is no cell to export in chat %s", k.ID).
			WithHint("list its cells with `sandboxctl cells --chat %s`", k.ID)
	}
	entries := make([]export.Entry, len(cells))
	for i, c := range cells {
		entries[i].Cell = c
		if c.State != api.CellPublished {
			entries[i].Missing = "it is " + string(c.State)
		}
		if !e.cfg.StableURLs && e.cfg.DirectURLs { // signed anew each time
			entries[i].Cell.File.URL = ""
		}
		p, err := e.Provenance(k, c.Ordinal)
		var known *api.Error
		if err != nil && !errors.As(err, &known) {
			return "", nil, err
		}
		if err == nil {
			entries[i].Provenance = &p
		}
	}
	open := func(ctx context.Context, ordinal int) (io.ReadCloser, error) {
		_, r, err := e.OpenCell(ctx, k, ordinal)
		return r, err
	}
	return export.FileName(chat), func(ctx context.Context, w io.Writer) error { return export.Write(ctx, w, chat, entries, open) }, nil
}
