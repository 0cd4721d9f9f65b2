package daemon_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/runtime/hostproc"
)

// sentryOf is the process of the default chat's sandbox.
func sentryOf(t *testing.T, d *daemontest.Daemon) hostproc.Ref {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(d.Config.Paths.RunDir, "runsc", "sandboxes", d.SandboxID(), "process.json"))
	if err != nil {
		t.Fatal(err)
	}
	var ref hostproc.Ref
	if err := json.Unmarshal(body, &ref); err != nil {
		t.Fatal(err)
	}
	return ref
}

// TestUnresponsiveSandboxHoldsUpNobody starts a daemon over two chats, of which
// one has a sandbox that stands still.
func TestUnresponsiveSandboxHoldsUpNobody(t *testing.T) {
	p := daemontest.Spawn(t)
	ctx := t.Context()
	if _, err := p.CreateChat(ctx, api.NewChat{ID: "other"}); err != nil {
		t.Fatal(err)
	}
	other := func() api.Command {
		t.Helper()
		cmd, err := p.Client.Start(ctx, "other", api.NewCommand{Shell: "cat /workspace/x 2>/dev/null; echo x >/workspace/x"})
		if err == nil {
			cmd, err = p.Wait(ctx, "other", cmd.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	other()
	// The file is closed and quiet, but not published when the daemon dies.
	cmd, err := p.Client.Start(ctx, api.DefaultChat, api.NewCommand{Shell: "echo done >/outputs/done.txt; echo said; sleep 1000"})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, p.Daemon, cmd, "said\n")
	sentry := sentryOf(t, p.Daemon)
	p.Kill()
	if err := unix.Kill(sentry.PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.Again()
	if cmd := other(); cmd.State != api.StateSucceeded || cmd.FilesLost {
		t.Errorf("the other chat: %s (%s)", cmd.State, cmd.Reason)
	} else if out, _ := p.Printed(cmd); out != "x\n" {
		t.Errorf("the other chat has %q", out)
	}
	if cmd, err = p.Command(ctx, api.DefaultChat, cmd.ID); err != nil || cmd.State != api.StateRunning {
		t.Fatalf("what ran in the sandbox that stands still is %s (%s), %v", cmd.State, cmd.Reason, err)
	}
	if chats, err := p.Chats(ctx); err != nil || len(chats) != 2 {
		t.Errorf("chats: %+v, %v", chats, err)
	}
	if err := unix.Kill(sentry.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if cmd, err = p.Wait(ctx, api.DefaultChat, cmd.ID); err != nil || cmd.State != api.StateLost || !strings.Contains(cmd.Reason, "away") {
		t.Errorf("it ended as %s (%s), %v", cmd.State, cmd.Reason, err)
	}
	if out, _ := p.Printed(cmd); out != "said\n" {
		t.Errorf("it printed %q", out)
	}
	if len(cmd.Cells) != 1 || cmd.Cells[0].File.Name != "done.txt" {
		t.Errorf("its cells: %+v", cmd.Cells)
	}
	if after := succeeded(t, p.Daemon, p.Shell("true")); !after.FilesLost {
		t.Error("the next command does not say that files were lost")
	}
}

// TestGuestStopsItsInit lets a guest stop its PID 1, which then neither answers
// nor ends anything: cancel and timeout still end the command, what it finished
// is published, and the chat goes on in a new sandbox.
func TestGuestStopsItsInit(t *testing.T) {
	d := daemontest.Start(t)
	for name, end := range map[string]struct {
		timeout float64
		want    api.State
	}{"canceled": {0, api.StateCanceled}, "timed out": {3, api.StateTimedOut}} {
		cmd, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{
			Shell: "echo " + strings.Fields(name)[0] + " >/outputs/" + strings.Fields(name)[0] + ".txt; echo said; sleep 1; kill -STOP 1; touch stopped; sleep 1000", Timeout: end.timeout,
		})
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, d, cmd, "said\n")
		if end.timeout == 0 {
			deadline := time.Now().Add(20 * time.Second)
			for stopped := false; !stopped; { // the file is the host's to see
				_, err := d.StatFile(t.Context(), api.DefaultChat, "/workspace/stopped")
				if stopped = err == nil; time.Now().After(deadline) {
					t.Fatal(err)
				}
			}
			if err := d.Client.Kill(t.Context(), api.DefaultChat, cmd.ID, 0); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd, err = d.Client.Wait(ctx, api.DefaultChat, cmd.ID)
		if err != nil || cmd.State != end.want {
			t.Fatalf("%s: it is %s (%s), %v", name, cmd.State, cmd.Reason, err)
		}
		if len(cmd.Cells) != 1 {
			t.Errorf("%s: its cells are %+v", name, cmd.Cells)
		}
		if next := d.Shell("true"); next.State != api.StateSucceeded || !next.FilesLost {
			t.Errorf("%s: then %+v", name, next)
		}
	}
}
