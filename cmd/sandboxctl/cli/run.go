package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
)

func runCommand() *cli.Command {
	return verb(&cli.Command{
		Name:      "run",
		Usage:     "run a command in the chat's sandbox and collect what it writes to /outputs",
		ArgsUsage: "(-c PYTHON | -f SCRIPT [ARG…] | -- ARGV…)",
		Description: "It prints the command's output as it comes, then the cells that came of it (on stderr), and exits\n" +
			"with the command's own code. An interrupt cancels the command. Flags stand before the command. A URL\n" +
			"is downloaded in the sandbox, through its network, before the command starts.\n\n" + examples(
			`sandboxctl run --in clip.mp4 -- ffmpeg -ss 2 -i /inputs/clip.mp4 /outputs/cut.mp4`,
			`sandboxctl run --in '#1' -- sh -c 'ffmpeg -i /inputs/cut.mp4 -frames:v 1 /outputs/frame.png'`,
			`sandboxctl run --in photo.png -c 'from PIL import Image; Image.open("/inputs/photo.png").rotate(90).save("/outputs/turned.png")'`,
			`sandboxctl run --in '#1' -f edit.py 1080`,
			`sandboxctl run --json --timeout 90s -- magick -size 640x480 plasma: /outputs/plasma.png`),
		Flags: []cli.Flag{
			chatFlag(),
			&cli.StringFlag{Name: "python", Aliases: []string{"c"}, Usage: "run this Python `SOURCE`"},
			&cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "run the Python `SCRIPT` of this host; - reads it from stdin"},
			&cli.StringSliceFlag{Name: "in", Usage: "put a `FILE` or directory of this host, the cell '#N', or what an https URL names, under /inputs"},
			&cli.StringSliceFlag{Name: "env", Usage: "add `KEY=VALUE` to the environment"},
			&cli.StringFlag{Name: "dir", Usage: "working `DIRECTORY` in the sandbox", DefaultText: "/workspace"},
			&cli.StringFlag{Name: "timeout", Usage: "end it after this `DURATION`, at most 10m", DefaultText: "5m"},
			turnFlag(),
			&cli.StringFlag{Name: "label", Usage: "group its cells under this `LABEL`"},
			&cli.StringFlag{Name: "kind", Usage: "the `PILL` of its cells, if not the one found out: video-edit, frame-extract, image-edit, audio-edit or file"},
			&cli.StringSliceFlag{Name: "publish", Usage: "publish also files whose temporary names match `PATTERN`, as '*.part' or '.hidden'"},
			&cli.StringFlag{Name: "net", Usage: "the chat's network `MODE` from now on: public, allowlist or none; see `sandboxctl net`"},
			&cli.BoolFlag{Name: "stdin", Aliases: []string{"i"}, Usage: "send our stdin to the command", DisableDefaultText: true},
			&cli.BoolFlag{Name: "keep-background", Usage: "let processes that the command leaves behind live on in the sandbox", DisableDefaultText: true},
			&cli.BoolFlag{Name: "detach", Aliases: []string{"d"}, Usage: "print the command's id and return", DisableDefaultText: true},
			&cli.BoolFlag{Name: "json", Usage: "print JSON, one object a line; the last is the command", DisableDefaultText: true},
		},
		Action: run,
	})
}

func run(c *cli.Context) error {
	req, err := newRequest(c)
	if err != nil {
		return err
	}
	cl, chat := connect(c), c.String("chat")
	if c.IsSet("net") {
		mode := c.String("net")
		if _, err := cl.SetNetwork(c.Context, chat, api.NetworkSettings{Mode: &mode}); err != nil {
			return err
		}
	}
	if req.Inputs, err = putInputs(c, cl, chat); err != nil {
		return err
	}
	req.Stream, req.Keep = c.Bool("stdin"), c.Bool("keep-background")
	cmd, err := cl.Start(c.Context, chat, req)
	if err != nil {
		return err
	}
	if req.Stream {
		go func() { _ = cl.Feed(c.Context, chat, cmd.ID, c.App.Reader) }() // a command need not read its input
	}
	if c.Bool("detach") {
		if wantJSON(c) {
			return printJSON(c, cmd)
		}
		_, err := fmt.Fprintln(c.App.Writer, cmd.ID)
		return err
	}
	return followToEnd(c, cl, chat, cmd)
}

