package cli

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"mediasandbox/daemon/api"
)

func infoCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "info", Usage: "show the daemon: version, image, limits, how busy it is", ArgsUsage: " ",
		Description: examples(`sandboxctl info`, `sandboxctl info --json`),
		Flags:       []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("info takes no argument")
			}
			info, err := connect(c).Info(c.Context)
			if err != nil {
				return err
			}
			if wantJSON(c) {
				return printJSON(c, info)
			}
			return printInfo(c, info)
		},
	})
}

func printInfo(c *cli.Context, i api.Info) error {
	limits := i.Limits
	bound := fmt.Sprintf("%s memory, %g CPUs, %d processes", humanize.IBytes(uint64(limits.MemoryBytes)), limits.CPUs, limits.PIDs)
	if !limits.Enforced {
		bound = "not enforced: " + limits.Unenforced
	}
	disk := fmt.Sprintf("%s for files, %s for what is installed", humanize.IBytes(uint64(limits.DiskBytes)), humanize.IBytes(uint64(limits.OverlayBytes)))
	if !limits.DiskEnforced {
		disk += " (files not enforced: " + limits.DiskUnenforced + ")"
	}
	account := i.Account
	if i.Operator {
		account += " (operator)"
	}
	t := newTable(c.App.Writer)
	for _, row := range [][2]string{
		{"version", i.Version},
		{"running since", i.StartedAt.Local().Format(time.RFC1123)},
		{"account", account},
		{"state", i.StateDir},
		{"image", fmt.Sprintf("%s (%s, sha256 %.12s…)", i.Image.Path, humanize.IBytes(uint64(i.Image.Size)), i.Image.SHA256)},
		{"store", i.Store},
		{"a command", fmt.Sprintf("timeout %g s, at most %g s; %s of each stream kept", limits.DefaultTimeout, limits.MaxTimeout, humanize.IBytes(uint64(limits.OutputBytes)))},
		{"a turn", fmt.Sprintf("%g s of work; %d commands of a chat at a time", limits.TurnBudget, limits.MaxRunning)},
		{"a sandbox", bound + fmt.Sprintf("; removed %g s after its last command", limits.IdleLife)},
		{"its disk", disk},
		{"at a time", fmt.Sprintf("%d sandboxes on this host, %d of an account; %d running commands of an account", limits.Sandboxes, limits.AccountSandboxes, limits.AccountRunning)},
		{"refused", fmt.Sprintf("work while %d commands wait, or the disk has less than %s left; another sandbox while less than %s of memory are",
			limits.Waiting, humanize.IBytes(uint64(limits.DiskReserve)), humanize.IBytes(uint64(limits.MemoryReserve)))},
		{"now", fmt.Sprintf("%d sandboxes, %d running and %d waiting commands, %d waiting uploads", i.Sandboxes, i.Running, i.Waiting, i.UploadWait)},
	} {
		t.row(row[0], row[1])
	}
	return t.flush()
}
