package cli

import (
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"mediasandbox/cmd/sandboxctl/gallery"
)

func galleryCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "gallery", Usage: "show chats in a web browser of this host, live", ArgsUsage: " ",
		Description: "It serves a page on loopback until it is interrupted, and prints the link that opens it. A link works\n" +
			"once; the next one is printed when it was used. With --chat the page shows that chat only.\n" +
			"From another machine, forward the port: ssh -L 7000:127.0.0.1:7000 HOST sandboxctl gallery --port 7000\n\n" + examples(
			`sandboxctl gallery --open`,
			`sandboxctl gallery --chat spring --port 7000`),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "chat", Aliases: []string{"C"}, Usage: "the only `CHAT` to show", DefaultText: "all of them"},
			&cli.IntFlag{Name: "port", Usage: "the `PORT` of loopback", DefaultText: "a free one"},
			&cli.BoolFlag{Name: "ipv6", Usage: "listen on ::1 too"},
			&cli.BoolFlag{Name: "open", Usage: "open the page in the desktop's browser"},
			jsonFlag(),
		},
		Action: runGallery,
	})
}

func runGallery(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("gallery takes no argument: name a chat with --chat")
	}
	if port := c.Int("port"); port < 0 || port > 65535 {
		return usagef("port %d is not between 0 and 65535", port)
	}
	client := connect(c)
	var err error
	if chat := c.String("chat"); chat != "" {
		_, err = client.Chat(c.Context, chat)
	} else {
		_, err = client.Info(c.Context)
	}
	if err != nil {
		return err
	}
	links := make(chan string, 16)
	g, err := gallery.New(gallery.Config{
		Client: client, Chat: c.String("chat"), Port: c.Int("port"), IPv6: c.Bool("ipv6"),
		Link: func(url string) {
			select {
			case links <- url:
			default: // nobody reads what is printed; a later one will be
			}
		},
		Log: slog.New(slog.NewTextHandler(c.App.ErrWriter, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Run(c.Context) }()
	return showLinks(c, links, ended)
}

// showLinks prints each link until the gallery ends.
func showLinks(c *cli.Context, links <-chan string, ended <-chan error) error {
	var opened string
	defer func() { os.RemoveAll(opened) }()
	for first := true; ; first = false {
		var url string
		select {
		case err := <-ended:
			return err
		case url = <-links:
		}
		if err := os.RemoveAll(opened); err != nil {
			return fmt.Errorf("remove the link that was used: %w", err)
		}
		if err := printLink(c, url, first); err != nil {
			return err
		}
		if first && c.Bool("open") {
			var err error
			if opened, err = openLink(url); err != nil {
				fmt.Fprintf(c.App.ErrWriter, "sandboxctl: %v\n  hint: open the link yourself\n", err)
			}
		}
	}
}

func printLink(c *cli.Context, url string, first bool) error {
	if wantJSON(c) {
		return printJSON(c, map[string]string{"type": "link", "url": url})
	}
	text := "The gallery is at\n  %s\nThe link works once. End with Ctrl-C.\n"
	if !first {
		text = "The link was used. For another browser:\n  %s\n"
	}
	if _, err := fmt.Fprintf(c.App.Writer, text, url); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

var openPage = template.Must(template.New("").Parse(
	`<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>Gallery</title>` +
		`<meta http-equiv="refresh" content="0; url={{.}}"><p><a href="{{.}}">Open the gallery</a>`))

// openLink opens a link in the desktop's browser, and returns the directory of
// the file it did so with. The link is in that file, which only its owner reads:
// a command line would show it to every user of the host.
func openLink(url string) (dir string, err error) {
	dir, err = os.MkdirTemp("", "media-sandbox-gallery-")
	if err != nil {
		return "", fmt.Errorf("open the page: %w", err)
	}
	path := filepath.Join(dir, "gallery.html")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return dir, fmt.Errorf("open the page: %w", err)
	}
	if err := errors.Join(openPage.Execute(f, url), f.Close()); err != nil {
		return dir, fmt.Errorf("open the page: %w", err)
	}
	browser := exec.Command("xdg-open", path)
	if err := browser.Start(); err != nil {
		return dir, fmt.Errorf("open the page: %w", err)
	}
	go func() { _ = browser.Wait() }() // it may be the browser itself, and stay
	return dir, nil
}
