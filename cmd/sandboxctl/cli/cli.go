// Package cli is sandboxctl: one verb a file, over the Go client. What a verb
// prints for people goes to stderr where the command's own output owns stdout;
// --json prints one object a line on stdout instead.
//
// Start reading at Main; exit codes are in exit.go.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
	"mediasandbox/internal/version"
)

// Main runs sandboxctl and returns its exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	app := newApp(stdin, stdout, stderr)
	err := app.RunContext(ctx, args)
	if err != nil {
		report(stderr, err)
	}
	return exitCode(err)
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *cli.App {
	return &cli.App{
		Name:      "sandboxctl",
		Usage:     "exact media work in sandboxes: run commands, collect the results as cells",
		Version:   version.String(),
		Reader:    stdin,
		Writer:    stdout,
		ErrWriter: stderr,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "socket", Usage: "the daemon's `SOCKET`", EnvVars: []string{api.SocketEnv}, DefaultText: api.DefaultSocket},
			&cli.StringFlag{Name: "account", Usage: "act for this `ACCOUNT` (operators only)"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON, one object a line"},
		},
		Commands: []*cli.Command{
			runCommand(), waitCommand(), logsCommand(), killCommand(), psCommand(), chatsCommand(),
			putCommand(), getCommand(), lsCommand(), rmCommand(), cellsCommand(), eventsCommand(),
			infoCommand(), imageCommand(),
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("there is no verb %q: see `sandboxctl --help`", c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
		OnUsageError:          onUsageError,
		ExitErrHandler:        func(*cli.Context, error) {}, // Main reports and decides
		CustomAppHelpTemplate: cli.AppHelpTemplate + exitCodesHelp,
		HideHelpCommand:       true,
	}
}

// onUsageError makes the library's own complaints usage errors of ours.
func onUsageError(c *cli.Context, err error, _ bool) error {
	name := c.App.Name
	if c.Command != nil && c.Command.Name != "" && c.Command.Name != name {
		name += " " + c.Command.Name
	}
	return usagef("%v: see `%s --help`", err, name)
}

// verb fills in what all verbs share.
func verb(c *cli.Command) *cli.Command {
	c.OnUsageError = onUsageError
	c.HideHelpCommand = true
	return c
}

// connect returns the client that the global flags name.
func connect(c *cli.Context) *client.Client {
	return client.New(c.String("socket"), c.String("account"))
}

// chatFlag names the chat a verb works on.
func chatFlag() cli.Flag {
	return &cli.StringFlag{Name: "chat", Aliases: []string{"C"}, Usage: "the `CHAT`", Value: api.DefaultChat, EnvVars: []string{"MEDIA_SANDBOX_CHAT"}}
}

// wantJSON tells whether --json was given, before or after the verb.
func wantJSON(c *cli.Context) bool {
	for _, level := range c.Lineage() {
		if level.Bool("json") { // a verb's own flag hides the global one
			return true
		}
	}
	return false
}

// printJSON prints one object on a line.
func printJSON(c *cli.Context, v any) error {
	if err := json.NewEncoder(c.App.Writer).Encode(v); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// printList prints each element on a line of its own.
func printList[T any](c *cli.Context, list []T) error {
	for _, v := range list {
		if err := printJSON(c, v); err != nil {
			return err
		}
	}
	return nil
}

// report prints an error as one line, and its hint as a second.
func report(w io.Writer, err error) {
	var status exitStatus
	if errors.As(err, &status) && status.message == "" {
		return
	}
	fmt.Fprintf(w, "sandboxctl: %v\n", err)
	var known *api.Error
	if errors.As(err, &known) && known.Hint != "" {
		fmt.Fprintf(w, "  hint: %s\n", known.Hint)
	}
}

// argument returns a verb's only argument.
func argument(c *cli.Context, what string) (string, error) {
	for _, arg := range c.Args().Slice()[min(1, c.NArg()):] {
		if strings.HasPrefix(arg, "-") {
			return "", usagef("put %s before %s: flags come first", arg, c.Args().First())
		}
	}
	if c.NArg() != 1 {
		return "", usagef("give one %s: see `sandboxctl %s --help`", what, c.Command.Name)
	}
	return c.Args().First(), nil
}

// openInput opens a file that the user named.
func openInput(path string) (*os.File, os.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, usagef("%v", err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = usagef("%s is not a regular file", path)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, st, nil
}
