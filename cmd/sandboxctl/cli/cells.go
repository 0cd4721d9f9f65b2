package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"mediasandbox/daemon/api"
)

func cellsCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "cells", Usage: "list a chat's cells", ArgsUsage: " ",
		Description: examples(`sandboxctl cells`, `sandboxctl --json cells --chat spring`),
		Flags:       []cli.Flag{chatFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("cells takes no argument: name the chat with --chat")
			}
			cells, err := connect(c).Cells(c.Context, c.String("chat"))
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
