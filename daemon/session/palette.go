package session

import (
	"strconv"
	"strings"

	"mediasandbox/daemon/api"
)

// CellFilter picks cells of a chat's palette. An empty field matches all.
type CellFilter struct {
	Pill api.Pill
	// Type is a media type, or the part of one before the slash.
	Type  string
	Label string
	// Text is looked for in names, paths, labels, types and "#ordinal",
	// whatever its case.
	Text string
}

func (f CellFilter) matches(c api.Cell) bool {
	kind, _, _ := strings.Cut(c.File.ContentType, ";")
	group, _, _ := strings.Cut(kind, "/")
	switch {
	case f.Pill != "" && f.Pill != c.Pill,
		f.Type != "" && f.Type != kind && f.Type != group,
		f.Label != "" && f.Label != c.Label:
		return false
	}
	text := strings.Join([]string{c.File.Name, c.File.Path, c.Label, kind, string(c.Pill), "#" + strconv.Itoa(c.Ordinal)}, "\n")
	return strings.Contains(strings.ToLower(text), strings.ToLower(f.Text))
}

// Cells lists a chat's cells by ordinal.
func (e *Engine) Cells(k ChatKey, filter CellFilter) ([]api.Cell, error) {
	if _, err := e.chatRecord(k); err != nil {
		return nil, err
	}
	var recs []CellRecord
	err := e.cfg.Store.View(func(tx Tx) (err error) {
		recs, err = tx.Cells(k)
		return err
	})
	cells := make([]api.Cell, 0, len(recs))
	for _, rec := range recs {
		if filter.matches(rec.Cell) && !rec.gone(now()) {
			cells = append(cells, e.wireCell(rec))
		}
	}
	return cells, err
}
