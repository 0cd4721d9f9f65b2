package cli

import (
	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"mediasandbox/daemon/api"
)

func accountCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "account", Usage: "show the account's settings and what it has used, or change them", ArgsUsage: " ",
		Description: retentionHelp() + examples(`sandboxctl account`, `sandboxctl account --retention 30d`),
		Flags:       []cli.Flag{jsonFlag(), retentionFlag("for chats that say nothing else")},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("account takes no argument: operators name another with `sandboxctl --account`")
			}
			cl := connect(c)
			settings, err := cl.Settings(c.Context)
			if c.IsSet("retention") {
				settings, err = cl.ChangeSettings(c.Context, api.ChangeSettings{Retention: api.Retention(c.String("retention"))})
			}
			if err != nil {
				return err
			}
			if wantJSON(c) {
				return printJSON(c, settings)
			}
			t := newTable(c.App.Writer)
			t.row("account", settings.Account)
			t.row("retention", string(settings.Retention))
			t.row("stored", ofLimit(settings.Stored, settings.StoredLimit))
			t.row("published today", ofLimit(settings.Today, settings.TodayLimit))
			return t.flush()
		},
	})
}

// ofLimit says how much of a limit is used, if there is one.
func ofLimit(used, limit int64) string {
	if limit == 0 {
		return humanize.IBytes(uint64(used))
	}
	return humanize.IBytes(uint64(used)) + " of " + humanize.IBytes(uint64(limit))
}
