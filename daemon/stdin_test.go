package daemon_test

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
)

// TestStreamedInput sends more than any buffer holds, as it is made.
func TestStreamedInput(t *testing.T) {
	d := daemontest.Start(t)
	cmd, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: "sha256sum", Stream: true})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	if err := d.Feed(t.Context(), api.DefaultChat, cmd.ID, io.TeeReader(io.LimitReader(rand.Reader, 5<<20), sum)); err != nil {
		t.Fatal(err)
	}
	if cmd, err = d.Wait(t.Context(), api.DefaultChat, cmd.ID); err != nil {
		t.Fatal(err)
	}
	if out, _ := d.Printed(succeeded(t, d, cmd)); out != fmt.Sprintf("%x  -\n", sum.Sum(nil)) {
		t.Errorf("the command got something else: %s", out)
	}
	if err := d.Feed(t.Context(), api.DefaultChat, cmd.ID, strings.NewReader("x")); code(err) != api.CodeCommandEnded {
		t.Errorf("feeding an ended command: %v", err)
	}
	plain, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: "sleep 60"})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Feed(t.Context(), api.DefaultChat, plain.ID, strings.NewReader("x")); code(err) != api.CodeInvalid {
		t.Errorf("feeding a command without a stream: %v", err)
	}
	if err := d.Client.Kill(t.Context(), api.DefaultChat, plain.ID, 0); err != nil {
		t.Fatal(err)
	}
}

func TestTerminal(t *testing.T) {
	d := daemontest.Start(t)
	cmd, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{
		Shell: "tty; stty size; read -r name; echo hello $name; trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.1; done",
		TTY:   &api.TTY{Rows: 24, Cols: 80},
	})
	if err != nil {
		t.Fatal(err)
	}
	keys, typist := io.Pipe()
	fed := make(chan error, 1)
	go func() { fed <- d.Feed(t.Context(), api.DefaultChat, cmd.ID, keys) }()
	waitFor(t, d, cmd, "24 80")
	if _, err := io.WriteString(typist, "you\n"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, d, cmd, "ready")
	if err := d.Resize(t.Context(), api.DefaultChat, cmd.ID, api.TTY{Rows: 50, Cols: 132}); err != nil {
		t.Fatal(err)
	}
	if cmd, err = d.Wait(t.Context(), api.DefaultChat, cmd.ID); err != nil {
		t.Fatal(err)
	}
	if err := typist.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-fed; err != nil {
		t.Error(err)
	}
	out, stderr := d.Printed(cmd)
	want := []string{"/dev/pts/", "24 80", "hello you", "50 132"}
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("the terminal shows %q, want %q in it", out, w)
		}
	}
	if cmd.State != api.StateFailed || exitCode(cmd) != 5 || stderr != "" {
		t.Errorf("%s (%s), %q", cmd.State, cmd.Reason, stderr)
	}
}

// TestTerminalInterrupt types a ^C, and the end of input.
func TestTerminalInterrupt(t *testing.T) {
	d := daemontest.Start(t)
	for keys, want := range map[string]int{"\x03": 7, "": 3} {
		cmd, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{
			Shell: "trap 'exit 7' INT; echo ready; cat; exit 3", TTY: &api.TTY{Rows: 24, Cols: 80},
		})
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, d, cmd, "ready")
		if err := d.Feed(t.Context(), api.DefaultChat, cmd.ID, strings.NewReader(keys)); err != nil {
			t.Fatal(err)
		}
		if cmd, err = d.Wait(t.Context(), api.DefaultChat, cmd.ID); err != nil || exitCode(cmd) != want {
			t.Errorf("after %q: %s (%s), want code %d, %v", keys, cmd.State, cmd.Reason, want, err)
		}
	}
}
