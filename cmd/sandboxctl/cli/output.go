package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	pretty "github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"mediasandbox/daemon/api"
)

// table prints aligned columns; it knows how wide colours and wide letters are.
type table struct {
	w     io.Writer
	inner pretty.Writer
}

func newTable(w io.Writer, header ...string) table {
	t := table{w, pretty.NewWriter()}
	style := pretty.StyleDefault
	style.Options = pretty.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	t.inner.SetStyle(style)
	t.inner.SuppressTrailingSpaces()
	if len(header) > 0 {
		t.inner.AppendHeader(cellsOf(header))
	}
	return t
}

func cellsOf(texts []string) pretty.Row {
	row := make(pretty.Row, len(texts))
	for i, s := range texts {
		row[i] = s
	}
	return row
}

func (t table) row(cells ...string) { t.inner.AppendRow(cellsOf(cells)) }

func (t table) flush() error {
	if _, err := io.WriteString(t.w, t.inner.Render()+"\n"); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// printable makes text that a guest chose harmless for a terminal.
func printable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
		return s
	}
	return strconv.Quote(s)
}

// isTerminal tells whether w is one.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// The colours, as SGR codes.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
	purple = "35"
	cyan   = "36"
)

// paint colours text on a terminal, unless NO_COLOR asks for none.
func paint(w io.Writer, colour, s string) string {
	if os.Getenv("NO_COLOR") != "" || !isTerminal(w) {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

func pillText(_ *cli.Context, w io.Writer, p api.Pill) string {
	colours := map[api.Pill]string{
		api.PillVideoEdit: purple, api.PillFrameExtract: cyan, api.PillImageEdit: blue, api.PillAudioEdit: yellow, api.PillFile: green,
	}
	return paint(w, colours[p], string(p))
}

func stateText(c *cli.Context, cmd api.Command) string {
	colour := red
	switch cmd.State {
	case api.StateSucceeded:
		colour = green
	case api.StateQueued, api.StateRunning:
		colour = yellow
	}
	text := string(cmd.State)
	if cmd.ExitCode != nil && *cmd.ExitCode != 0 {
		text += " (" + strconv.Itoa(*cmd.ExitCode) + ")"
	}
	return paint(c.App.Writer, colour, text)
}

// progressFrom is the size in bytes from which a transfer shows its progress.
const progressFrom = 8 << 20

// transferBar wraps a transfer with a bar on a terminal; done ends it.
func transferBar(c *cli.Context, r io.Reader, size int64, name string) (io.Reader, func()) {
	if size < progressFrom || wantJSON(c) || !isTerminal(c.App.ErrWriter) {
		return r, func() {}
	}
	bar := progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(c.App.ErrWriter), progressbar.OptionSetDescription(printable(name)),
		progressbar.OptionShowBytes(true), progressbar.OptionClearOnFinish())
	reader := progressbar.NewReader(r, bar)
	return &reader, func() { _ = bar.Finish() } // only drawing
}