// newRequest builds the request from flags and arguments.
func newRequest(c *cli.Context) (api.NewCommand, error) {
	req := api.NewCommand{Dir: c.String("dir"), Turn: c.String("turn"), Label: c.String("label"), Kind: api.Pill(c.String("kind")), Publish: c.StringSlice("publish")}
	ways := 0
	if c.IsSet("python") {
		ways++
		req.Python, req.Args = c.String("python"), c.Args().Slice()
	}
	if c.IsSet("file") {
		ways++
		source, err := readScript(c, c.String("file"))
		if err != nil {
			return req, err
		}
		req.Python, req.Script, req.Args = source, filepath.Base(c.String("file")), c.Args().Slice()
	}
	if ways == 0 && c.NArg() > 0 {
		ways++
		req.Argv = c.Args().Slice()
	}
	if c.IsSet("python") && strings.TrimSpace(req.Python) == "" {
		return req, usagef("the Python source is empty")
	}
	if c.Bool("stdin") && (c.Bool("detach") || c.String("file") == "-") {
		return req, usagef("--stdin goes neither with --detach nor with -f -")
	}
	if ways != 1 {
		return req, usagef("give exactly one of -c PYTHON, -f SCRIPT and -- ARGV…: see `sandboxctl run --help`")
	}
	if req.Kind != "" && !slices.Contains(api.Pills(), req.Kind) {
		return req, usagef("kind %q is not known: use one of %v", req.Kind, api.Pills())
	}
	if c.IsSet("timeout") {
		d, err := time.ParseDuration(c.String("timeout"))
		if err != nil {
			return req, usagef("timeout %q is not a duration: write it like 90s or 5m", c.String("timeout"))
		}
		if d < time.Millisecond || d > api.MaxTimeout {
			return req, usagef("timeout %s is not between 1ms and %s: longer work is split into several commands", d, api.MaxTimeout)
		}
		req.Timeout = d.Seconds()
	}
	req.Env = make(map[string]string)
	for _, kv := range c.StringSlice("env") {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return req, usagef("environment %q is not KEY=VALUE", kv)
		}
		req.Env[k] = v
	}
	return req, nil
}

func readScript(c *cli.Context, path string) (string, error) {
	if path == "-" {
		text, err := io.ReadAll(io.LimitReader(c.App.Reader, api.MaxSource+1))
		if err != nil {
			return "", fmt.Errorf("read stdin: %w", err)
		}
		return string(text), nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", usagef("%v", err)
	}
	if len(text) == 0 {
		return "", usagef("script %s is empty", path)
	}
	return string(text), nil
}

// putInputs uploads what --in names and returns the request's inputs. Nothing
// is uploaded unless all of it is there.
func putInputs(c *cli.Context, cl *client.Client, chat string) ([]string, error) {
	var inputs, files []string
	seen := make(map[string]string)
	for _, in := range c.StringSlice("in") {
		name := filepath.Base(in)
		if isURL(in) {
			inputs = append(inputs, in) // the daemon knows what its name will be
			continue
		}
		if strings.HasPrefix(in, "#") {
			cell, err := findCell(c, cl, chat, in)
			if err != nil {
				return nil, err
			}
			inputs = append(inputs, in)
			name = cell.File.Name
		} else {
			if err := checkInput(in); err != nil && !isDir(in) {
				return nil, err
			}
			inputs, files = append(inputs, name), append(files, in)
		}
		if other, ok := seen[name]; ok {
			return nil, usagef("%s and %s would both be /inputs/%s: rename one of them", other, in, printable(name))
		}
		seen[name] = in
	}
	for _, path := range files {
		if _, err := putAny(c, cl, chat, path, "/inputs/"+filepath.Base(path), true); err != nil {
			return nil, err
		}
	}
	return inputs, nil
}

// isURL tells whether an input is downloaded in the sandbox.
func isURL(in string) bool {
	return strings.HasPrefix(in, "https://") || strings.HasPrefix(in, "http://")
}

// findCell looks up what '#N' names.
func findCell(c *cli.Context, cl *client.Client, chat, name string) (api.Cell, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "#"))
	if err != nil || n < 1 {
		return api.Cell{}, usagef("%q is not a cell: write it as '#3'", name)
	}
	return cl.Cell(c.Context, chat, n)
}

