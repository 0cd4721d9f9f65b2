package cli

import (
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"mediasandbox/daemon/api"
)

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print JSON, one object a line", DisableDefaultText: true}
}

func waitCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "wait", Usage: "follow a command to its end and exit as it did", ArgsUsage: "COMMAND",
		Description: "It prints the command's whole output, as run does. An interrupt cancels the command.\n\n" + examples(
			`id=$(sandboxctl run --detach -- sleep 30)`, `sandboxctl wait "$id"`),
		Flags: []cli.Flag{chatFlag(), turnFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			id, err := argument(c, "command")
			if err != nil {
				return err
			}
			cl, chat := connect(c), c.String("chat")
			cmd, err := cl.Command(c.Context, chat, id)
			if err != nil {
				return err
			}
			return followToEnd(c, cl, chat, cmd)
		},
	})
}

func logsCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "logs", Usage: "print a command's output", ArgsUsage: "COMMAND",
		Description: "stdout and stderr come as the command wrote them, each to its own stream here.\n\n" + examples(
			`sandboxctl logs x-01k…`, `sandboxctl logs -f x-01k… 2>errors.txt`),
		Flags: []cli.Flag{chatFlag(), jsonFlag(), &cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on until the command ends", DisableDefaultText: true}},
		Action: func(c *cli.Context) error {
			id, err := argument(c, "command")
			if err != nil {
				return err
			}
			cmd, err := connect(c).Output(c.Context, c.String("chat"), id, c.Bool("follow"), outputPrinter(c, nil))
			if err != nil || !wantJSON(c) {
				return err
			}
			return printJSON(c, cmd)
		},
	})
}

func killCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "kill", Usage: "cancel a command with all its processes, or signal its main process", ArgsUsage: "COMMAND",
		Description: examples(`sandboxctl kill x-01k…`, `sandboxctl kill -s INT x-01k…`),
		Flags:       []cli.Flag{chatFlag(), &cli.StringFlag{Name: "signal", Aliases: []string{"s"}, Usage: "send this `SIGNAL` (INT, TERM, …) instead of canceling"}},
		Action: func(c *cli.Context) error {
			id, err := argument(c, "command")
			if err != nil {
				return err
			}
			var sig syscall.Signal
			if name := c.String("signal"); name != "" {
				if sig = unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG")); sig == 0 {
					return usagef("signal %q is not known: write it like TERM", name)
				}
			}
			return connect(c).Kill(c.Context, c.String("chat"), id, int(sig))
		},
	})
}

func psCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "ps", Usage: "list the commands of a chat, or of all chats", ArgsUsage: " ",
		Description: examples(`sandboxctl ps`, `sandboxctl ps --all --chat spring`),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "chat", Aliases: []string{"C"}, Usage: "only of this `CHAT`", EnvVars: []string{chatEnv}},
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "those that have ended too", DisableDefaultText: true}, jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("ps takes no argument: name the chat with --chat")
			}
			cmds, err := commandsOf(c)
			if err != nil {
				return err
			}
			if wantJSON(c) {
				return printList(c, cmds)
			}
			t := newTable(c.App.Writer, "CHAT", "COMMAND", "STATE", "AGE", "RUNS", "WHAT")
			for _, cmd := range cmds {
				t.row(cmd.Chat, cmd.ID, stateText(c, cmd), age(cmd.CreatedAt), took(cmd), what(cmd))
			}
			return t.flush()
		},
	})
}

// commandsOf lists what ps shows.
func commandsOf(c *cli.Context) ([]api.Command, error) {
	cl := connect(c)
	chats := []string{c.String("chat")}
	if chats[0] == "" {
		list, err := cl.Chats(c.Context)
		if err != nil {
			return nil, err
		}
		chats = nil
		for _, chat := range list {
			chats = append(chats, chat.ID)
		}
	}
	var all []api.Command
	for _, chat := range chats {
		cmds, err := cl.Commands(c.Context, chat)
		if err != nil {
			return nil, err
		}
		for _, cmd := range cmds {
			if c.Bool("all") || !cmd.State.Ended() {
				all = append(all, cmd)
			}
		}
	}
	return all, nil
}

// took is how long a command ran, or has run.
func took(cmd api.Command) string {
	if cmd.StartedAt == nil {
		return "-"
	}
	end := time.Now()
	if cmd.EndedAt != nil {
		end = *cmd.EndedAt
	}
	return end.Sub(*cmd.StartedAt).Round(100 * time.Millisecond).String()
}

// what is one line that says what a command does.
func what(cmd api.Command) string {
	text := strings.Join(cmd.Argv, " ")
	switch {
	case cmd.Shell != "":
		text = cmd.Shell
	case cmd.Script != "":
		text = "python3 " + cmd.Script + " " + strings.Join(cmd.Args, " ")
	case cmd.Python != "":
		text = "python3: " + cmd.Python
	}
	text = strings.Join(strings.Fields(text), " ")
	const most = 60
	if r := []rune(text); len(r) > most {
		text = string(r[:most-1]) + "…"
	}
	return printable(text)
}
