package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
)

func putCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "put", Usage: "copy a file or directory of this host into the chat's sandbox", ArgsUsage: "FILE [PATH]",
		Description: "PATH is below /inputs (the default is /inputs/NAME), /workspace or /outputs; one that ends in / is\n" +
			"a directory that it goes into. A directory is copied with all in it, whole or not at all. It prints\n" +
			"where the file is in the sandbox.\n\n" + examples(
			`sandboxctl put clip.mp4`, `sandboxctl put logo.svg /workspace/assets/`, `sandboxctl put ./project /workspace/`),
		Flags: []cli.Flag{chatFlag(), jsonFlag(), replaceFlag("a directory that is there; a file is replaced in any case")},
		Action: func(c *cli.Context) error {
			if c.NArg() < 1 || c.NArg() > 2 {
				return usagef("give a file or directory, and perhaps a path: see `sandboxctl put --help`")
			}
			from, err := filepath.Abs(c.Args().First()) // for its name
			if err != nil {
				return err
			}
			to := c.Args().Get(1)
			if to == "" {
				to = "/inputs/"
			}
			if strings.HasSuffix(to, "/") {
				to += filepath.Base(from)
			}
			info, err := putAny(c, connect(c), c.String("chat"), c.Args().First(), to, c.Bool("replace"))
			if err != nil {
				return err
			}
			return printPlace(c, info)
		},
	})
}

func getCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "get", Usage: "copy a cell's file, or a file or directory of the chat's sandbox, to this host", ArgsUsage: "('#N' | PATH)",
		Description: "It prints where the file is here. A file that is there already is replaced only when -o names it, a\n" +
			"directory never. With -o - a directory comes as a tar stream.\n\n" + examples(
			`sandboxctl get '#1'`, `sandboxctl get '#2' -o frame.png`, `sandboxctl get /workspace/notes.txt -o - | wc -l`,
			`sandboxctl get /workspace/frames`),
		Flags: []cli.Flag{chatFlag(), jsonFlag(), &cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to this `FILE` or directory; - is stdout", Value: "."}},
		Action: func(c *cli.Context) error {
			what, err := argument(c, "'#N' or path")
			if err != nil {
				return err
			}
			cl := connect(c)
			if !strings.HasPrefix(what, "#") {
				info, err := cl.StatFile(c.Context, c.String("chat"), what)
				if err != nil {
					return err
				}
				if info.Dir {
					return getTree(c, cl, what)
				}
			}
			r, name, size, err := openRemote(c, cl, what)
			if err != nil {
				return err
			}
			path, err := save(c, r, name, size)
			if err := errors.Join(err, r.Close()); err != nil {
				return err
			}
			switch {
			case path == "":
				return nil
			case wantJSON(c):
				return printJSON(c, savedFile{Type: "file", Path: path, Size: size})
			}
			_, err = fmt.Fprintln(c.App.Writer, path)
			return err
		},
	})
}

// savedFile is what get prints with --json.
type savedFile struct {
	Type string `json:"type"`
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// openRemote opens what get was asked for.
func openRemote(c *cli.Context, cl *client.Client, what string) (io.ReadCloser, string, int64, error) {
	chat := c.String("chat")
	if !strings.HasPrefix(what, "#") {
		r, size, err := cl.OpenFile(c.Context, chat, what)
		return r, filepath.Base(what), size, err
	}
	cell, err := findCell(c, cl, chat, what)
	if err != nil {
		return nil, "", 0, err
	}
	r, size, err := cl.OpenCell(c.Context, chat, cell.Ordinal)
	return r, safeName(cell.File.Name, cell.Ordinal), size, err
}

// safeName is the name a cell's file gets on this host: the guest chose it.
func safeName(name string, ordinal int) string {
	name = filepath.Base(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '/' {
			return '_'
		}
		return r
	}, name))
	if name == "." || name == ".." || name == "" {
		return "cell-" + strconv.Itoa(ordinal)
	}
	return name
}

// save writes r to where --output says, whole or not at all, and returns the
// path. It replaces a file only where the user named it.
func save(c *cli.Context, r io.Reader, name string, size int64) (string, error) {
	to := c.String("output")
	if to == "" && c.IsSet("output") {
		return "", usagef("-o names no path")
	}
	if to == "-" {
		_, err := io.Copy(c.App.Writer, r)
		return "", err
	}
	if st, err := os.Stat(to); err == nil && st.IsDir() {
		to = filepath.Join(to, name)
		if _, err := os.Lstat(to); err == nil {
			return "", usagef("%s exists: name the file to replace with -o", to)
		}
	}
	r, done := transferBar(c, r, size, name)
	err := replaceFile(c.Context, to, r)
	done()
	if err != nil {
		return "", fmt.Errorf("save %s: %w", to, err)
	}
	return to, nil
}

// replaceFile makes path hold what r gives, whole or not at all. What is no
// file, such as a device or a pipe, is written to, not replaced.
func replaceFile(ctx context.Context, path string, r io.Reader) error {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		f, err := openSpecial(ctx, path)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".sandboxctl-*")
	if err != nil {
		return exitStatus{exitUsage, err.Error()}
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// openSpecial opens a device or a pipe for writing. A pipe that nobody reads yet
// is waited for, but not longer than the user likes.
func openSpecial(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if !errors.Is(err, syscall.ENXIO) {
			return f, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func lsCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "ls", Usage: "list a directory of the chat's sandbox", ArgsUsage: "[PATH]",
		Description: "Without a path it lists /workspace.\n\n" + examples(`sandboxctl ls`, `sandboxctl ls /inputs`),
		Flags:       []cli.Flag{chatFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			if c.NArg() > 1 {
				return usagef("give at most one path: see `sandboxctl ls --help`")
			}
			path := c.Args().First()
			if path == "" {
				path = "/workspace"
			}
			files, err := connect(c).Files(c.Context, c.String("chat"), path)
			if err != nil {
				return err
			}
			if wantJSON(c) {
				return printList(c, files)
			}
			return printFiles(c, files)
		},
	})
}

func printFiles(c *cli.Context, files []api.FileInfo) error {
	t := newTable(c.App.Writer, "MODE", "SIZE", "MODIFIED", "PATH")
	for _, f := range files {
		t.row(f.Mode, humanize.IBytes(uint64(f.Size)), f.Modified.Local().Format("2006-01-02 15:04:05"), printable(f.Path))
	}
	return t.flush()
}

func rmCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "rm", Usage: "remove a file or directory of the chat's sandbox", ArgsUsage: "PATH",
		Description: "A directory is removed with all in it. Cells stay.\n\n" + examples(`sandboxctl rm /workspace/frames`),
		Flags:       []cli.Flag{chatFlag()},
		Action: func(c *cli.Context) error {
			path, err := argument(c, "path")
			if err != nil {
				return err
			}
			return connect(c).RemoveFile(c.Context, c.String("chat"), path)
		},
	})
}
