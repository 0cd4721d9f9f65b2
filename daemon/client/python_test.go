package client_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

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

// TestPythonClientOverRestarts kills the daemon twice under a client that
// follows a command and its chat: it misses nothing and is told nothing twice.
func TestPythonClientOverRestarts(t *testing.T) {
	p := daemontest.Spawn(t)
	root, err := filepath.Abs("python")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", filepath.Join(root, "tests", "restart.py"))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+root, "PYTHONDONTWRITEBYTECODE=1", "MEDIA_SANDBOX_SOCKET="+p.Config.Paths.Socket)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for want := range slices.Values([]string{"up", "whole"}) {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("it printed %q, want %q", lines.Text(), want)
			break
		}
		if want == "up" {
			for range 2 {
				p.Kill()
				<-time.After(300 * time.Millisecond) // the client meets nobody
				p.Again()
				<-time.After(300 * time.Millisecond)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, said.String())
	}
}

// TestPythonOutputIsWholeOverABadLine: connections that break in the middle of
// an answer cost the follower nothing.
func TestPythonOutputIsWholeOverABadLine(t *testing.T) {
	d := daemontest.Start(t)
	bad, breaks := badLine(t, d.Config.Paths.Socket, 400<<10)
	root, err := filepath.Abs("python")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", filepath.Join(root, "tests", "badline.py"))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+root, "PYTHONDONTWRITEBYTECODE=1", "MEDIA_SANDBOX_SOCKET="+d.Config.Paths.Socket, "BAD_SOCKET="+bad)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if breaks.Load() < 3 {
		t.Errorf("the line broke %d times", breaks.Load())
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
