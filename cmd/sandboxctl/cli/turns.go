package cli

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

// turnFlag names the turn that a verb's work or waiting belongs to.
func turnFlag() cli.Flag {
	return &cli.StringFlag{Name: "turn", Aliases: []string{"T"}, Usage: "the `TURN` it belongs to; opened if it is new"}
}

func turnsCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "turns", Usage: "list a chat's turns with what is left of their work budgets, or open the next one",
		Description: examples(`sandboxctl turns --chat edit`, `sandboxctl turns new --chat edit`),
		Flags:       []cli.Flag{chatFlag(), jsonFlag()},
		Action:      listTurns,
		Subcommands: []*cli.Command{
			verb(&cli.Command{
				Name: "new", Usage: "open the chat's next turn, which closes the one before it", ArgsUsage: "[ID]",
				Description: examples(`sandboxctl turns new`, `sandboxctl turns new t7 --chat edit`),
				Flags:       []cli.Flag{chatFlag(), jsonFlag()},
				Action: func(c *cli.Context) error {
					if c.NArg() > 1 {
						return usagef("give at most one id: see `sandboxctl turns new --help`")
					}
					turn, err := connect(c).OpenTurn(c.Context, c.String("chat"), c.Args().First())
					if err != nil {
						return err
					}
					if wantJSON(c) {
						return printJSON(c, turn)
					}
					_, err = fmt.Fprintln(c.App.Writer, turn.ID)
					return err
				},
			}),
		},
	})
}

func listTurns(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("turns knows no %q: see `sandboxctl turns --help`", c.Args().First())
	}
	turns, err := connect(c).Turns(c.Context, c.String("chat"))
	if err != nil {
		return err
	}
	if wantJSON(c) {
		return printList(c, turns)
	}
	t := newTable(c.App.Writer, "TURN", "AGE", "STATE", "USED", "LEFT")
	for _, turn := range turns {
		state := "open"
		if turn.ClosedAt != nil {
			state = "closed"
		}
		t.row(turn.ID, age(turn.OpenedAt), state, fmt.Sprintf("%.1f s", turn.Used), fmt.Sprintf("%.1f s", turn.Left))
	}
	return t.flush()
}
