package cli

import (
	"github.com/urfave/cli/v2"

	"mediasandbox/daemon/api"
)

func accountCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "account", Usage: "show or change the account's settings", ArgsUsage: " ",
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
			return t.flush()
		},
	})
}
