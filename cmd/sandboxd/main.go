// Sandboxd is the daemon of media-sandbox.
package main

import (
	"os"

	"mediasandbox/daemon/serve"
)

func main() { os.Exit(serve.Main(os.Args, os.Stderr)) }
