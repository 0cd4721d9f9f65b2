package client_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"mediasandbox/daemon/daemontest"
)

// TestPythonClient runs the Python client's own tests, and the examples of its
// README, against a daemon.
func TestPythonClient(t *testing.T) {
	d := daemontest.Start(t)
	root, err := filepath.Abs("python")
	if err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]struct {
		args []string
		ran  *regexp.Regexp // what Python says when there was something to run
	}{
		"tests":  {[]string{"-W", "error", "-m", "unittest", "discover", "-v", "-s", filepath.Join(root, "tests")}, regexp.MustCompile(`(?m)^Ran [1-9]`)},
		"README": {[]string{"-m", "doctest", "-v", filepath.Join(root, "README.md")}, regexp.MustCompile(`(?m)^[1-9][0-9]* passed`)},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "python3", run.args...)
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "PYTHONPATH="+root, "PYTHONDONTWRITEBYTECODE=1", "MEDIA_SANDBOX_SOCKET="+d.Config.Paths.Socket)
			out, err := cmd.CombinedOutput()
			if err != nil || !run.ran.Match(out) {
				t.Errorf("%v\n%s", err, out)
			}
			t.Logf("%s", run.ran.Find(out))
		})
	}
}

// TestPythonErrors: each code of the API has an exception of its own.
func TestPythonErrors(t *testing.T) {
	codes, err := os.ReadFile(filepath.Join("..", "api", "errors.go"))
	if err != nil {
		t.Fatal(err)
	}
	exceptions, err := os.ReadFile(filepath.Join("python", "mediasandbox", "errors.py"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`Code = "([a-z_]+)"`).FindAllSubmatch(codes, -1)
	if len(found) < 20 {
		t.Fatalf("%d codes were found", len(found))
	}
	for _, code := range found {
		if !bytes.Contains(exceptions, append(append([]byte(`code = "`), code[1]...), '"')) {
			t.Errorf("%s has no exception", code[1])
		}
	}
}
