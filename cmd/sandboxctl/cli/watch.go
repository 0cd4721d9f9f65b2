package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"image/png"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/image/webp"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
)

func watchCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "watch", Usage: "follow a chat as it happens, with small pictures of its cells where the terminal shows them", ArgsUsage: "[CHAT]",
		Description: "Kitty, Ghostty, WezTerm and iTerm2 show pictures; elsewhere cells are told in text. It begins now;\n" +
			"--after 0 begins with the first event.\n\n" + examples(
			`sandboxctl watch`, `sandboxctl watch spring --after 0`, `sandboxctl watch spring --pictures none`),
		Flags: []cli.Flag{
			chatFlag(), &cli.Uint64Flag{Name: "after", Usage: "begin after the event with this `ID`", DefaultText: "the latest"},
			&cli.StringFlag{Name: "pictures", Usage: "`HOW` the terminal shows them: auto, kitty, iterm or none", Value: "auto"},
		},
		Action: watch,
	})
}

func watch(c *cli.Context) error {
	chat := c.String("chat")
	if c.NArg() == 1 {
		chat = c.Args().First()
	} else if c.NArg() > 1 {
		return usagef("watch takes one chat: see `sandboxctl watch --help`")
	}
	show, err := pictureWriter(c)
	if err != nil {
		return err
	}
	cl := connect(c)
	after := c.Uint64("after")
	if !c.IsSet("after") {
		info, err := cl.Chat(c.Context, chat)
		if err != nil {
			return err
		}
		after = info.LastEvent
	}
	err = cl.Events(c.Context, chat, after, func(ev api.Event) error {
		if ev.Type == api.EventCellPreview && show == nil {
			return nil // only of use with pictures
		}
		if _, err := fmt.Fprintf(c.App.Writer, "%s  %s\n", ev.Time.Local().Format("15:04:05"), watchText(c, ev)); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		if ev.Type == api.EventCellPreview {
			return drawCell(c, cl, chat, *ev.Cell, show)
		}
		return nil
	})
	if errors.Is(err, context.Canceled) {
		return nil // the user has seen enough
	}
	return err
}

// watchText is an event in one line for people.
func watchText(c *cli.Context, ev api.Event) string {
	switch ev.Type {
	case api.EventCommandState:
		return stateText(c, *ev.Command) + "  " + what(*ev.Command)
	case api.EventCellPublished, api.EventCellPreview, api.EventCellPending, api.EventCellLost, api.EventCellExpired:
		state := strings.TrimPrefix(string(ev.Type), "cell.")
		return fmt.Sprintf("#%d %s %s  %s  %s", ev.Cell.Ordinal, pillText(c, c.App.Writer, ev.Cell.Pill), printable(ev.Cell.File.Name), state, mediaText(ev.Cell.File))
	}
	return string(ev.Type) + "  " + eventText(ev)
}

// drawCell draws a cell's thumbnail.
func drawCell(c *cli.Context, cl *client.Client, chat string, cell api.Cell, show func(io.Writer, []byte) error) error {
	if len(cell.Previews) == 0 {
		return nil
	}
	r, _, err := cl.OpenPreview(c.Context, chat, cell.Ordinal, cell.Previews[0])
	var gone *api.Error
	if errors.As(err, &gone) {
		return nil // it has expired or changed meanwhile
	}
	if err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(r, maxPicture))
	if err := errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("read a preview: %w", err)
	}
	picture, err := asPNG(body)
	if err != nil {
		return err
	}
	return show(c.App.Writer, picture)
}

// maxPicture bounds a preview, in bytes.
const maxPicture = 8 << 20

// pictureWriter finds out how the terminal shows pictures; nil if it does not.
func pictureWriter(c *cli.Context) (func(io.Writer, []byte) error, error) {
	switch how := c.String("pictures"); how {
	case "kitty":
		return writeKitty, nil
	case "iterm":
		return writeITerm, nil
	case "none":
		return nil, nil
	case "auto":
	default:
		return nil, usagef("pictures %q is not known: use auto, kitty, iterm or none", how)
	}
	if !isTerminal(c.App.Writer) {
		return nil, nil
	}
	program := os.Getenv("TERM_PROGRAM")
	switch {
	case os.Getenv("KITTY_WINDOW_ID") != "", strings.Contains(os.Getenv("TERM"), "kitty"), program == "ghostty":
		return writeKitty, nil
	case program == "iTerm.app", program == "WezTerm":
		return writeITerm, nil
	}
	return nil, nil
}

// maxSide bounds a preview's width and height, in pixels.
const maxSide = 4096

// asPNG re-encodes a preview: not every terminal takes WebP.
func asPNG(picture []byte) ([]byte, error) {
	size, err := webp.DecodeConfig(bytes.NewReader(picture))
	if err != nil {
		return nil, fmt.Errorf("decode a preview: %w", err)
	}
	if size.Width > maxSide || size.Height > maxSide {
		return nil, fmt.Errorf("decode a preview: %d×%d is no preview's size", size.Width, size.Height)
	}
	decoded, err := webp.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, fmt.Errorf("decode a preview: %w", err)
	}
	var encoded bytes.Buffer
	if err := png.Encode(&encoded, decoded); err != nil {
		return nil, fmt.Errorf("encode a preview: %w", err)
	}
	return encoded.Bytes(), nil
}

// writeITerm draws a PNG by iTerm2's OSC 1337.
func writeITerm(w io.Writer, picture []byte) error {
	_, err := fmt.Fprintf(w, "\x1b]1337;File=inline=1;size=%d;height=8:%s\a\n", len(picture), base64.StdEncoding.EncodeToString(picture))
	return err
}

// kittyChunk is the most that one escape of kitty's may carry, in bytes of base64.
const kittyChunk = 4096

// writeKitty draws a PNG by kitty's graphics protocol.
func writeKitty(w io.Writer, picture []byte) error {
	text := base64.StdEncoding.EncodeToString(picture)
	control := "a=T,f=100,r=8,"
	for len(text) > 0 {
		n := min(kittyChunk, len(text))
		more := 0
		if n < len(text) {
			more = 1
		}
		if _, err := fmt.Fprintf(w, "\x1b_G%sm=%d;%s\x1b\\", control, more, text[:n]); err != nil {
			return err
		}
		text, control = text[n:], ""
	}
	_, err := io.WriteString(w, "\n")
	return err
}
