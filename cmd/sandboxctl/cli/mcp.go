package cli

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/urfave/cli/v2"

	"mediasandbox/cmd/sandboxctl/mcp"
)

func mcpCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "mcp", Usage: "serve a chat to a model over the Model Context Protocol, on stdin and stdout", ArgsUsage: " ",
		Description: "Agents start it themselves: name it in their configuration. It makes the chat if there is none.\n" +
			"Tools read and write files of this host only below --dir.\n\n" + examples(
			`sandboxctl mcp --chat spring --dir ~/media`,
			`npx @modelcontextprotocol/inspector sandboxctl mcp`),
		Flags: []cli.Flag{
			chatFlag(),
			&cli.StringFlag{Name: "dir", Usage: "the `DIRECTORY` of this host that tools may use", Value: ".", DefaultText: "the working directory"},
			&cli.DurationFlag{Name: "patience", Usage: "answer after this `DURATION` although a command still runs; shorter than the client's own", Value: 50 * time.Second},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("mcp takes no argument: name the chat with --chat")
			}
			if c.Duration("patience") <= 0 {
				return usagef("patience %s is not above 0s", c.Duration("patience"))
			}
			dir, err := filepath.Abs(c.String("dir"))
			if err != nil {
				return fmt.Errorf("find the directory for files: %w", err)
			}
			if !isDir(dir) {
				return usagef("--dir %s is no directory of this host", c.String("dir"))
			}
			return mcp.Serve(c.Context, mcp.Config{
				Client: connect(c), Chat: c.String("chat"), Dir: dir, Patience: c.Duration("patience"),
				Log: slog.New(slog.NewTextHandler(c.App.ErrWriter, &slog.HandlerOptions{Level: slog.LevelWarn})),
			}, &sdk.StdioTransport{})
		},
	})
}