// putAny sends a file or a directory of this host.
func putAny(c *cli.Context, cl *client.Client, chat, from, to string, replace bool) (api.FileInfo, error) {
	if isDir(from) {
		return putTree(c, cl, chat, from, to, replace)
	}
	return putOne(c, cl, chat, from, to)
}

func putOne(c *cli.Context, cl *client.Client, chat, from, to string) (api.FileInfo, error) {
	f, st, err := openInput(from)
	if err != nil {
		return api.FileInfo{}, err
	}
	r, done := transferBar(c, f, st.Size(), filepath.Base(from))
	info, err := cl.PutFile(c.Context, chat, to, r)
	done()
	return info, errors.Join(err, f.Close())
}

// cancelTimeout bounds the cancelling of a command on Ctrl-C.
const cancelTimeout = 15 * time.Second

// followToEnd shows a command's output live, then its cells, and returns how
// it ended. An interrupt cancels the command.
func followToEnd(c *cli.Context, cl *client.Client, chat string, cmd api.Command) error {
	id, bar := cmd.ID, newWorkBar(c, cmd)
	cmd, err := cl.OutputIn(c.Context, chat, id, c.String("turn"), true, outputPrinter(c, bar))
	err = errors.Join(err, bar.end(c))
	if errors.Is(err, context.Canceled) || isBrokenPipe(err) {
		if end := cancelCommand(context.WithoutCancel(c.Context), cl, chat, id); !isBrokenPipe(err) {
			return end
		}
	}
	if err != nil {
		return err
	}
	if wantJSON(c) {
		if err := printJSON(c, cmd); err != nil {
			return err
		}
		return endOf(cmd)
	}
	printNotes(c, cmd)
	if err := printCells(c, c.App.ErrWriter, cmd.Cells); err != nil {
		return err
	}
	for _, s := range cmd.Skipped {
		fmt.Fprintf(c.App.ErrWriter, "not published: /outputs/%s: %s\n", s.Path, s.Reason)
	}
	return endOf(cmd)
}

// printNotes says what a user should know of a command beside its end.
func printNotes(c *cli.Context, cmd api.Command) {
	if cmd.FilesLost {
		fmt.Fprintln(c.App.ErrWriter, "note: the chat's earlier sandbox was gone, and its files with it")
	}
	switch {
	case cmd.Background > 0 && cmd.Keep:
		fmt.Fprintf(c.App.ErrWriter, "note: %d left in the background; what they print from here on is thrown away\n", cmd.Background)
	case cmd.Background > 0:
		fmt.Fprintf(c.App.ErrWriter, "note: %d left in the background were ended (--keep-background lets them live)\n", cmd.Background)
	}
}

// cancelCommand ends a command that the user interrupted, and returns when it
// has ended.
func cancelCommand(ctx context.Context, cl *client.Client, chat, id string) error {
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	err := cl.Kill(ctx, chat, id, 0)
	var ended *api.Error
	if errors.As(err, &ended) && ended.Code == api.CodeCommandEnded {
		return exitStatus{exitInterrupt, "interrupted: the command had ended already"}
	}
	if err == nil {
		_, err = cl.Wait(ctx, chat, id)
	}
	if err != nil {
		return fmt.Errorf("cancel the command: %w", err)
	}
	return exitStatus{exitInterrupt, "interrupted: the command was canceled"}
}

// streamOf is ours for a command's stream.
func streamOf(c *cli.Context, stream string) io.Writer {
	if stream == "stderr" {
		return c.App.ErrWriter
	}
	return c.App.Writer
}

// outputPrinter writes a command's streams to ours, through the bar if there is
// one.
func outputPrinter(c *cli.Context, bar *workBar) func(api.OutputChunk) error {
	next := map[string]int64{}
	return func(chunk api.OutputChunk) error {
		if wantJSON(c) {
			return printJSON(c, struct {
				Type string `json:"type"`
				api.OutputChunk
			}{"output", chunk})
		}
		if gap := chunk.Offset - next[chunk.Stream]; gap > 0 {
			fmt.Fprintf(c.App.ErrWriter, "[%d bytes of %s were dropped]\n", gap, chunk.Stream)
		}
		next[chunk.Stream] = chunk.Offset + int64(len(chunk.Data))
		return bar.pass(chunk, streamOf(c, chunk.Stream))
	}
}
