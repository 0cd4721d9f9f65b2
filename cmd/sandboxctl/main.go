// Sandboxctl is the command line of media-sandbox.
package main

import (
	"os"

	"mediasandbox/cmd/sandboxctl/cli"
)

func main() { os.Exit(cli.Main(os.Args, os.Stdin, os.Stdout, os.Stderr)) }
