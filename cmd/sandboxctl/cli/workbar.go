package cli

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/progress"
)

// barSteps is how finely a bar shows a percentage.
const barSteps = 1000

// workBar shows on a terminal how far a command's media work is, below what the
// command prints. The lines that tell it are not printed beside it.
type workBar struct {
	terminal io.Writer
	reader   *progress.Reader
	bar      *progressbar.ProgressBar
	held     map[string][]byte // begun lines that may be for the bar
	within   map[string]bool   // whether the stream's line was begun on the terminal
}

// newWorkBar returns nil where no bar belongs: in JSON, without a terminal, and
// for a command that has the terminal to itself.
func newWorkBar(c *cli.Context, cmd api.Command) *workBar {
	if wantJSON(c) || cmd.TTY || !isTerminal(c.App.ErrWriter) {
		return nil
	}
	return &workBar{
		terminal: c.App.ErrWriter, reader: progress.New(append([]string{cmd.Shell, cmd.Python}, cmd.Argv...)),
		held: make(map[string][]byte), within: make(map[string]bool),
	}
}

// pass takes a chunk of output and gives what is to be printed to w.
func (b *workBar) pass(chunk api.OutputChunk, w io.Writer) error {
	if b == nil {
		_, err := w.Write(chunk.Data)
		return err
	}
	changed := b.reader.Write(chunk.Stream, chunk.Offset, chunk.Data)
	text := b.printed(chunk.Stream, chunk.Data)
	if len(text) > 0 {
		b.clear()
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	if !changed && len(text) == 0 {
		return nil
	}
	if p, ok := b.reader.Last(); ok && !b.within["stdout"] && !b.within["stderr"] {
		b.draw(p)
	}
	return nil
}

// printed returns what of a stream's next bytes is not for the bar.
func (b *workBar) printed(stream string, data []byte) []byte {
	data = append(b.held[stream], data...)
	b.held[stream] = nil
	var out []byte
	for len(data) > 0 {
		end := bytes.IndexAny(data, "\r\n")
		if end < 0 {
			if !b.within[stream] && mayBeForBar(data) {
				b.held[stream] = data
				return out
			}
			b.within[stream] = true
			return append(out, data...)
		}
		if b.within[stream] || !forBar(data[:end], data[end]) {
			out = append(out, data[:end+1]...)
		}
		b.within[stream] = false
		data = data[end+1:]
	}
	return out
}

// reportPrefixes begin lines that tell progress and nothing else.
var reportPrefixes = []string{"@progress ", "@hf-progress "}

// statisticsPrefixes begin ffmpeg's line of statistics, which overwrites itself.
var statisticsPrefixes = []string{"frame=", "size="}

func forBar(line []byte, end byte) bool {
	return hasAnyPrefix(line, reportPrefixes) || (end == '\r' && hasAnyPrefix(line, statisticsPrefixes))
}

func hasAnyPrefix(text []byte, prefixes []string) bool {
	for _, p := range prefixes {
		if bytes.HasPrefix(text, []byte(p)) {
			return true
		}
	}
	return false
}

// maxHeld bounds what is held back of a line, in bytes.
const maxHeld = 4 << 10

func mayBeForBar(begun []byte) bool {
	if len(begun) > maxHeld {
		return false
	}
	for _, p := range append(reportPrefixes, statisticsPrefixes...) {
		if n := min(len(p), len(begun)); string(begun[:n]) == p[:n] {
			return true
		}
	}
	return false
}

// draw shows the bar as it is now: a spinner while no percentage is known.
func (b *workBar) draw(p api.CommandProgress) {
	steps := -1
	if p.Percent != nil {
		steps = barSteps
	}
	if b.bar == nil || b.bar.GetMax() != steps {
		b.bar = progressbar.NewOptions(steps,
			progressbar.OptionSetWriter(b.terminal), progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false),
			progressbar.OptionShowDescriptionAtLineEnd(), progressbar.OptionSetWidth(30))
	}
	b.bar.Describe(workText(p))
	if p.Percent != nil {
		_ = b.bar.Set(min(int(*p.Percent/100*barSteps), barSteps-1)) // only drawing; the last step would end the line
	}
}

func (b *workBar) clear() {
	if b.bar != nil {
		_ = b.bar.Clear()
	}
}

// end removes the bar, and prints what was held back.
func (b *workBar) end(c *cli.Context) error {
	if b == nil {
		return nil
	}
	b.clear()
	for stream, text := range b.held {
		if _, err := streamOf(c, stream).Write(text); err != nil {
			return err
		}
	}
	return nil
}

// workText says how far media work is, beside a bar.
func workText(p api.CommandProgress) string {
	var parts []string
	if p.Stage != "" {
		parts = append(parts, printable(p.Stage))
	}
	if p.Frame > 0 {
		parts = append(parts, fmt.Sprintf("frame %d", p.Frame))
	}
	if p.Speed > 0 {
		parts = append(parts, fmt.Sprintf("%.2g×", p.Speed))
	}
	if p.ETA != nil {
		parts = append(parts, (time.Duration(math.Ceil(*p.ETA))*time.Second).String()+" left")
	}
	return strings.Join(parts, ", ")
}
