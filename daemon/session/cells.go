package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/uploader"
)

// urlExpiry is how long a cell's URL is good for, where the store limits it.
const urlExpiry = 24 * time.Hour

// wireCell is a cell as callers see it, with a URL of this moment.
func (e *Engine) wireCell(rec CellRecord) api.Cell {
	c := rec.Cell
	if c.State != api.CellPublished {
		return c
	}
	c.File.URL = fmt.Sprintf("/v1/chats/%s/cells/%d/content", c.Chat, c.Ordinal)
	if e.cfg.DirectURLs {
		url, err := e.cfg.Blobs.URL(e.ctx, rec.Key, urlExpiry)
		if err != nil {
			e.log.Warn("make a cell's URL", "chat", c.Chat, "ordinal", c.Ordinal, "error", err)
			return c
		}
		c.File.URL = url
	}
	return c
}

func (e *Engine) cellRecord(k ChatKey, ordinal int) (CellRecord, error) {
	var rec CellRecord
	if _, err := e.chatRecord(k); err != nil {
		return rec, err
	}
	err := e.cfg.Store.View(func(tx Tx) (err error) {
		rec, err = tx.Cell(k, ordinal)
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return rec, api.Errorf(api.CodeCellNotFound, "chat %s has no cell #%d", k.ID, ordinal).
			WithHint("list its cells with `sandboxctl cells --chat %s`", k.ID)
	}
	if err == nil && rec.gone(now()) {
		return rec, api.Errorf(api.CodeCellNotFound, "cell #%d of chat %s expired at %s", ordinal, k.ID, rec.File.ExpiresAt.Format(time.RFC3339)).
			WithHint("how long cells are kept is the chat's retention: `sandboxctl chats set %s --retention 30d`", k.ID)
	}
	return rec, err
}

// Cell returns one cell.
func (e *Engine) Cell(k ChatKey, ordinal int) (api.Cell, error) {
	rec, err := e.cellRecord(k, ordinal)
	return e.wireCell(rec), err
}

// OpenCell opens a cell's file for reading and seeking.
func (e *Engine) OpenCell(ctx context.Context, k ChatKey, ordinal int) (api.Cell, io.ReadSeekCloser, error) {
	rec, err := e.cellRecord(k, ordinal)
	if err != nil {
		return api.Cell{}, nil, err
	}
	if rec.State != api.CellPublished {
		return api.Cell{}, nil, api.Errorf(api.CodeUnavailable, "cell #%d is still being uploaded", ordinal).CanRetry()
	}
	return e.wireCell(rec), &blobReader{ctx: ctx, blobs: e.cfg.Blobs, key: rec.Key, size: rec.File.Size}, nil
}

// blobReader reads a file of the store from any offset.
type blobReader struct {
	ctx    context.Context
	blobs  uploader.Blobs
	key    string
	size   int64
	offset int64
	part   io.ReadCloser
}

// Read implements io.Reader.
func (b *blobReader) Read(p []byte) (int, error) {
	if b.offset >= b.size {
		return 0, io.EOF
	}
	if b.part == nil {
		part, err := b.blobs.Open(b.ctx, b.key, b.offset, b.size-b.offset)
		if err != nil {
			return 0, fmt.Errorf("read a cell's file: %w", err)
		}
		b.part = part
	}
	n, err := b.part.Read(p)
	b.offset += int64(n)
	return n, err
}

// Seek implements io.Seeker.
func (b *blobReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.offset
	case io.SeekEnd:
		offset += b.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the file's beginning")
	}
	if offset == b.offset {
		return offset, nil
	}
	b.offset = offset
	return offset, b.Close()
}

// Close implements io.Closer.
func (b *blobReader) Close() error {
	if b.part == nil {
		return nil
	}
	part := b.part
	b.part = nil
	return part.Close()
}

// inputFromCell opens the file behind '#N' and says what it is called.
func (e *Engine) inputFromCell(ctx context.Context, k ChatKey, ordinal int) (string, io.ReadSeekCloser, error) {
	cell, r, err := e.OpenCell(ctx, k, ordinal)
	if err != nil {
		return "", nil, err
	}
	return cell.File.Name, r, nil
}
