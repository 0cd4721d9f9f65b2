package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"mediasandbox/daemon/daemontest"
	"mediasandbox/internal/testenv"
)

// onTerminal runs sandboxctl with all its streams on a new terminal and returns
// what that shows.
func onTerminal(t *testing.T, d *daemontest.Daemon, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command(testenv.Bin(t, "sandboxctl"), args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "TERM=xterm", "MEDIA_SANDBOX_SOCKET=" + d.Socket()}, env...)
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 160})
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	var shown bytes.Buffer
	// The terminal's end reads as EIO once the last program has left it.
	if _, err := io.Copy(&shown, terminal); err != nil && !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("sandboxctl %q: %v\n%s", args, err, shown.String())
	}
	return shown.String()
}

func TestTerminalGetsColourAndProgress(t *testing.T) {
	d := daemontest.Start(t)
	if cmd := d.Shell("echo x >/outputs/x.txt"); len(cmd.Cells) != 1 {
		t.Fatalf("%+v", cmd)
	}
	big := testenv.Dir(t) + "/big.bin"
	if err := os.WriteFile(big, make([]byte, 64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ line, want string }{
		{"cells", "\x1b[" + green + "mfile\x1b[0m"},
		{"ps --all", "\x1b[" + green + "msucceeded\x1b[0m"},
		{"put " + big, "%"},
	} {
		if shown := onTerminal(t, d, nil, strings.Fields(tt.line)...); !strings.Contains(shown, tt.want) {
			t.Errorf("%s shows no %q:\n%q", tt.line, tt.want, shown)
		}
	}
	if shown := onTerminal(t, d, []string{"NO_COLOR=1"}, "cells"); strings.Contains(shown, "\x1b[") || !strings.Contains(shown, "x.txt") {
		t.Errorf("with NO_COLOR it shows %q", shown)
	}
}

// TestShell types into a shell as a person would: a line, an interrupt that
// ends a program and not the shell, and the end.
func TestShell(t *testing.T) {
	d := daemontest.Start(t)
	cmd := exec.Command(testenv.Bin(t, "sandboxctl"), "shell")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TERM=xterm", "MEDIA_SANDBOX_SOCKET=" + d.Socket()}
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 111})
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	patience := time.AfterFunc(60*time.Second, func() { _ = cmd.Process.Kill() }) // then reading fails
	defer patience.Stop()
	var shown string // since the last thing that was expected
	expect := func(want string) {
		t.Helper()
		buf := make([]byte, 4096)
		for !strings.Contains(shown, want) {
			n, err := terminal.Read(buf)
			shown += string(buf[:n])
			if err != nil {
				t.Fatalf("no %q: %v\n%s", want, err, shown)
			}
		}
		_, shown, _ = strings.Cut(shown, want)
	}
	say := func(keys string) {
		t.Helper()
		if _, err := terminal.WriteString(keys); err != nil {
			t.Fatal(err)
		}
	}
	const prompt = "# " // typed before it shows, keys may get lost in gVisor's terminal
	expect(prompt)
	say("stty size; echo made >/outputs/shell.txt\r")
	expect("33 111")
	expect(prompt)
	// What is typed shows too; the program says that it is in the foreground.
	say("sh -c 'echo slee\"\"ping; exec sleep 1000'\r")
	expect("sleeping")
	say("\x03")
	expect(prompt)
	say("echo awa''ke again\r")
	expect("awake again")
	expect(prompt)
	say("exit 6\r")
	expect("shell.txt")
	if _, err := io.Copy(io.Discard, terminal); err != nil && !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 6 {
		t.Errorf("it ended with %v\n%s", err, shown)
	}
}
