package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
)

func shellCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "shell", Usage: "open a shell, or another program, on a terminal in the chat's sandbox", ArgsUsage: "[-- ARGV…]",
		Description: "It ends after ten minutes at the latest, as any command does. What it leaves in /outputs becomes\ncells when it ends.\n\n" + examples(
			`sandboxctl shell`,
			`sandboxctl shell --chat edit -- python3 -i`),
		Flags: []cli.Flag{chatFlag(), turnFlag()},
		Action: func(c *cli.Context) error {
			in, ok := c.App.Reader.(*os.File)
			if !ok || !term.IsTerminal(int(in.Fd())) || !isTerminal(c.App.Writer) {
				return usagef("shell needs a terminal: use `sandboxctl run --stdin` for a pipe")
			}
			argv := c.Args().Slice()
			if len(argv) == 0 {
				argv = []string{"bash"}
			}
			return shell(c, in, argv)
		},
	})
}

// shell connects this terminal with the one of a command.
func shell(c *cli.Context, in *os.File, argv []string) error {
	cl, chat := connect(c), c.String("chat")
	size, err := sizeOf(in)
	if err != nil {
		return err
	}
	cmd, err := cl.Start(c.Context, chat, api.NewCommand{
		Argv: argv, TTY: &size, Turn: c.String("turn"), Timeout: api.MaxTimeout.Seconds(),
	})
	if err != nil {
		return err
	}
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("set up the terminal: %w", errors.Join(err, cl.Kill(c.Context, chat, cmd.ID, 0)))
	}
	ctx, cancel := context.WithCancel(c.Context)
	go func() { _ = cl.Feed(ctx, chat, cmd.ID, in) }() // what becomes of the keys is the command's business
	go followSize(ctx, cl, chat, cmd.ID, in)
	err = followToEnd(c, cl, chat, cmd)
	cancel()
	return errors.Join(err, term.Restore(int(in.Fd()), before))
}

func sizeOf(f *os.File) (api.TTY, error) {
	cols, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || cols < 1 || rows < 1 {
		return api.TTY{Rows: 24, Cols: 80}, err
	}
	return api.TTY{Rows: uint16(min(rows, 10000)), Cols: uint16(min(cols, 10000))}, nil
}

// followSize passes changes of the terminal's size on.
func followSize(ctx context.Context, cl *client.Client, chat, id string, f *os.File) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	defer signal.Stop(changed)
	for {
		select {
		case <-changed:
			if size, err := sizeOf(f); err == nil {
				_ = cl.Resize(ctx, chat, id, size) // the command may have ended
			}
		case <-ctx.Done():
			return
		}
	}
}
