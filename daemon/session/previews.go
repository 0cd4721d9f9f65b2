package session

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mediasandbox/daemon/api"
)

//go:embed preview.py
var previewSource []byte

const (
	// previewTimeout bounds the making of one batch.
	previewTimeout = 2 * time.Minute
	// previewBatch is how many files are looked at by one run of the helper.
	previewBatch = 8
	// maxPreview bounds one small picture, in bytes.
	maxPreview = 128 << 10
)

// previews keeps the small pictures of cells as files, a directory a chat.
type previews struct{ chatDirs }

func previewName(ordinal, revision int, kind string) string {
	return fmt.Sprintf("%d-%d-%s.webp", ordinal, revision, kind)
}

// put writes one whole.
func (p previews) put(k ChatKey, name string, data []byte) error {
	if err := os.MkdirAll(p.of(k), 0o700); err != nil {
		return fmt.Errorf("keep a preview: %w", err)
	}
	path := filepath.Join(p.of(k), name)
	if err := os.WriteFile(path+partSuffix, data, 0o600); err != nil {
		return fmt.Errorf("keep a preview: %w", err)
	}
	return os.Rename(path+partSuffix, path)
}

// remove removes those of a cell, of all its revisions but for one.
func (p previews) remove(k ChatKey, ordinal, except int) error {
	found, err := filepath.Glob(filepath.Join(p.of(k), fmt.Sprintf("%d-*", ordinal)))
	for _, path := range found {
		if !strings.HasPrefix(filepath.Base(path), fmt.Sprintf("%d-%d-", ordinal, except)) {
			err = errors.Join(err, ignoreGone(os.Remove(path)))
		}
	}
	return err
}

// OpenPreview opens a small picture of a cell, a WebP.
func (e *Engine) OpenPreview(k ChatKey, ordinal int, kind string) (api.Cell, io.ReadSeekCloser, error) {
	rec, err := e.cellRecord(k, ordinal)
	if err != nil {
		return api.Cell{}, nil, err
	}
	if slices.Contains(rec.Previews, kind) {
		f, err := os.Open(filepath.Join(e.previews.of(k), previewName(ordinal, rec.Revision, kind)))
		if !errors.Is(err, fs.ErrNotExist) {
			return rec.Cell, f, err
		}
	}
	return api.Cell{}, nil, api.Errorf(api.CodeFileNotFound, "cell #%d has no preview %q", ordinal, kind).
		WithHint("it has these: %v", rec.Previews)
}

// makePreviews makes the small pictures of new cells, one batch after the
// other, until the sandbox ends.
func (e *Engine) makePreviews(l *live, cells []CellRecord) {
	cells = slices.DeleteFunc(slices.Clone(cells), func(c CellRecord) bool { return !probed(c.File.ContentType) })
	if len(cells) == 0 || l.handle == nil { // or the sandbox has ended
		return
	}
	l.keeping.Go(func() {
		l.previewSlots <- struct{}{}
		defer func() { <-l.previewSlots }()
		for batch := range slices.Chunk(cells, previewBatch) {
			if l.ctx.Err() != nil {
				return
			}
			if err := e.previewBatch(l, batch); err != nil && l.ctx.Err() == nil && !l.isEnded() {
				e.log.Warn("make previews", "sandbox", l.record.Spec.ID, "error", err)
			}
		}
	})
}

func (e *Engine) previewBatch(l *live, cells []CellRecord) error {
	type wanted struct {
		Path string `json:"path"`
		Kind string `json:"kind"`
	}
	var request []wanted
	byPath := make(map[string]CellRecord)
	for _, c := range cells {
		kind, _, _ := strings.Cut(c.File.ContentType, "/")
		path := guestPath(c.File.Path)
		request = append(request, wanted{path, kind})
		byPath[path] = c
	}
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(l.ctx, previewTimeout)
	defer cancel()
	out, err := e.ask(ctx, l.handle, helper{name: "preview", source: previewSource, stdin: bytes.NewReader(body)})
	if err != nil {
		return err
	}
	for line := range bytes.Lines(out) {
		var made struct {
			Path     string            `json:"path"`
			Previews map[string][]byte `json:"previews"`
		}
		if err := json.Unmarshal(line, &made); err != nil {
			return fmt.Errorf("read the answer of the preview helper: %w", err)
		}
		if cell, ok := byPath[made.Path]; ok {
			if err := e.recordPreviews(cell, made.Previews); err != nil {
				return err
			}
		}
	}
	return nil
}

// previewKinds are the small pictures that there are.
var previewKinds = []string{"thumb", "strip", "wave"}

// recordPreviews keeps the small pictures of a cell, unless it was revised
// meanwhile. They come from a guest, and are only ever shown as pictures.
func (e *Engine) recordPreviews(of CellRecord, made map[string][]byte) error {
	k := of.ChatKey()
	var kinds []string
	for _, kind := range previewKinds {
		data := made[kind]
		if len(data) < 12 || len(data) > maxPreview || string(data[:4]) != "RIFF" || string(data[8:12]) != "WEBP" {
			continue
		}
		if err := e.previews.put(k, previewName(of.Ordinal, of.Revision, kind), data); err != nil {
			return err
		}
		kinds = append(kinds, kind)
	}
	if len(kinds) == 0 {
		return nil
	}
	kept := false
	err := e.update(k, func(tx Tx) error {
		c, err := tx.Cell(k, of.Ordinal)
		if errors.Is(err, ErrNotFound) || err == nil && (c.Key != of.Key || c.gone(now())) {
			return nil
		}
		if err != nil {
			return err
		}
		kept, c.Previews = true, kinds
		return errors.Join(tx.PutCell(c), emit(tx, k, cellEvent(api.EventCellPreview, c)))
	})
	if err != nil {
		return err
	}
	if !kept {
		return e.previews.remove(k, of.Ordinal, 0)
	}
	return e.previews.remove(k, of.Ordinal, of.Revision)
}
