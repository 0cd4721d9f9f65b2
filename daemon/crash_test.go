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
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
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
	cmd, err = p.Wait(t.Context(), api.DefaultChat, cmd.ID)
	if err != nil {
		t.Fatal(err)
	}
	if cmd.State != api.StateLost || !strings.Contains(cmd.Reason, "while the daemon was away") {
		t.Errorf("it ended as %s (%s)\n%s", cmd.State, cmd.Reason, p.Log())
	}
	if len(cmd.Cells) != 1 || string(content(t, p.Daemon, 1)) != "done\n" {
		t.Errorf("cells: %+v", cmd.Cells)
	}
	if left := leftoversBeside(p.Daemon, "sandboxd"); len(left) > 0 {
		t.Errorf("left on the host: %q", left)
	}
	succeeded(t, p.Daemon, p.Shell("true"))
}

// waitFor waits until a command has printed text; longer than a boot may take.
func waitFor(t *testing.T, d *daemontest.Daemon, cmd api.Command, text string) {
	t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for {
		if out, _ := d.Printed(cmd); strings.Contains(out, text) {
			return
		}
		if time.Now().After(deadline) {
			now, err := d.Client.Command(t.Context(), cmd.Chat, cmd.ID)
			t.Fatalf("the command of %s did not print %q: it is %s (%s), created %s, started %v; %v",
				cmd.Chat, text, now.State, now.Reason, now.CreatedAt, now.StartedAt, err)
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
func leftoversBeside(d *daemontest.Daemon, program string) []string {
	return slices.DeleteFunc(d.Leftovers(), func(s string) bool { return strings.Contains(s, program+" serve") })
}

// TestRestartUnderLoad kills the daemon while ten chats run commands, and then
// once more while they end.
func TestRestartUnderLoad(t *testing.T) {
	p := daemontest.Spawn(t)
	type job struct {
		chat string
		cmd  api.Command
	}
	var jobs []job
	for i := range 10 {
		chat, err := p.CreateChat(t.Context(), api.NewChat{ID: fmt.Sprintf("chat-%d", i)})
		if err != nil {
			t.Fatal(err)
		}
		cmd, err := p.Client.Start(t.Context(), chat.ID, api.NewCommand{
			Shell: fmt.Sprintf("for i in $(seq 1 60); do echo %d-$i; sleep 0.1; done; echo %d >/outputs/done.txt; exit %d", i, i, i),
		})
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, job{chat.ID, cmd})
	}
	for _, j := range jobs {
		waitFor(t, p.Daemon, j.cmd, "-3\n")
	}
	for range 2 {
		p.Kill()
		p.Again()
		waitFor(t, p.Daemon, jobs[9].cmd, "9-20\n")
	}
	for i, j := range jobs {
		cmd, err := p.Wait(t.Context(), j.chat, j.cmd.ID)
		if err != nil {
			t.Fatal(err)
		}
		want := api.StateFailed
		if i == 0 {
			want = api.StateSucceeded
		}
		if cmd.State != want || exitCode(cmd) != i {
			t.Errorf("%s: %s (%s)", j.chat, cmd.State, cmd.Reason)
		}
		var text strings.Builder
		for n := 1; n <= 60; n++ {
			fmt.Fprintf(&text, "%d-%d\n", i, n)
		}
		if out, _ := p.Printed(cmd); out != text.String() {
			t.Errorf("%s: output was lost or doubled:\n%s", j.chat, out)
		}
		if len(cmd.Cells) != 1 {
			t.Errorf("%s: cells %+v", j.chat, cmd.Cells)
		}
		chat, err := p.Chat(t.Context(), j.chat)
		if err != nil || chat.Turn == nil || chat.Turn.Used < 5 || chat.Turn.Used > 60 || chat.Sandbox == nil || chat.Sandbox.ExpiresAt == nil {
			t.Errorf("%s: %+v, %v", j.chat, chat, err)
		}
	}
}

// TestQueuedCommandsBeginInTheNextDaemon kills the daemon while commands wait,
// and puts an input into a sandbox that another daemon booted.
func TestQueuedCommandsBeginInTheNextDaemon(t *testing.T) {
	p := daemontest.Spawn(t, func(c *config.Config) { c.Limits.Running = 1 })
	first, err := p.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: "echo up; sleep 2; echo first >>/workspace/order"})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, p.Daemon, first, "up\n")
	var ids []string
	for _, word := range []string{"second", "third"} {
		c, err := p.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: "echo " + word + " >>/workspace/order"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, c.ID)
	}
	p.Kill()
	p.Again()
	put(t, p.Daemon, "coffee.png")
	for _, id := range ids {
		c, err := p.Wait(t.Context(), api.DefaultChat, id)
		if err != nil {
			t.Fatal(err)
		}
		succeeded(t, p.Daemon, c)
	}
	out, _ := p.Printed(p.Finish(api.NewCommand{Shell: "cat /workspace/order; ls /inputs", Inputs: []string{"coffee.png"}}))
	if out != "first\nsecond\nthird\ncoffee.png\n" {
		t.Errorf("order and inputs: %q", out)
	}
}
