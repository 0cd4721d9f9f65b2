// Package export writes a chat's cells as a ZIP archive: a folder named after
// the chat, in it one folder a label ("-" for none), and manifest.json. The
// same cells make the same bytes, and nothing is held in memory but the list.
//
// Start reading at Write; what a file is called is in names.go.
package export

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"time"

	"mediasandbox/daemon/api"
)

// Entry is one cell to export.
type Entry struct {
	Cell       api.Cell
	Provenance *api.Provenance
	// Missing says why the cell's file is not there; then it is only listed.
	Missing string
}

// Open reads a cell's file.
type Open func(ctx context.Context, ordinal int) (io.ReadCloser, error)

// Manifest is the archive's manifest.json.
type Manifest struct {
	Format int    `json:"format"` // 1
	Chat   string `json:"chat"`
	Title  string `json:"title,omitempty"`
	Cells  []Item `json:"cells"`
}

// Item is a cell in the manifest.
type Item struct {
	// Path is the file's in the archive; empty when it is missing.
	Path       string          `json:"path,omitempty"`
	Missing    string          `json:"missing,omitempty"`
	Cell       api.Cell        `json:"cell"`
	Provenance *api.Provenance `json:"provenance,omitempty"`
}

// FileName is what the archive of a chat is called.
func FileName(chat api.Chat) string { return folder(chat) + ".zip" }

// folder is the archive's only entry at its top.
func folder(chat api.Chat) string {
	if chat.Title == "" {
		return safe(chat.ID, "chat")
	}
	return safe(chat.Title, "chat")
}

// epoch is the oldest time that a ZIP archive can hold.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// Write writes the archive. A file that is not what its record says ends it
// with an error: a reader must not take what was written for a whole archive.
func Write(ctx context.Context, w io.Writer, chat api.Chat, entries []Entry, open Open) error {
	top := folder(chat)
	names := newNamer()
	m := Manifest{Format: 1, Chat: chat.ID, Title: chat.Title, Cells: []Item{}}
	z := zip.NewWriter(w)
	for _, e := range entries {
		item := Item{Missing: e.Missing, Cell: e.Cell, Provenance: e.Provenance}
		if e.Missing == "" {
			item.Path = names.name(path.Join(top, labelDir(e.Cell.Label)), e.Cell)
			if err := add(ctx, z, item.Path, e.Cell, open); err != nil {
				return fmt.Errorf("export cell #%d: %w", e.Cell.Ordinal, err)
			}
		}
		m.Cells = append(m.Cells, item)
	}
	if err := addManifest(z, path.Join(top, "manifest.json"), m); err != nil {
		return fmt.Errorf("export the manifest: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}

// create begins a file. It is stored as it is: media are compressed already.
func create(z *zip.Writer, name string, modified time.Time) (io.Writer, error) {
	if modified.Before(epoch) {
		modified = epoch
	}
	h := &zip.FileHeader{Name: name, Method: zip.Store, Modified: modified.UTC().Truncate(time.Second)}
	h.SetMode(0o644)
	return z.CreateHeader(h)
}

func add(ctx context.Context, z *zip.Writer, name string, c api.Cell, open Open) error {
	r, err := open(ctx, c.Ordinal)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := create(z, name, c.CreatedAt)
	if err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w, sum), r); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != c.File.SHA256 {
		return fmt.Errorf("the stored file has SHA-256 %s, its record says %s", got, c.File.SHA256)
	}
	return nil
}

func addManifest(z *zip.Writer, name string, m Manifest) error {
	w, err := create(z, name, epoch)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(m)
}
