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
		Name: "events", Usage: "follow what happens in a chat, or in all of them, until interrupted", ArgsUsage: " ",
		Description: "It begins with the first event, or after the one named with --after.\n\n" + examples(
			`sandboxctl events`, `sandboxctl --json events --chat spring --after 41`, `sandboxctl events --all`),
		Flags: []cli.Flag{
			chatFlag(), jsonFlag(), &cli.Uint64Flag{Name: "after", Usage: "begin after the event with this `ID`"},
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "of all the account's chats", DisableDefaultText: true},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("events takes no argument: name the chat with --chat")
			}
			err := followEvents(c)
			if errors.Is(err, context.Canceled) {
				return nil // the user has seen enough
			}
			return err
		},
	})
}

func followEvents(c *cli.Context) error {
	show := func(chat string, ev api.Event) error {
		_, err := fmt.Fprintf(c.App.Writer, "%s  %s%-16s  %s\n", ev.Time.Local().Format("15:04:05.000"), chat, ev.Type, eventText(ev))
		return err
	}
	if c.Bool("all") {
		return connect(c).AccountEvents(c.Context, c.Uint64("after"), func(ev api.AccountEvent) error {
			if wantJSON(c) {
				return printJSON(c, ev)
			}
			return show(ev.Chat+"  ", ev.Event)
		})
	}
	return connect(c).Events(c.Context, c.String("chat"), c.Uint64("after"), func(ev api.Event) error {
		if wantJSON(c) {
			return printJSON(c, ev)
		}
		return show("", ev)
	})
}

func eventText(ev api.Event) string {
	switch {
	case ev.Command != nil:
		return fmt.Sprintf("%s %s  %s", ev.Command.ID, ev.Command.State, what(*ev.Command))
	case ev.Cell != nil:
		return fmt.Sprintf("#%d %s %s", ev.Cell.Ordinal, ev.Cell.Pill, printable(ev.Cell.File.Name))
	case ev.Work != nil && ev.Work.Percent != nil:
		return fmt.Sprintf("%s %3.0f %%  %s", ev.Work.Command, *ev.Work.Percent, workText(*ev.Work))
	case ev.Work != nil:
		return fmt.Sprintf("%s  %s", ev.Work.Command, workText(*ev.Work))
	case ev.Progress != nil && ev.Progress.Total > 0:
		return fmt.Sprintf("%s %s: %s of %s", ev.Progress.Command, printable(ev.Progress.Input), humanize.IBytes(uint64(ev.Progress.Bytes)), humanize.IBytes(uint64(ev.Progress.Total)))
	case ev.Progress != nil:
		return fmt.Sprintf("%s %s: %s", ev.Progress.Command, printable(ev.Progress.Input), humanize.IBytes(uint64(ev.Progress.Bytes)))
	}
	return printable(ev.Message)
}
