package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"mediasandbox/daemon/api"
)

func topCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "top", Usage: "show the live sandboxes with what they use, again and again", ArgsUsage: " ",
		Description: "On a terminal it goes on until interrupted; elsewhere it prints once.\n\n" + examples(
			`sandboxctl top`, `sandboxctl top --all --every 5s`, `sandboxctl top --once`, `sandboxctl --json top`),
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "of all accounts (operators only)", DisableDefaultText: true},
			&cli.BoolFlag{Name: "once", Usage: "print once", DisableDefaultText: true},
			&cli.DurationFlag{Name: "every", Usage: "look again after this `DURATION`", Value: 2 * time.Second},
		},
		Action: top,
	})
}

// cpuSample is when a sandbox had had how much CPU time.
type cpuSample struct {
	at      time.Time
	seconds float64
}

func top(c *cli.Context) error {
	every := c.Duration("every")
	if every < 100*time.Millisecond {
		return usagef("every %s is below 100ms", every)
	}
	live := isTerminal(c.App.Writer) && !c.Bool("once") && !wantJSON(c)
	before := make(map[string]cpuSample)
	for {
		list, err := connect(c).Sandboxes(c.Context, c.Bool("all"))
		if errors.Is(err, context.Canceled) {
			return nil // the user has seen enough
		}
		if err != nil {
			return err
		}
		if wantJSON(c) {
			return printAll(c, list)
		}
		if live {
			const home = "\x1b[H\x1b[J" // to the corner, and clear
			if _, err := io.WriteString(c.App.Writer, home+fmt.Sprintf("%s  %d sandboxes\n\n", time.Now().Format(time.TimeOnly), len(list))); err != nil {
				return fmt.Errorf("print: %w", err)
			}
		}
		if err := printUsage(c, list, before); err != nil || !live {
			return err
		}
		select {
		case <-time.After(every):
		case <-c.Context.Done():
			return nil
		}
	}
}

// printAll prints one object a line.
func printAll[T any](c *cli.Context, list []T) error {
	for _, v := range list {
		if err := printJSON(c, v); err != nil {
			return err
		}
	}
	return nil
}

// printUsage prints the table, and notes each sandbox's CPU time for the next.
func printUsage(c *cli.Context, list []api.SandboxUsage, before map[string]cpuSample) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(c.App.Writer, "no sandbox lives")
		return err
	}
	t := newTable(c.App.Writer, "CHAT", "STATE", "TURN LEFT", "CPU", "MEMORY", "PROCS", "DISK", "NET OUT/IN", "FLOWS")
	for _, u := range list {
		chat := u.Chat
		if c.Bool("all") {
			chat = u.Account + "/" + chat
		}
		turn := "-"
		if u.Turn != nil {
			turn = fmt.Sprintf("%.0f of %.0f s", max(u.Turn.Left, 0), u.Turn.Budget)
		}
		cpu, memory, procs := "?", "?", "?"
		if u.Accounted {
			cpu, procs = cpuText(u, before), fmt.Sprint(u.Processes)
			memory = fmt.Sprintf("%s of %s", humanize.IBytes(uint64(u.Memory)), humanize.IBytes(uint64(u.MemoryLimit)))
		}
		t.row(printable(chat), sandboxState(u), turn, cpu, memory, procs, humanize.IBytes(uint64(u.Disk)),
			humanize.IBytes(uint64(u.Sent))+" / "+humanize.IBytes(uint64(u.Received)), fmt.Sprint(u.Flows))
	}
	return t.flush()
}

// cpuText is the share of a core since the last look, or the time since the
// boot at the first.
func cpuText(u api.SandboxUsage, before map[string]cpuSample) string {
	now := cpuSample{time.Now(), u.CPU}
	last, seen := before[u.ID]
	before[u.ID] = now
	if !seen {
		return fmt.Sprintf("%.1f s", u.CPU)
	}
	return fmt.Sprintf("%.0f %%", max(0, 100*(now.seconds-last.seconds)/now.at.Sub(last.at).Seconds()))
}

func sandboxState(u api.SandboxUsage) string {
	switch {
	case u.ExpiresAt != nil:
		return "rests, ends in " + time.Until(*u.ExpiresAt).Round(time.Second).String()
	case u.Running == 1:
		return "runs 1 command"
	}
	return fmt.Sprintf("runs %d commands", u.Running)
}
