package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"mediasandbox/daemon/client"
)

func putCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "put", Usage: "copy a file of this host into the chat's sandbox", ArgsUsage: "FILE [PATH]",
		Description: "PATH is below /inputs (the default is /inputs/NAME), /workspace or /outputs.",
		Flags:       []cli.Flag{chatFlag()},
		Action: func(c *cli.Context) error {
			if c.NArg() < 1 || c.NArg() > 2 {
				return usagef("give a file, and perhaps a path: see `sandboxctl put --help`")
			}
			to := c.Args().Get(1)
			if to == "" || strings.HasSuffix(to, "/") {
				to = filepath.Join("/inputs", to, filepath.Base(c.Args().First()))
				if c.Args().Get(1) != "" {
					to = c.Args().Get(1) + filepath.Base(c.Args().First())
				}
			}
			return putOne(c, connect(c), c.String("chat"), c.Args().First(), to)
		},
	})
}

func getCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "get", Usage: "copy a cell's file, or a file of the chat's sandbox, to this host", ArgsUsage: "('#N' | PATH)",
		Flags: []cli.Flag{chatFlag(), &cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to this `FILE` or directory; - is stdout", Value: "."}},
		Action: func(c *cli.Context) error {
			what, err := argument(c, "'#N' or path")
			if err != nil {
				return err
			}
			r, name, size, err := openRemote(c, connect(c), what)
			if err != nil {
				return err
			}
			path, err := save(c, r, name, size)
			if err := errors.Join(err, r.Close()); err != nil {
				return err
			}
			if path != "" {
				fmt.Fprintln(c.App.Writer, path)
			}
			return nil
		},
	})
}

// openRemote opens what get was asked for.
func openRemote(c *cli.Context, cl *client.Client, what string) (io.ReadCloser, string, int64, error) {
	chat := c.String("chat")
	number, ok := strings.CutPrefix(what, "#")
	if !ok {
		r, size, err := cl.OpenFile(c.Context, chat, what)
		return r, filepath.Base(what), size, err
	}
	n, err := strconv.Atoi(number)
	if err != nil {
		return nil, "", 0, usagef("%q is not a cell: write it as '#3'", what)
	}
	cell, err := cl.Cell(c.Context, chat, n)
	if err != nil {
		return nil, "", 0, err
	}
	r, size, err := cl.OpenCell(c.Context, chat, n)
	return r, safeName(cell.File.Name, n), size, err
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
	f, err := os.CreateTemp(filepath.Dir(to), ".sandboxctl-*")
	if err != nil {
		return "", usagef("%v", err)
	}
	r, done := progress(c, r, size, name)
	_, err = io.Copy(f, r)
	done()
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), to)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("save %s: %w", to, err), os.Remove(f.Name()))
	}
	return to, nil
}

func lsCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "ls", Usage: "list a directory of the chat's sandbox", ArgsUsage: "[PATH]",
		Flags: []cli.Flag{chatFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
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
			t := newTable(c.App.Writer, "MODE", "SIZE", "MODIFIED", "PATH")
			for _, f := range files {
				t.row(f.Mode, humanize.IBytes(uint64(f.Size)), f.Modified.Local().Format("2006-01-02 15:04:05"), printable(f.Path))
			}
			return t.flush()
		},
	})
}

func rmCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "rm", Usage: "remove a file or directory of the chat's sandbox", ArgsUsage: "PATH",
		Flags: []cli.Flag{chatFlag()},
		Action: func(c *cli.Context) error {
			path, err := argument(c, "path")
			if err != nil {
				return err
			}
			return connect(c).RemoveFile(c.Context, c.String("chat"), path)
		},
	})
}
