// Command sandbox-gate is the network gate of one sandbox. The daemon starts
// it; it can do nothing useful by hand.
package main

import (
	"fmt"
	"os"

	"mediasandbox/runtime/gate/process"
)

func main() {
	if err := process.Main(os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox-gate:", err)
		os.Exit(1)
	}
}
