// Sandbox-init is PID 1 of every sandbox: it runs commands for the host.
package main

import (
	"context"
	"fmt"
	"os"

	"mediasandbox/runtime/guest/pid1"
)

func main() {
	err := pid1.New(pid1.Config{
		Socket:  "/.ctl/init.sock",
		Outputs: "/outputs",
		Journal: "/.journal/closed",
		Cgroup:  "/sys/fs/cgroup",
	}).Run(context.Background())
	fmt.Fprintln(os.Stderr, "sandbox-init:", err)
	os.Exit(1)
}
