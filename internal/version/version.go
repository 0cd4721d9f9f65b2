// Package version says which build this is.
package version

// version is set by the linker: -X mediasandbox/internal/version.version=….
var version = "0.1.0-dev"

// String returns the version.
func String() string { return version }
