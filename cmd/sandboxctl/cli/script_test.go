package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/internal/testenv"
	"mediasandbox/runtime/sandbox"
)

// TestScripts runs the built programs as a user does, over a real daemon. Each
// script has a chat of its own, which is named in its environment.
//
// Beside testscript's own commands the scripts have these:
//
//	exits CODE PROGRAM ARG...     runs and wants that exit code
//	refused CODE REGEXP ARG...    runs sandboxctl and wants that exit code, nothing on
//	                              stdout and one line, perhaps with a hint, on stderr
//	until REGEXP PROGRAM ARG...   runs again and again until stdout matches
//	jsonlines [TYPE]              wants stdout to be JSON objects, a line each, the last of that type
//	setenv NAME                   sets a variable to the last stdout
func TestScripts(t *testing.T) {
	index := startIndex(t)
	d := daemontest.Start(t, func(c *config.Config) {
		c.Limits.Memory = 512 << 20
		c.Network.Services = []sandbox.NetworkService{index}
	})
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               func(env *testscript.Env) error { return setupScript(t, d, env) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": cmdExits, "refused": cmdRefused, "until": cmdUntil, "jsonlines": cmdJSONLines, "setenv": cmdSetenv,
		},
	})
}

// startIndex serves on loopback what sandboxes find as index.internal.
func startIndex(t *testing.T) sandbox.NetworkService {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the index") }))
	t.Cleanup(server.Close)
	s, err := sandbox.ParseNetworkService("index.internal:80 = " + server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func setupScript(t *testing.T, d *daemontest.Daemon, env *testscript.Env) error {
	chat := filepath.Base(env.WorkDir)
	if _, err := d.CreateChat(context.Background(), api.NewChat{ID: chat}); err != nil {
		return err
	}
	env.Defer(func() {
		var gone *api.Error
		if err := d.DeleteChat(context.Background(), chat); err != nil && (!errors.As(err, &gone) || gone.Code != api.CodeChatNotFound) {
			t.Error(err)
		}
	})
	env.Setenv("PATH", testenv.Bin(t, "")+":"+os.Getenv("PATH"))
	env.Setenv("MEDIA_SANDBOX_SOCKET", d.Socket())
	env.Setenv("MEDIA_SANDBOX_CHAT", chat)
	env.Setenv("STATE", d.Config.Paths.StateDir)
	env.Setenv("IMAGE", d.Config.Paths.Image)
	env.Setenv("MEDIA", filepath.Dir(testenv.Media(t, "x")))
	env.Setenv("HOME", env.WorkDir)
	return nil
}

func runProgram(ts *testscript.TestScript, program string, args []string) int {
	err := ts.Exec(program, args...)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Fatalf("%s: %v", program, err)
	}
	if exit != nil {
		return exit.ExitCode()
	}
	return 0
}

func wantCode(ts *testscript.TestScript, want string, got int) {
	code, err := strconv.Atoi(want)
	ts.Check(err)
	if got != code {
		ts.Fatalf("exit code %d, want %d", got, code)
	}
}

func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG...")
	}
	wantCode(ts, args[0], runProgram(ts, args[1], args[2:]))
}

func cmdRefused(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: refused CODE REGEXP ARG...")
	}
	wantCode(ts, args[0], runProgram(ts, "sandboxctl", args[2:]))
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("printed %q", out)
	}
	line, hint, _ := strings.Cut(ts.ReadFile("stderr"), "\n")
	if !strings.HasPrefix(line, "sandboxctl: ") || hint != "" && (!strings.HasPrefix(hint, "  hint: ") || strings.Count(hint, "\n") != 1) {
		ts.Fatalf("stderr is not one line with a hint at most")
	}
	if !regexp.MustCompile(args[1]).MatchString(line) {
		ts.Fatalf("%q does not match %q", line, args[1])
	}
}

func cmdUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP PROGRAM ARG...")
	}
	want := regexp.MustCompile("(?m)" + args[0])
	for deadline := time.Now().Add(30 * time.Second); ; <-time.After(50 * time.Millisecond) {
		runProgram(ts, args[1], args[2:])
		if want.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("stdout never matched %q", args[0])
		}
	}
}

func cmdJSONLines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: jsonlines [TYPE]")
	}
	var last struct{ Type string }
	out := ts.ReadFile("stdout")
	if out == "" || !strings.HasSuffix(out, "\n") {
		ts.Fatalf("stdout has no whole line")
	}
	for line := range strings.Lines(out) {
		last.Type = ""
		d := json.NewDecoder(bytes.NewReader([]byte(line)))
		var object map[string]any
		ts.Check(d.Decode(&object))
		last.Type, _ = object["type"].(string)
		if d.More() {
			ts.Fatalf("more than one object in the line %q", line)
		}
	}
	if len(args) == 1 && last.Type != args[0] {
		ts.Fatalf("the last line's type is %q, want %q", last.Type, args[0])
	}
}

func cmdSetenv(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: setenv NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}
