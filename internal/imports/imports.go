// Package imports holds the directions in which the product's packages may
// know each other, and the checker of them. Its test reads the real packages
// with `go list`; a change that breaks a direction fails there, with the chain
// of imports that breaks it.
//
// It is not for style, nor for choosing libraries. Start reading at Rules.
package imports

import (
	"fmt"
	"slices"
	"strings"
)

// Graph maps a package to what it imports. Packages of ours begin with "./" in
// place of the module's name ("./daemon/api"), so that none is taken for one of
// the standard library.
type Graph map[string][]string

// TestSuffix marks the node of a package's tests: what only tests import
// belongs there, so that it does not count as the package's own.
const TestSuffix = " [test]"

// Rule binds the packages that From matches. Patterns are paths, or paths with
// "/..." for everything at and below; "./..." is every package of ours.
type Rule struct {
	// Why says in one line what the direction is good for.
	Why string
	// From are the packages bound, but for those that Except matches.
	From, Except []string
	// Only, when not nil, lists the packages of ours that may be imported.
	Only []string
	// Unnamed may not be imported directly.
	Unnamed []string
	// Never may not be reached over any chain of imports.
	Never []string
	// Tests binds the packages' tests too.
	Tests bool
}

// implementations are the packages behind the interfaces that the session
// engine declares or uses.
var implementations = []string{
	"./daemon/store/...", "./runtime/runsc/...", "./runtime/disk/...", "./runtime/gate/...", "./runtime/guest/pid1/...",
	"./uploader/local/...", "./uploader/s3/...",
}

// testHelpers are packages for tests of other packages.
var testHelpers = []string{"./internal/testenv", "./daemon/daemontest", "./uploader/blobstest", "./uploader/s3/s3test"}

// Rules are the directions of this product.
var Rules = []Rule{
	{
		Why:  "the wire types are a leaf, so that everybody can share them",
		From: []string{"./daemon/api"}, Only: []string{},
	},
	{
		Why:  "another program can take the client along without the daemon",
		From: []string{"./daemon/client"}, Only: []string{"./daemon/api"},
	},
	{
		Why:  "the contract of sandboxes is a leaf",
		From: []string{"./runtime/sandbox"}, Only: []string{},
	},
	{
		Why:  "the engine knows interfaces, never what is behind them",
		From: []string{"./daemon/session"}, Only: []string{"./daemon/api", "./daemon/export", "./daemon/outlog", "./daemon/progress", "./internal/meminfo", "./internal/treetar", "./runtime/sandbox", "./uploader"},
	},
	{
		Why:  "the layout of an archive depends on what cells are, and on nothing that makes them",
		From: []string{"./daemon/export"}, Only: []string{"./daemon/api"},
	},
	{
		Why:  "the engine stays free of what its dependencies might bring in",
		From: []string{"./daemon/session"}, Never: append([]string{"./daemon", "./daemon/httpapi/..."}, implementations...),
	},
	{
		Why:  "the store keeps the engine's records and knows nothing else",
		From: []string{"./daemon/store"}, Only: []string{"./daemon/session", "./daemon/api", "./uploader"},
	},
	{
		Why:  "routes speak to the engine, not to what it works with",
		From: []string{"./daemon/httpapi"}, Only: []string{"./daemon/api", "./daemon/outlog", "./daemon/session"},
	},
	{
		Why:  "a store of cells knows the uploader's interface only",
		From: []string{"./uploader/s3", "./uploader/local"}, Only: []string{"./uploader"},
	},
	{
		Why:  "the uploader declares its stores and imports none",
		From: []string{"./uploader"}, Only: []string{},
	},
	{
		Why:  "sandboxes, images, skills and uploads can be used and tested without the daemon",
		From: []string{"./runtime/...", "./rootfs/...", "./skills/...", "./uploader/..."}, Never: []string{"./daemon/...", "./cmd/..."}, Tests: true,
	},
	{
		Why:  "what parses packets runs in a process without rights, not in the daemon",
		From: []string{"./runtime/gate", "./daemon/...", "./cmd/sandboxd"}, Never: []string{"./runtime/gate/process/...", "gvisor.dev/gvisor/pkg/tcpip/..."},
	},
	{
		Why:    "one place decides what stands behind each interface",
		From:   []string{"./..."},
		Except: []string{"./daemon", "./cmd/sandbox-gate", "./cmd/sandbox-init", "./runtime/gate/...", "./uploader/s3/...", "./uploader/local/...", "./daemon/daemontest", "./internal/bench"},
		// daemontest opens a store to look for damage after a test; bench
		// measures one without the daemon.
		Unnamed: implementations,
	},
	{
		Why:  "sandboxctl reaches chats through the client; only `image` works on files",
		From: []string{"./cmd/sandboxctl/..."},
		Only: []string{"./cmd/sandboxctl/cli", "./cmd/sandboxctl/gallery", "./cmd/sandboxctl/mcp", "./daemon/api", "./daemon/client", "./daemon/progress", "./internal/treetar", "./internal/version", "./rootfs", "./skills"},
	},
	{
		Why:  "helpers of tests stay in tests and benchmarks",
		From: []string{"./..."}, Except: append([]string{"./internal/bench"}, testHelpers...),
		Unnamed: append([]string{"testing"}, testHelpers...),
	},
}

