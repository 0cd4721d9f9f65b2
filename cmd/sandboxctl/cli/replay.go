package cli

import (
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"mediasandbox/daemon/api"
)

func replayCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "replay", Usage: "make a cell again and say whether its bytes are the same", ArgsUsage: "'#N'",
		Description: "The command that made the cell runs once more, with the same inputs and environment, in a fresh sandbox\n" +
			"without a network. It exits with 0 when the file is identical, and with 1 when it differs or was not\n" +
			"made again.\n\n" + examples(`sandboxctl replay '#3'`, `sandboxctl --json replay '#3'`),
		Flags: []cli.Flag{chatFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			what, err := argument(c, "cell, such as '#3'")
			if err != nil {
				return err
			}
			cl := connect(c)
			cell, err := findCell(c, cl, c.String("chat"), what)
			if err != nil {
				return err
			}
			r, err := cl.Replay(c.Context, c.String("chat"), cell.Ordinal)
			if err != nil {
				return err
			}
			if wantJSON(c) {
				err = printJSON(c, r)
			} else {
				err = printReplay(c, r)
			}
			if err == nil && r.Verdict != api.VerdictIdentical {
				return exitStatus{exitDiffers, ""}
			}
			return err
		},
	})
}

func printReplay(c *cli.Context, r api.Replay) error {
	colour, text := red, "was not made again"
	switch r.Verdict {
	case api.VerdictIdentical:
		colour, text = green, fmt.Sprintf("is identical: %s, SHA-256 %s", humanize.IBytes(uint64(r.Original.Size)), r.Original.SHA256)
	case api.VerdictDiffers:
		text = fmt.Sprintf("differs from byte %d on (%d bytes then, %d now)", *r.FirstByte, r.Original.Size, r.Again.Size)
	}
	lines := []string{fmt.Sprintf("#%d %s", r.Cell, paint(c.App.Writer, colour, text))}
	switch {
	case r.FirstFrame != nil && r.PSNR != nil:
		lines = append(lines, fmt.Sprintf("   its pictures differ from number %d on: %.2f dB (of %d compared)", *r.FirstFrame, *r.PSNR, r.Frames))
	case r.Frames > 0:
		lines = append(lines, fmt.Sprintf("   its pictures are the same (%d compared)", r.Frames))
	}
	if r.Reason != "" {
		lines = append(lines, "   "+printable(r.Reason))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(c.App.Writer, line); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}
