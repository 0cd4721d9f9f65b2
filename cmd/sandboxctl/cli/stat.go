package cli

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"mediasandbox/daemon/api"
)

func statCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "stat", Usage: "describe a file or directory of the chat's sandbox", ArgsUsage: "PATH",
		Description: examples(`sandboxctl stat /outputs/cut.mp4`, `sandboxctl --json stat /workspace | jq .dir`),
		Flags:       []cli.Flag{chatFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			path, err := argument(c, "path")
			if err != nil {
				return err
			}
			info, err := connect(c).StatFile(c.Context, c.String("chat"), path)
			if err != nil {
				return err
			}
			if wantJSON(c) {
				return printJSON(c, info)
			}
			return printFiles(c, []api.FileInfo{info})
		},
	})
}

func mvCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "mv", Usage: "rename a file or directory of the chat's sandbox", ArgsUsage: "FROM TO",
		Description: "TO ending in / is a directory that it goes into. Directories above TO are made. It prints where\n" +
			"the file is then.\n\n" + examples(`sandboxctl mv /workspace/draft.mp4 /outputs/final.mp4`, `sandboxctl mv /workspace/frames /outputs/`),
		Flags: []cli.Flag{chatFlag(), jsonFlag(), replaceFlag("a file that is there")},
		Action: func(c *cli.Context) error {
			if c.NArg() != 2 {
				return usagef("give two paths: see `sandboxctl mv --help`")
			}
			from, to := c.Args().Get(0), c.Args().Get(1)
			if strings.HasSuffix(to, "/") {
				to += filepath.Base(from)
			}
			info, err := connect(c).MoveFile(c.Context, c.String("chat"), api.MoveFile{From: from, To: to, Replace: c.Bool("replace")})
			if err != nil {
				return err
			}
			return printPlace(c, info)
		},
	})
}

func replaceFlag(what string) cli.Flag {
	return &cli.BoolFlag{Name: "replace", Usage: "replace " + what, DisableDefaultText: true}
}

// printPlace says where a file is in the sandbox.
func printPlace(c *cli.Context, info api.FileInfo) error {
	if wantJSON(c) {
		return printJSON(c, info)
	}
	_, err := fmt.Fprintln(c.App.Writer, printable(info.Path))
	return err
}
