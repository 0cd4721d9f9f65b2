package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
)

func cellsCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "cells", Usage: "list a chat's cells, or show how one was made", ArgsUsage: "['#N']",
		Description: examples(`sandboxctl cells`, `sandboxctl cells --type video --search drop`, `sandboxctl cells '#3'`,
			`sandboxctl --json cells --chat spring`),
		Flags: append(cellQueryFlags(), chatFlag(), jsonFlag()),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return showCell(c)
			}
			query, err := cellQuery(c)
			if err != nil {
				return err
			}
			cells, err := connect(c).FindCells(c.Context, c.String("chat"), query)
			if err != nil {
				return err
			}
			if wantJSON(c) {
				return printList(c, cells)
			}
			return printCells(c, c.App.Writer, cells)
		},
	})
}

// cellQueryFlags pick cells.
func cellQueryFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "pill", Usage: "only of this `PILL`"},
		&cli.StringFlag{Name: "type", Usage: "only of this media `TYPE`, such as video or image/png"},
		&cli.StringFlag{Name: "label", Usage: "only of this `LABEL`"},
		&cli.StringFlag{Name: "search", Aliases: []string{"q"}, Usage: "only with this `TEXT` in the name, path, label or type"},
	}
}

func cellQuery(c *cli.Context) (client.CellQuery, error) {
	q := client.CellQuery{Pill: api.Pill(c.String("pill")), Type: c.String("type"), Label: c.String("label"), Text: c.String("search")}
	if q.Pill != "" && !slices.Contains(api.Pills(), q.Pill) {
		return q, usagef("pill %q is not known: use one of %v", q.Pill, api.Pills())
	}
	return q, nil
}

// showCell prints one cell and how it was made.
func showCell(c *cli.Context) error {
	what, err := argument(c, "cell, such as '#3'")
	if err != nil {
		return err
	}
	cl, chat := connect(c), c.String("chat")
	cell, err := findCell(c, cl, chat, what)
	if err != nil {
		return err
	}
	made, err := cl.Provenance(c.Context, chat, cell.Ordinal)
	var known *api.Error
	if err != nil && !(errors.As(err, &known) && known.Code == api.CodeCommandNotFound) {
		return err
	}
	if wantJSON(c) {
		return printJSON(c, struct {
			api.Cell
			Provenance *api.Provenance `json:"provenance,omitempty"`
		}{cell, provenanceOrNil(made)})
	}
	if err := printCells(c, c.App.Writer, []api.Cell{cell}); err != nil {
		return err
	}
	return printProvenance(c, cell, made)
}

func provenanceOrNil(p api.Provenance) *api.Provenance {
	if p.Command == "" {
		return nil
	}
	return &p
}

func printProvenance(c *cli.Context, cell api.Cell, p api.Provenance) error {
	t := newTable(c.App.Writer)
	t.row("sha256", cell.File.SHA256)
	if p.Command != "" {
		t.row("command", p.Command+": "+what(api.Command{Argv: p.Argv, Shell: p.Shell, Python: p.Python, Script: p.Script, Args: p.Args}))
		t.row("in", fmt.Sprintf("%s, %g CPUs, network %s", printable(p.Dir), p.CPUs, p.Network))
		t.row("image", p.Image)
		t.row("by", "media-sandbox "+p.Product)
	}
	for _, in := range p.Inputs {
		from := ""
		if in.Cell > 0 {
			from = fmt.Sprintf(" (cell #%d)", in.Cell)
		}
		t.row("input", fmt.Sprintf("%s%s, %s, sha256 %s", printable(in.Name), from, humanize.IBytes(uint64(in.Size)), in.SHA256))
	}
	return t.flush()
}

// printCells prints cells as a table, and nothing when there are none.
func printCells(c *cli.Context, w io.Writer, cells []api.Cell) error {
	if len(cells) == 0 {
		return nil
	}
	t := newTable(w, "CELL", "PILL", "NAME", "SIZE", "WHAT", "URL")
	for _, cell := range cells {
		name := printable(cell.File.Name)
		if cell.Revision > 1 {
			name += fmt.Sprintf(" (revision %d)", cell.Revision)
		}
		url := cell.File.URL
		if cell.State == api.CellPending {
			url = "(uploading)"
		}
		t.row("#"+strconv.Itoa(cell.Ordinal), pillText(c, w, cell.Pill), name, humanize.IBytes(uint64(cell.File.Size)), mediaText(cell.File), url)
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, cell := range cells {
		if cell.Note != "" {
			fmt.Fprintf(w, "#%d: %s\n", cell.Ordinal, printable(cell.Note))
		}
	}
	return nil
}

// mediaText says what a media file is in a few words.
func mediaText(f api.File) string {
	var parts []string
	if f.Width > 0 {
		parts = append(parts, fmt.Sprintf("%d×%d", f.Width, f.Height))
	}
	if f.Duration > 0 {
		parts = append(parts, fmt.Sprintf("%.2f s", f.Duration))
	}
	if f.VideoCodec != "" {
		parts = append(parts, f.VideoCodec)
	}
	if f.AudioCodec != "" {
		parts = append(parts, f.AudioCodec)
	}
	if len(parts) == 0 {
		return f.ContentType
	}
	return strings.Join(parts, " ")
}

// age is how long ago something was.
func age(t time.Time) string {
	d := time.Since(t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
