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
	"io/fs"
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
	// A reader of our output that goes away is an error like others, so that
	// run can end its command.
	signal.Ignore(syscall.SIGPIPE)
	app := newApp(stdin, stdout, stderr)
	if len(args) > 1 && args[1] == completeVerb {
		complete(app, args[2:], stdout)
		return 0
	}
	err := app.RunContext(ctx, arrange(app, args))
	if err != nil {
		report(stderr, err)
	}
	return exitCode(err)
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *cli.App {
	return &cli.App{
		Name:  "sandboxctl",
		Usage: "exact media work in sandboxes: run commands, collect the results as cells",
		Description: "Flags may stand before or after the arguments; what follows -- is taken as it is.\n" +
			"Files in a sandbox are below /inputs, /workspace and /outputs. What a command leaves in\n" +
			"/outputs becomes a cell, #1, #2, … of its chat.\n\n" + examples(
			`sandboxctl run --in clip.mp4 -- ffmpeg -i /inputs/clip.mp4 -vf hflip /outputs/flipped.mp4`,
			`sandboxctl cells`,
			`sandboxctl get '#1'`),
		Version:   version.String(),
		Reader:    stdin,
		Writer:    stdout,
		ErrWriter: stderr,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "socket", Usage: "the daemon's `SOCKET`", EnvVars: []string{api.SocketEnv}, DefaultText: api.DefaultSocket},
			&cli.StringFlag{Name: "account", Usage: "act for this `ACCOUNT` (operators only)"},
			jsonFlag(),
		},
		Commands: []*cli.Command{
			runCommand(), waitCommand(), logsCommand(), killCommand(), psCommand(), shellCommand(), chatsCommand(), skillsCommand(), turnsCommand(),
			putCommand(), getCommand(), lsCommand(), statCommand(), mvCommand(), rmCommand(), cellsCommand(), exportCommand(), replayCommand(),
			eventsCommand(), netCommand(), topCommand(), watchCommand(), mcpCommand(), galleryCommand(), accountCommand(), infoCommand(), imageCommand(), completionCommand(),
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
	if c.Command != nil && c.Command.HelpName != "" {
		name = c.Command.HelpName
	}
	text := err.Error()
	if flag, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		text = "there is no flag --" + strings.TrimLeft(flag, "-")
	}
	if flag, ok := strings.CutPrefix(text, "flag needs an argument: -"); ok {
		text = "the flag --" + strings.TrimLeft(flag, "-") + " needs a value"
	}
	return usagef("%s: see `%s --help`", text, name)
}

// verb fills in what all verbs share.
func verb(c *cli.Command) *cli.Command {
	c.OnUsageError = onUsageError
	c.HideHelpCommand = true
	return c
}

// examples is the part of a help text that shows how a verb is used.
func examples(lines ...string) string { return "Examples:\n   " + strings.Join(lines, "\n   ") }

// connect returns the client that the global flags name.
func connect(c *cli.Context) *client.Client {
	return client.New(c.String("socket"), c.String("account"))
}

// chatEnv names the environment variable with the chat of verbs that name none.
const chatEnv = "MEDIA_SANDBOX_CHAT"

// chatFlag names the chat a verb works on.
func chatFlag() cli.Flag {
	return &cli.StringFlag{Name: "chat", Aliases: []string{"C"}, Usage: "the `CHAT`", Value: api.DefaultChat, EnvVars: []string{chatEnv}}
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
	if errors.As(err, &status) && status.message == "" || isBrokenPipe(err) {
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
	if c.NArg() != 1 {
		return "", usagef("give one %s: see `%s --help`", what, c.Command.HelpName)
	}
	return c.Args().First(), nil
}

// openInput opens a file that the user named.
func openInput(path string) (*os.File, os.FileInfo, error) {
	if err := checkInput(path); err != nil {
		return nil, nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, usagef("%v", err)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, st, nil
}

// checkInput refuses what is no file, and does not open it: opening a named
// pipe would wait for its writer.
func checkInput(path string) error {
	if path == "" {
		return usagef("the name of a file is empty")
	}
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return usagef("there is no file %s on this host", path)
	}
	if err != nil {
		return usagef("%v", err)
	}
	if !st.Mode().IsRegular() {
		return usagef("%s is not a regular file", path)
	}
	return nil
}
