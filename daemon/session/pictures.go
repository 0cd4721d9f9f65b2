package session

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"mediasandbox/daemon/api"
)

//go:embed framediff.py
var framediffSource []byte

// comparePictures says where the pictures of two media files begin to differ,
// as far as they can be read.
func (e *Engine) comparePictures(ctx context.Context, run *replayed, cell CellRecord, file string, res *api.Replay) error {
	kind, _, _ := strings.Cut(cell.File.ContentType, "/")
	if kind != "image" && kind != "video" {
		return nil
	}
	original := newID(".original-")
	if err := e.giveCell(ctx, run, cell, original); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, e.cfg.MaxTimeout)
	defer cancel()
	out, err := e.ask(ctx, run.handle, helper{
		name: "framediff", source: framediffSource, args: []string{"/inputs/" + original, "/outputs/" + file},
	})
	if err != nil {
		e.log.Warn("compare pictures of a replay", "cell", cell.Ordinal, "chat", cell.Chat, "error", err)
		return nil // that the bytes differ is known
	}
	var found struct {
		Frames int      `json:"frames"`
		First  *int     `json:"first"`
		PSNR   *float64 `json:"psnr"`
	}
	if err := json.Unmarshal(out, &found); err != nil || found.Frames < 0 || found.PSNR != nil && math.Abs(*found.PSNR) > 1000 {
		e.log.Warn("compare pictures of a replay: the answer makes no sense", "cell", cell.Ordinal, "chat", cell.Chat, "error", err)
		return nil
	}
	res.Frames, res.FirstFrame, res.PSNR = found.Frames, found.First, found.PSNR
	return nil
}

// giveCell puts a cell's file below the /inputs of a replay's sandbox.
func (e *Engine) giveCell(ctx context.Context, run *replayed, cell CellRecord, name string) error {
	r := &blobReader{ctx: ctx, blobs: e.cfg.Blobs, key: cell.Key, size: cell.File.Size}
	_, _, err := writeFile(run.spec.Disk, location{"inputs", name}, r)
	return errors.Join(err, r.Close())
}
