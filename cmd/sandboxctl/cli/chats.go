package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"mediasandbox/daemon/api"
)

func chatsCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "chats", Usage: "list, make and delete chats", ArgsUsage: " ",
		Description: "A chat has files, commands, cells and at most one sandbox of its own. The chat \"default\" is\n" +
			"made when it is first used.\n\n" + examples(
			`sandboxctl chats`, `sandboxctl chats new spring`, `sandboxctl run --chat spring -- ls /inputs`, `sandboxctl chats rm spring`),
		Flags:  []cli.Flag{jsonFlag()},
		Action: listChats,
		Subcommands: []*cli.Command{
			verb(&cli.Command{
				Name: "new", Usage: "make a chat and print its id", ArgsUsage: "[ID]",
				Description: examples(`sandboxctl chats new`, `sandboxctl chats new spring --title "Spring campaign" --net none`),
				Flags: []cli.Flag{
					jsonFlag(),
					&cli.StringFlag{Name: "title", Usage: "a `TITLE` for people"}, retentionFlag("the account's own by default"),
					&cli.StringFlag{Name: "net", Usage: "what its sandboxes may reach: `MODE` public, allowlist or none", Value: "public"},
				},
				Action: newChat,
			}),
			verb(&cli.Command{
				Name: "set", Usage: "change a chat's title, and how long its cells are kept", ArgsUsage: "ID",
				Description: "Cells that are published already keep the expiry that they have.\n" + retentionHelp() + examples(
					`sandboxctl chats set spring --retention 30d`, `sandboxctl chats set spring --retention account --title "Spring"`),
				Flags:  []cli.Flag{jsonFlag(), &cli.StringFlag{Name: "title", Usage: "a `TITLE` for people"}, retentionFlag("or account, for the account's own")},
				Action: setChat,
			}),
			verb(&cli.Command{
				Name: "rm", Usage: "delete a chat with its sandbox, cells and files", ArgsUsage: "ID",
				Description: examples(`sandboxctl chats rm spring`),
				Action: func(c *cli.Context) error {
					id, err := argument(c, "chat")
					if err != nil {
						return err
					}
					return connect(c).DeleteChat(c.Context, id)
				},
			}),
		},
	})
}

// retentionFlag says how long cells are kept.
func retentionFlag(more string) cli.Flag {
	return &cli.StringFlag{Name: "retention", Usage: "keep cells this `LONG`, 1h to 1y, forever or immediate; " + more}
}

// retentionHelp lists what retentionFlag takes.
func retentionHelp() string {
	names := make([]string, 0, len(api.Retentions()))
	for _, r := range api.Retentions() {
		names = append(names, string(r))
	}
	return "Cells are kept " + strings.Join(names, ", ") + ".\n\n"
}

func setChat(c *cli.Context) error {
	id, err := argument(c, "chat")
	if err != nil {
		return err
	}
	var req api.ChangeChat
	if c.IsSet("title") {
		title := c.String("title")
		req.Title = &title
	}
	if c.IsSet("retention") {
		r := api.Retention(c.String("retention"))
		req.Retention = &r
	}
	if req == (api.ChangeChat{}) {
		return usagef("nothing is to change: see `sandboxctl chats set --help`")
	}
	chat, err := connect(c).ChangeChat(c.Context, id, req)
	if err != nil || !wantJSON(c) {
		return err
	}
	return printJSON(c, chat)
}

func listChats(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("chats knows no %q: see `sandboxctl chats --help`", c.Args().First())
	}
	chats, err := connect(c).Chats(c.Context)
	if err != nil {
		return err
	}
	if wantJSON(c) {
		return printList(c, chats)
	}
	t := newTable(c.App.Writer, "CHAT", "TITLE", "NETWORK", "CELLS", "AGE", "SANDBOX")
	for _, chat := range chats {
		t.row(chat.ID, printable(chat.Title), chat.Network, strconv.Itoa(chat.Cells), age(chat.CreatedAt), sandboxText(chat.Sandbox))
	}
	return t.flush()
}

func sandboxText(s *api.Sandbox) string {
	switch {
	case s == nil:
		return "none"
	case s.ExpiresAt == nil:
		return "busy"
	}
	return fmt.Sprintf("idle, removed in %s", max(0, time.Until(*s.ExpiresAt)).Round(time.Second))
}

func newChat(c *cli.Context) error {
	if c.NArg() > 1 {
		return usagef("give at most one id: see `sandboxctl chats new --help`")
	}
	chat, err := connect(c).CreateChat(c.Context, api.NewChat{ID: c.Args().First(), Title: c.String("title"), Network: c.String("net"), Retention: api.Retention(c.String("retention"))})
	if err != nil {
		return err
	}
	if wantJSON(c) {
		return printJSON(c, chat)
	}
	_, err = fmt.Fprintln(c.App.Writer, chat.ID)
	return err
}
