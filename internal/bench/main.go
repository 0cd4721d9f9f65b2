// Command bench measures the product against what it stands on, in one run on
// one machine, and writes docs/bench.md: `make bench`.
//
// It runs the built sandboxd as its users do and speaks to it through the
// client. Beside each sample of the product one of the baseline is taken: the
// same runsc without us, or the same program in a chroot of the same image on
// the bare host. So noise of the machine meets both. Only what the run itself
// measured is written down.
//
// Start reading at bench.run; a section is one group of rows of the table.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
