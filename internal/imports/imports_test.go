package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mediasandbox/internal/testenv"
)

const module = "mediasandbox"

// TestDirections holds the real packages against Rules.
func TestDirections(t *testing.T) {
	g := readGraph(t)
	if len(g["./daemon"]) == 0 || len(g["./daemon"+TestSuffix]) == 0 {
		t.Fatalf("the graph of %d packages lacks the daemon", len(g))
	}
	for _, wrong := range Check(g, Rules) {
		t.Error(wrong)
	}
}

// readGraph asks the go command for every package of the module and for what
// they are made of.
func readGraph(t *testing.T) Graph {
	t.Helper()
	lookAtSources(t)
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,TestImports,XTestImports", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the packages: %v: %s", err, stderr.String())
	}
	g := make(Graph)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
		}
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return g
		}
		if err != nil {
			t.Fatalf("read the list of packages: %v", err)
		}
		g[node(p.ImportPath)] = nodes(p.Imports)
		if tests := slices.Concat(p.TestImports, p.XTestImports); len(tests) > 0 {
			g[node(p.ImportPath)+TestSuffix] = nodes(tests)
		}
	}
}

// lookAtSources looks at every Go file of the module. What the go command reads
// does not count when `go test` decides whether an earlier result still holds;
// what the test itself looks at does.
func lookAtSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(testenv.Root(t), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"bin", "dist", "demo-output"}, d.Name())) {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatalf("look at the sources: %v", err)
	}
}

func nodes(paths []string) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = node(p)
	}
	return out
}

func node(path string) string {
	if rest, ok := strings.CutPrefix(path, module+"/"); ok {
		return "./" + rest
	}
	return path
}

// TestRulesBite breaks each of the directions that DESIGN names, one at a
// time, in a graph that keeps them all.
func TestRulesBite(t *testing.T) {
	whole := readGraph(t)
	tests := []struct{ from, to, want string }{
		{"./daemon/session", "./daemon/store", "./daemon/session imports ./daemon/store"},
		{"./daemon/session", "./runtime/runsc", "./daemon/session imports ./runtime/runsc"},
		{"./daemon/store", "./runtime/sandbox", "./daemon/store imports ./runtime/sandbox"},
		{"./daemon/client", "./internal/version", "./daemon/client imports ./internal/version"},
		{"./daemon/api", "./daemon/config", "./daemon/api imports ./daemon/config"},
		{"./runtime/runsc", "./daemon/api", "./runtime/runsc → ./daemon/api"},
		{"./runtime/guest" + TestSuffix, "./daemon/daemontest", "./runtime/guest [test] → ./daemon/daemontest"},
		{"./rootfs", "./daemon/config", "./rootfs → ./daemon/config"},
		{"./skills", "./daemon/api", "./skills → ./daemon/api"},
		{"./uploader", "./daemon/api", "./uploader/s3 → ./uploader → ./daemon/api"},
		{"./uploader", "./uploader/local", "./uploader imports ./uploader/local"},
		{"./uploader/s3", "./runtime/sandbox", "./uploader/s3 imports ./runtime/sandbox"},
		{"./runtime/gate", "./runtime/gate/process", "./runtime/gate → ./runtime/gate/process"},
		{"./runtime/sandbox", "gvisor.dev/gvisor/pkg/tcpip", "./daemon/session → ./runtime/sandbox → gvisor.dev/gvisor/pkg/tcpip"},
		{"./daemon/serve", "./uploader/s3", "./daemon/serve imports ./uploader/s3"},
		{"./cmd/sandboxctl/cli", "./daemon/session", "./cmd/sandboxctl/cli imports ./daemon/session"},
		{"./daemon/httpapi", "./internal/testenv", "./daemon/httpapi imports ./internal/testenv"},
	}
	for _, tt := range tests {
		t.Run(tt.from+" to "+tt.to, func(t *testing.T) {
			g := make(Graph, len(whole))
			for pkg, to := range whole {
				g[pkg] = to
			}
			g[tt.from] = append(slices.Clone(g[tt.from]), tt.to)
			got := strings.Join(Check(g, Rules), "\n")
			if !strings.Contains(got, tt.want) {
				t.Errorf("got\n%s\nwant %q", got, tt.want)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	g := Graph{
		"./heart":          {"./leaf", "fmt", "runtime"},
		"./heart [test]":   {"./shell"},
		"./leaf":           {"example.org/lib"},
		"./shell":          {"./heart", "./shell/inner"},
		"./shell/inner":    {"./deep"},
		"./shellfish":      {},
		"./deep":           {"./leaf"},
		"./runtime":        {},
		"example.org/lib":  {"example.org/big/part"},
		"example.org/big/": {},
	}
	tests := []struct {
		name string
		rule Rule
		want []string
	}{
		{"only what it may", Rule{From: []string{"./heart"}, Only: []string{"./leaf"}}, nil},
		{"the standard library's runtime is not ours", Rule{From: []string{"./heart"}, Never: []string{"./runtime"}}, nil},
		{"only nothing", Rule{From: []string{"./heart"}, Only: []string{}}, []string{"./heart imports ./leaf"}},
		{"tests are not bound", Rule{From: []string{"./heart"}, Never: []string{"./shell/..."}}, nil},
		{"tests are bound", Rule{From: []string{"./heart"}, Never: []string{"./shell/..."}, Tests: true}, []string{"./heart [test] → ./shell"}},
		{"a chain", Rule{From: []string{"./shell"}, Never: []string{"./deep"}}, []string{"./shell → ./shell/inner → ./deep"}},
		{"a chain through others' packages", Rule{From: []string{"./deep"}, Never: []string{"example.org/big/..."}}, []string{"./deep → ./leaf → example.org/lib → example.org/big/part"}},
		{"a tree holds its root, and no neighbour", Rule{From: []string{"./shell/..."}, Unnamed: []string{"./deep", "./heart"}}, []string{"./shell imports ./heart", "./shell/inner imports ./deep"}},
		{"everybody but", Rule{From: []string{"./..."}, Except: []string{"./heart", "./deep"}, Unnamed: []string{"./leaf"}}, nil},
		{"everybody", Rule{From: []string{"./..."}, Except: []string{"./heart"}, Unnamed: []string{"./leaf"}}, []string{"./deep imports ./leaf"}},
		{"a rule for nobody", Rule{From: []string{"./gone"}, Never: []string{"./leaf"}}, []string{"no package matches ./gone"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, line := range Check(g, []Rule{tt.rule}) {
				line, _, _ = strings.Cut(line, " (rule:")
				got = append(got, line)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