// Check returns what breaks the rules, one line each, sorted. A rule with a
// From pattern that matches no package is reported as well: it would hold for
// ever.
func Check(g Graph, rules []Rule) []string {
	var wrong []string
	for _, r := range rules {
		for _, pattern := range r.From {
			if !matchesAny(g, pattern) {
				wrong = append(wrong, fmt.Sprintf("no package matches %s (rule: %s)", pattern, r.Why))
			}
		}
		for pkg := range g {
			if r.binds(pkg) {
				wrong = append(wrong, r.check(g, pkg)...)
			}
		}
	}
	slices.Sort(wrong)
	return slices.Compact(wrong)
}

func matchesAny(g Graph, pattern string) bool {
	for pkg := range g {
		if match([]string{pattern}, pkg) {
			return true
		}
	}
	return false
}

func (r Rule) binds(pkg string) bool {
	name, test := strings.CutSuffix(pkg, TestSuffix)
	return ours(name) && (!test || r.Tests) && match(r.From, name) && !match(r.Except, name)
}

func (r Rule) check(g Graph, pkg string) []string {
	var wrong []string
	for _, to := range g[pkg] {
		if r.Only != nil && ours(to) && !match(r.Only, to) || match(r.Unnamed, to) {
			wrong = append(wrong, fmt.Sprintf("%s imports %s (rule: %s)", pkg, to, r.Why))
		}
	}
	if chain := reach(g, pkg, r.Never); chain != nil {
		wrong = append(wrong, fmt.Sprintf("%s (rule: %s)", strings.Join(chain, " → "), r.Why))
	}
	return wrong
}

// reach returns the shortest chain of imports from pkg to what the patterns
// match, or nil. The package itself does not count.
func reach(g Graph, pkg string, patterns []string) []string {
	from := map[string]string{pkg: ""}
	for queue := []string{pkg}; len(queue) > 0; queue = queue[1:] {
		for _, to := range g[queue[0]] {
			if _, seen := from[to]; seen {
				continue
			}
			from[to] = queue[0]
			if !match(patterns, to) {
				queue = append(queue, to)
				continue
			}
			chain := []string{to}
			for at := queue[0]; at != ""; at = from[at] {
				chain = append(chain, at)
			}
			slices.Reverse(chain)
			return chain
		}
	}
	return nil
}

// match tells whether a pattern matches the package.
func match(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		dir, tree := strings.CutSuffix(p, "...")
		return p == pkg || tree && strings.HasPrefix(pkg+"/", dir)
	})
}

// ours tells whether a node is a package of this module.
func ours(pkg string) bool { return strings.HasPrefix(pkg, "./") }
