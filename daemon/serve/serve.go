// Package serve is the command line of sandboxd.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/urfave/cli/v2"

	"mediasandbox/daemon"
	"mediasandbox/daemon/config"
	"mediasandbox/internal/version"
)

const (
	exitUsage  = 2
	exitFailed = 1
)

// usageError is wrong usage or a wrong configuration.
type usageError struct{ error }

// Main runs sandboxd and returns its exit code.
func Main(args []string, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	usage := func(_ *cli.Context, err error, _ bool) error {
		return usageError{fmt.Errorf("%w: see `sandboxd serve --help`", err)}
	}
	app := &cli.App{
		Name: "sandboxd", Usage: "the daemon of media-sandbox", Version: version.String(),
		Writer: os.Stdout, ErrWriter: stderr, HideHelpCommand: true,
		ExitErrHandler: func(*cli.Context, error) {}, OnUsageError: usage,
		Commands: []*cli.Command{serveCommand(stderr, usage)},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usageError{fmt.Errorf("there is no verb %q: see `sandboxd --help`", c.Args().First())}
			}
			return cli.ShowAppHelp(c)
		},
	}
	err := app.RunContext(ctx, args)
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "sandboxd:", err)
	var wrong usageError
	if errors.As(err, &wrong) {
		return exitUsage
	}
	return exitFailed
}

func serveCommand(stderr io.Writer, usage cli.OnUsageErrorFunc) *cli.Command {
	return &cli.Command{
		Name: "serve", Usage: "serve chats until ended by SIGTERM", ArgsUsage: " ", HideHelpCommand: true, OnUsageError: usage,
		Description: "It needs root, and the image that `sandboxctl image build` makes. No configuration file is needed;\n" +
			"flags win over the file. Sandboxes and their commands go on when the daemon ends, and a later one\n" +
			"finds them again.\n\n" +
			"Examples:\n" +
			"   sandboxd serve\n" +
			"   sandboxd serve --state-dir ./state --socket ./api.sock --ephemeral\n" +
			"   sandboxd serve --config /etc/media-sandbox/config.toml",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "config", Usage: "read this `FILE`", DefaultText: config.DefaultFile + ", if it exists"},
			&cli.StringFlag{Name: "state-dir", Usage: "keep state in `DIR`", DefaultText: config.Default().Paths.StateDir},
			&cli.StringFlag{Name: "run-dir", Usage: "keep what ends with the host in `DIR`", DefaultText: config.Default().Paths.RunDir + ", or run below --state-dir"},
			&cli.StringFlag{Name: "socket", Usage: "listen on `SOCKET`", DefaultText: config.Default().Paths.Socket},
			&cli.StringFlag{Name: "image", Usage: "boot sandboxes from `IMG`", DefaultText: "the built one"},
			&cli.BoolFlag{Name: "ephemeral", Usage: "remove all sandboxes at the end", DisableDefaultText: true},
			&cli.BoolFlag{Name: "debug", Usage: "log more", DisableDefaultText: true},
		},
		Action: func(c *cli.Context) error { return serve(c, stderr) },
	}
}

func serve(c *cli.Context, stderr io.Writer) error {
	cfg, err := configure(c)
	if err != nil {
		return usageError{err}
	}
	level := slog.LevelInfo
	if c.Bool("debug") {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	d, err := daemon.New(c.Context, cfg, c.Bool("ephemeral"), log)
	if err != nil && c.Context.Err() != nil && errors.Is(err, context.Canceled) {
		log.Info("ended while starting")
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(d.Run(c.Context), d.Close())
}

// configure lays the flags over the file.
func configure(c *cli.Context) (config.Config, error) {
	cfg, err := config.Load(c.String("config"))
	if err != nil {
		return cfg, err
	}
	if c.Args().Present() {
		return cfg, fmt.Errorf("serve takes no argument: %q", c.Args().First())
	}
	for flag, field := range map[string]*string{
		"state-dir": &cfg.Paths.StateDir, "run-dir": &cfg.Paths.RunDir, "socket": &cfg.Paths.Socket, "image": &cfg.Paths.Image,
	} {
		if !c.IsSet(flag) {
			continue
		}
		if c.String(flag) == "" {
			return cfg, fmt.Errorf("--%s is empty: give a path", flag)
		}
		if *field, err = filepath.Abs(c.String(flag)); err != nil {
			return cfg, fmt.Errorf("--%s: %w", flag, err)
		}
	}
	// Another state directory brings its own run directory, so that two
	// daemons never share one.
	if c.IsSet("state-dir") && !c.IsSet("run-dir") {
		cfg.Paths.RunDir = filepath.Join(cfg.Paths.StateDir, "run")
	}
	return cfg, cfg.Validate()
}
