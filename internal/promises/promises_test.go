// Package promises holds docs/security.md to the tests it names.
package promises

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"mediasandbox/internal/testenv"
)

// TestPromisesNameTests looks for every test that the page names, and for one in
// every row of its promises.
func TestPromisesNameTests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(testenv.Root(t), "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	there := tests(t)
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`")
	for _, found := range named.FindAllStringSubmatch(string(page), -1) {
		if !there[found[1]] {
			t.Errorf("docs/security.md names %s, and there is no such test", found[1])
		}
	}
	_, rest, _ := strings.Cut(string(page), "## Promises")
	promises, _, _ := strings.Cut(rest, "\n## ")
	rows := 0
	for line := range strings.Lines(promises) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| promise") {
			continue
		}
		if rows++; !named.MatchString(line) {
			t.Errorf("no test holds: %s", line)
		}
	}
	if rows < 20 {
		t.Errorf("the page holds %d promises", rows)
	}
}

// tests are the names of the module's tests and fuzz targets.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	err := filepath.WalkDir(testenv.Root(t), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 1 {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil {
				names[f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
