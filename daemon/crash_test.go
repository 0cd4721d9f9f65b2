package daemon_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/internal/testenv"
	"mediasandbox/runtime/hostproc"
)

// TestDaemonIsKilledAndComesBack kills the daemon twice in the middle of a
// command: the command goes on, its output is complete, and outputs that were
// finished while nobody looked become cells.
func TestDaemonIsKilledAndComesBack(t *testing.T) {
	p := daemontest.Spawn(t)
	cmd, err := p.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: `
		echo early >/outputs/early.txt
		i=0; while [ $i -lt 40 ]; do echo line $i; echo note $i >&2; i=$((i+1)); sleep 0.1; done
		echo late >/outputs/late.txt; exit 9`})
	if err != nil {
		t.Fatal(err)
	}
	// A follower who stays connected through the crashes.
	followed := make(chan string, 1)
	go func() {
		var out strings.Builder
		_, err := p.Client.Output(t.Context(), api.DefaultChat, cmd.ID, true, func(c api.OutputChunk) error {
			if c.Stream == "stdout" {
				out.Write(c.Data)
			}
			return nil
		})
		followed <- fmt.Sprint(out.String(), err)
	}()
	for _, until := range []string{"line 5\n", "line 15\n"} {
		waitFor(t, p.Daemon, cmd, until)
		p.Kill()
		p.Again()
	}
	cmd, err = p.Wait(t.Context(), api.DefaultChat, cmd.ID)
	if err != nil {
		t.Fatal(err)
	}
	if cmd.State != api.StateFailed || exitCode(cmd) != 9 {
		t.Errorf("it ended as %s (%s)\n%s", cmd.State, cmd.Reason, p.Log())
	}
	var want, wantErr strings.Builder
	for i := range 40 {
		fmt.Fprintf(&want, "line %d\n", i)
		fmt.Fprintf(&wantErr, "note %d\n", i)
	}
	out, errs := p.Printed(cmd)
	if out != want.String() || errs != wantErr.String() {
		t.Errorf("output was lost or doubled:\n%s\n%s", out, errs)
	}
	if got := <-followed; got != want.String()+"<nil>" {
		t.Errorf("the follower saw %s", got)
	}
	cells, err := p.Cells(t.Context(), api.DefaultChat)
	if err != nil {
		t.Fatal(err)
	}
	if len(cells) != 2 || cells[0].File.Name != "early.txt" || cells[1].File.Name != "late.txt" || cells[1].Revision != 1 {
		t.Errorf("cells: %+v", cells)
	}
	if got := string(content(t, p.Daemon, 2)); got != "late\n" {
		t.Errorf("the late file holds %q", got)
	}
}

// TestSandboxDiesWhileTheDaemonIsAway ends daemon and sandbox: what was running
// is lost and says so, what was finished before is a cell, nothing leaks.
func TestSandboxDiesWhileTheDaemonIsAway(t *testing.T) {
	p := daemontest.Spawn(t)
	cmd, err := p.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: "echo done >/outputs/done.txt; echo up; sleep 300"})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, p.Daemon, cmd, "up\n")
	p.Kill()
	killSandboxes(t, p.Dir)
	p.Again()
	cmd, err = p.Command(t.Context(), api.DefaultChat, cmd.ID)
	if err != nil {
		t.Fatal(err)
	}
	if cmd.State != api.StateLost || !strings.Contains(cmd.Reason, "while the daemon was away") {
		t.Errorf("it ended as %s (%s)\n%s", cmd.State, cmd.Reason, p.Log())
	}
	if len(cmd.Cells) != 1 || string(content(t, p.Daemon, 1)) != "done\n" {
		t.Errorf("cells: %+v", cmd.Cells)
	}
	if left := leftoversBeside(t, p.Dir, "sandboxd"); len(left) > 0 {
		t.Errorf("left on the host: %q", left)
	}
	succeeded(t, p.Daemon, p.Shell("true"))
}

// waitFor waits until a command has printed text.
func waitFor(t *testing.T, d *daemontest.Daemon, cmd api.Command, text string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		if out, _ := d.Printed(cmd); strings.Contains(out, text) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the command did not print %q", text)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// killSandboxes ends the sandbox processes of a daemon's directory.
func killSandboxes(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "run", "runsc", "sandboxes", "*", "process.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no sandbox to end: %v", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var ref hostproc.Ref
		if err := json.Unmarshal(text, &ref); err != nil {
			t.Fatal(err)
		}
		if err := ref.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// leftoversBeside is what of a daemon is on the host beside the daemon itself.
func leftoversBeside(t *testing.T, dir, program string) []string {
	t.Helper()
	return slices.DeleteFunc(testenv.Leftovers(t, dir), func(s string) bool { return strings.Contains(s, program+" serve") })
}
