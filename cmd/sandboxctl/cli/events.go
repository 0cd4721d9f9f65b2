package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"mediasandbox/daemon/api"
)

func eventsCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "events", Usage: "follow what happens in a chat until interrupted", ArgsUsage: " ",
		Description: "It begins with the chat's first event, or after the one named with --after.\n\n" + examples(
			`sandboxctl events`, `sandboxctl --json events --chat spring --after 41`),
		Flags: []cli.Flag{chatFlag(), jsonFlag(), &cli.Uint64Flag{Name: "after", Usage: "begin after the event with this `ID`"}},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("events takes no argument: name the chat with --chat")
			}
			err := connect(c).Events(c.Context, c.String("chat"), c.Uint64("after"), func(ev api.Event) error {
				if wantJSON(c) {
					return printJSON(c, ev)
				}
				_, err := fmt.Fprintf(c.App.Writer, "%s  %-16s  %s\n", ev.Time.Local().Format("15:04:05.000"), ev.Type, eventText(ev))
				return err
			})
			if errors.Is(err, context.Canceled) {
				return nil // the user has seen enough
			}
			return err
		},
	})
}

func eventText(ev api.Event) string {
	switch {
	case ev.Command != nil:
		return fmt.Sprintf("%s %s  %s", ev.Command.ID, ev.Command.State, what(*ev.Command))
	case ev.Cell != nil:
		return fmt.Sprintf("#%d %s %s", ev.Cell.Ordinal, ev.Cell.Pill, printable(ev.Cell.File.Name))
	case ev.Progress != nil && ev.Progress.Total > 0:
		return fmt.Sprintf("%s %s: %s of %s", ev.Progress.Command, printable(ev.Progress.Input), humanize.IBytes(uint64(ev.Progress.Bytes)), humanize.IBytes(uint64(ev.Progress.Total)))
	case ev.Progress != nil:
		return fmt.Sprintf("%s %s: %s", ev.Progress.Command, printable(ev.Progress.Input), humanize.IBytes(uint64(ev.Progress.Bytes)))
	}
	return printable(ev.Message)
}
