package mcp

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mediasandbox/daemon/api"
)

// maxTail is how much of a stream's end the model is given, in bytes.
const maxTail = 8 << 10

// tail keeps the end of a stream.
type tail struct {
	text    []byte
	dropped int64
}

func (t *tail) add(data []byte) {
	t.text = append(t.text, data...)
	if over := len(t.text) - maxTail; over > 0 {
		t.dropped += int64(over)
		t.text = append(t.text[:0], t.text[over:]...)
	}
}

// block shows the stream under its name; progress lines are for others.
func (t *tail) block(name string) string {
	var kept []string
	for line := range bytes.Lines(t.text) {
		if !bytes.HasPrefix(line, []byte("@progress ")) {
			kept = append(kept, string(line))
		}
	}
	text := strings.TrimRight(strings.ToValidUTF8(strings.Join(kept, ""), "\uFFFD"), "\n")
	if text == "" {
		return ""
	}
	if t.dropped > 0 {
		name += fmt.Sprintf(", its last %s", humanize.IBytes(uint64(len(t.text))))
	}
	return fmt.Sprintf("\n\n%s:\n%s", name, text)
}

// result tells the model how a command ended, or that it goes on.
func (s *server) result(ctx context.Context, cmd api.Command, out, errs tail) (*sdk.CallToolResult, error) {
	var b strings.Builder
	ended := cmd.State.Ended()
	fmt.Fprintf(&b, "command %s %s", cmd.ID, cmd.State)
	if cmd.Reason != "" {
		fmt.Fprintf(&b, ": %s", cmd.Reason)
	}
	if !ended {
		fmt.Fprintf(&b, ". It goes on. Call wait with this id")
		if cmd.Left <= 0 {
			b.WriteString(" in the next turn: this one's budget of work is spent")
		}
		b.WriteByte('.')
		if cmd.Progress != nil {
			fmt.Fprintf(&b, "\nprogress: %s", progressText(*cmd.Progress))
		}
	}
	fmt.Fprintf(&b, "\nturn's budget left: %.0f s", math.Max(cmd.Left, 0))
	if cmd.FilesLost {
		b.WriteString("\nnote: the earlier sandbox was gone, and its files with it; cells stay.")
	}
	b.WriteString(out.block("stdout"))
	b.WriteString(errs.block("stderr"))
	if len(cmd.Cells) > 0 {
		b.WriteString("\n\ncells:")
		for _, c := range cmd.Cells {
			b.WriteString("\n" + cellText(c))
		}
	}
	for _, skipped := range cmd.Skipped {
		fmt.Fprintf(&b, "\nnot published: /outputs/%s: %s", skipped.Path, skipped.Reason)
	}
	res := said("%s", b.String())
	res.IsError = ended && cmd.State != api.StateSucceeded
	if ended {
		res.Content = append(res.Content, s.pictures(ctx, cmd.Cells)...)
	}
	return res, nil
}

// cellText is a cell in one line.
func cellText(c api.Cell) string {
	f := c.File
	parts := []string{fmt.Sprintf("#%d %s %s", c.Ordinal, c.Pill, printable(f.Name)), f.ContentType, humanize.IBytes(uint64(f.Size))}
	if f.Width > 0 {
		parts = append(parts, fmt.Sprintf("%d×%d", f.Width, f.Height))
	}
	if f.Duration > 0 {
		parts = append(parts, fmt.Sprintf("%.2f s", f.Duration))
	}
	if f.FPS > 0 {
		parts = append(parts, fmt.Sprintf("%.4g fps", f.FPS))
	}
	if f.HasAlpha {
		parts = append(parts, "with alpha")
	}
	if c.Label != "" {
		parts = append(parts, "label "+printable(c.Label))
	}
	if c.State != api.CellPublished {
		parts = append(parts, string(c.State))
	}
	if c.Note != "" {
		parts = append(parts, "note: "+printable(c.Note))
	}
	return strings.Join(parts, ", ")
}

// printable quotes a name that could be taken for something else.
func printable(name string) string {
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Sprintf("%q", name)
	}
	return name
}

func progressText(p api.CommandProgress) string {
	var parts []string
	if p.Percent != nil {
		parts = append(parts, fmt.Sprintf("%.0f %%", *p.Percent))
	}
	if p.Stage != "" {
		parts = append(parts, p.Stage)
	}
	if p.Frame > 0 {
		parts = append(parts, fmt.Sprintf("frame %d", p.Frame))
	}
	if p.Speed > 0 {
		parts = append(parts, fmt.Sprintf("%.2g× real time", p.Speed))
	}
	if p.ETA != nil {
		parts = append(parts, fmt.Sprintf("%.0f s left", math.Ceil(*p.ETA)))
	}
	return strings.Join(parts, ", ")
}

// status tells what runs and what is left.
func (s *server) status(ctx context.Context) (*sdk.CallToolResult, error) {
	chat, err := s.cfg.Client.Chat(ctx, s.cfg.Chat)
	if err != nil {
		return nil, err
	}
	commands, err := s.cfg.Client.Commands(ctx, s.cfg.Chat)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "chat %s, %d cells, network %s", chat.ID, chat.Cells, chat.Network)
	if len(chat.Skills) > 0 {
		fmt.Fprintf(&b, ", skills %s below /skills", strings.Join(chat.Skills, ", "))
	}
	if chat.Turn != nil {
		fmt.Fprintf(&b, "\nturn's budget left: %.0f of %.0f s", chat.Turn.Left, chat.Turn.Budget)
	}
	switch {
	case chat.Sandbox == nil:
		b.WriteString("\nno sandbox lives: the next command begins in a new one, without earlier files")
	case chat.Sandbox.ExpiresAt != nil:
		fmt.Fprintf(&b, "\nthe sandbox and its files are removed in %.0f s unless something runs", time.Until(*chat.Sandbox.ExpiresAt).Seconds())
	default:
		b.WriteString("\nthe sandbox lives")
	}
	for _, c := range commands {
		if c.State.Ended() {
			continue
		}
		fmt.Fprintf(&b, "\ncommand %s %s", c.ID, c.State)
		if c.Progress != nil {
			fmt.Fprintf(&b, ", %s", progressText(*c.Progress))
		}
	}
	return said("%s", b.String()), nil
}
