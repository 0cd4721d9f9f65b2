// Sandbox-init is PID 1 of every sandbox: it runs commands for the host.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"mediasandbox/runtime/guest/pid1"
)

func main() {
	pids := flag.Int64("pids", 0, "how many processes the commands may have together; 0 is no limit")
	flag.Parse()
	err := pid1.New(pid1.Config{
		Socket:  "/.ctl/init.sock",
		Outputs: "/outputs",
		Journal: "/.journal/closed",
		Cgroup:  "/sys/fs/cgroup",
		PIDs:    *pids,
	}).Run(context.Background())
	fmt.Fprintln(os.Stderr, "sandbox-init:", err)
	os.Exit(1)
}
