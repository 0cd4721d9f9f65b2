package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"
)

func exportCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "export", Usage: "save a chat's cells as a ZIP archive", ArgsUsage: "[CHAT]",
		Description: "The files are in CHAT-TITLE/LABEL/FILE, with manifest.json beside them: ordinals, pills, digests and how\n" +
			"each was made. The same cells make the same bytes.\n\n" + examples(
			`sandboxctl export`, `sandboxctl export spring -o spring.zip`, `sandboxctl export --type video -o - >clips.zip`),
		Flags: append(cellQueryFlags(), chatFlag(), jsonFlag(),
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "save as `PATH`; - is stdout", DefaultText: "the chat's title"}),
		Action: func(c *cli.Context) error {
			chat := c.String("chat")
			if c.NArg() > 0 {
				var err error
				if chat, err = argument(c, "chat"); err != nil {
					return err
				}
			}
			query, err := cellQuery(c)
			if err != nil {
				return err
			}
			r, name, err := connect(c).Export(c.Context, chat, query)
			if err != nil {
				return err
			}
			path, err := saveArchive(c, r, name)
			if err := errors.Join(err, r.Close()); err != nil || path == "" {
				return err
			}
			if wantJSON(c) {
				st, err := os.Stat(path)
				if err != nil {
					return fmt.Errorf("look at the archive: %w", err)
				}
				return printJSON(c, savedFile{Type: "file", Path: path, Size: st.Size()})
			}
			_, err = fmt.Fprintln(c.App.Writer, path)
			return err
		},
	})
}

// saveArchive writes an archive to where --output says, whole or not at all.
func saveArchive(c *cli.Context, r io.Reader, name string) (string, error) {
	to := c.String("output")
	if to == "-" {
		if _, err := io.Copy(c.App.Writer, r); err != nil {
			return "", fmt.Errorf("export: %w", err)
		}
		return "", nil
	}
	named := to != ""
	if st, err := os.Stat(to); to == "" || err == nil && st.IsDir() {
		named, to = false, filepath.Join(to, filepath.Base(name))
	}
	if _, err := os.Lstat(to); err == nil && !named {
		return "", usagef("%s exists: name the file to replace with -o", to)
	}
	if err := replaceFile(c.Context, to, r); err != nil {
		return "", fmt.Errorf("save %s: %w", to, err)
	}
	return to, nil
}
