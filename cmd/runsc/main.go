// Runsc is gVisor's own runtime, built from the module version that go.mod
// pins, so that the product ships exactly the runtime it was tested with.
package main

import "gvisor.dev/gvisor/runsc/cli/maincli"

func main() { maincli.Main() }
