package daemon_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
)

func code(err error) api.Code {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// TestTurnBudget spends a turn of three seconds with a command that goes on in
// the next.
func TestTurnBudget(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.TurnBudget = config.Duration(3 * time.Second) })
	start := func(turn, line string) (api.Command, error) {
		return d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: line, Turn: turn})
	}
	long, err := start("first", "echo 1; until test -e go; do sleep 0.05; done; echo 2; sleep 0.4; echo 3")
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.WaitIn(t.Context(), api.DefaultChat, long.ID, "first")
	if err != nil || !got.Continues || got.State != api.StateRunning || got.Left != 0 || got.Turn != "first" {
		t.Fatalf("when the budget is spent: %+v, %v", got, err)
	}
	_, err = start("first", "true")
	var spent *api.Error
	if !errors.As(err, &spent) || spent.Code != api.CodeTurnSpent || !spent.Retryable {
		t.Errorf("a command of the spent turn: %v", err)
	}
	if _, err := d.OpenTurn(t.Context(), api.DefaultChat, "second"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.PutFile(t.Context(), api.DefaultChat, "/workspace/go", strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	var text string
	got, err = d.OutputIn(t.Context(), api.DefaultChat, long.ID, "second", true, func(c api.OutputChunk) error {
		text += string(c.Data)
		return nil
	})
	if err != nil || got.State != api.StateSucceeded || got.Continues || text != "1\n2\n3\n" {
		t.Errorf("in the next turn: %+v, %v, %q", got, err, text)
	}
	if _, err := start("first", "true"); code(err) != api.CodeTurnClosed {
		t.Errorf("a command of the closed turn: %v", err)
	}
	turns, err := d.Turns(t.Context(), api.DefaultChat)
	if err != nil || len(turns) != 2 || turns[0].Left != 0 || turns[0].ClosedAt == nil || turns[1].Used < 0.4 || turns[1].Used > 3 {
		t.Errorf("turns: %+v, %v", turns, err)
	}
}

func TestImplicitTurnsNeverRunOut(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.TurnBudget = config.Duration(4 * time.Second) })
	for range 3 { // each well within the budget, together beyond it
		succeeded(t, d, d.Shell("sleep 1.5"))
	}
}

func TestIdempotencyKey(t *testing.T) {
	d := daemontest.Start(t)
	req := api.NewCommand{Shell: "echo once >>/workspace/count"}
	first, err := d.StartOnce(t.Context(), api.DefaultChat, "key", req)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		again, err := d.StartOnce(t.Context(), api.DefaultChat, "key", req)
		if err != nil || again.ID != first.ID {
			t.Errorf("asked again: %s, %v", again.ID, err)
		}
	}
	if _, err := d.StartOnce(t.Context(), api.DefaultChat, "key", api.NewCommand{Shell: "other"}); code(err) != api.CodeIdempotency {
		t.Errorf("another request under the key: %v", err)
	}
	if _, err := d.Wait(t.Context(), api.DefaultChat, first.ID); err != nil {
		t.Fatal(err)
	}
	if out, _ := d.Printed(d.Shell("cat /workspace/count")); out != "once\n" {
		t.Errorf("it ran as often as %q says", out)
	}
}

// TestCommandsQueueInOrder runs more commands than a chat may run at a time.
func TestCommandsQueueInOrder(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.Running = 2 })
	if _, err := d.OpenTurn(t.Context(), api.DefaultChat, "one"); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range 2 {
		c, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: "echo up; sleep 60"})
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, d, c, "up")
		ids = append(ids, c.ID)
	}
	for range 3 {
		c, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: "echo x >>/workspace/order; wc -l </workspace/order"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, c.ID)
	}
	deadline := time.Now().Add(10 * time.Second)
	for i, id := range ids[2:] {
		c, err := d.Command(t.Context(), api.DefaultChat, id)
		for err == nil && c.Place == 0 && time.Now().Before(deadline) {
			<-time.After(5 * time.Millisecond)
			c, err = d.Command(t.Context(), api.DefaultChat, id)
		}
		if err != nil || c.State != api.StateQueued || c.Place != i+1 {
			t.Errorf("command %d is %s at place %d, %v", i, c.State, c.Place, err)
		}
	}
	if err := d.Client.Kill(t.Context(), api.DefaultChat, ids[3], 0); err != nil { // waits
		t.Fatal(err)
	}
	if c, err := d.Wait(t.Context(), api.DefaultChat, ids[3]); err != nil || c.State != api.StateCanceled {
		t.Errorf("a canceled command that waited: %s, %v", c.State, err)
	}
	if err := d.Client.Kill(t.Context(), api.DefaultChat, ids[0], 0); err != nil { // runs
		t.Fatal(err)
	}
	for i, want := range map[int]string{2: "1\n", 4: "2\n"} {
		c, err := d.Wait(t.Context(), api.DefaultChat, ids[i])
		if err != nil {
			t.Fatal(err)
		}
		if out, _ := d.Printed(succeeded(t, d, c)); out != want {
			t.Errorf("command %d was number %q", i, out)
		}
	}
	if err := d.Client.Kill(t.Context(), api.DefaultChat, ids[1], 0); err != nil {
		t.Fatal(err)
	}
}

// TestAFullHostLetsWait bounds the host to one sandbox: the second chat's
// command waits, says so, and starts when the first chat is gone.
func TestAFullHostLetsWait(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.Sandboxes = 1 })
	for _, id := range []string{"one", "two"} {
		if _, err := d.CreateChat(t.Context(), api.NewChat{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	first, err := d.Client.Start(t.Context(), "one", api.NewCommand{Shell: "echo up; sleep 60"})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, d, first, "up")
	second, err := d.Client.Start(t.Context(), "two", api.NewCommand{Shell: "echo mine"})
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for second.Place == 0 && time.Now().Before(deadline) {
		<-time.After(5 * time.Millisecond)
		if second, err = d.Command(t.Context(), "two", second.ID); err != nil {
			t.Fatal(err)
		}
	}
	if second.State != api.StateQueued || second.Place != 1 {
		t.Errorf("on a full host: %s at place %d", second.State, second.Place)
	}
	if err := d.DeleteChat(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if second, err = d.Wait(t.Context(), "two", second.ID); err != nil || second.State != api.StateSucceeded {
		t.Errorf("after the first chat: %s (%s), %v", second.State, second.Reason, err)
	}
}

// TestUnnamedTurnsDoNotEndEachOthersWaits waits for a command while others of
// callers who name no turn come and go.
func TestUnnamedTurnsDoNotEndEachOthersWaits(t *testing.T) {
	d := daemontest.Start(t)
	first, err := d.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: "until test -e go; do sleep 0.05; done; echo end"})
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan api.Command, 1)
	go func() {
		cmd, err := d.OutputIn(t.Context(), api.DefaultChat, first.ID, "", true, func(api.OutputChunk) error { return nil })
		if err != nil {
			t.Error(err)
		}
		waited <- cmd
	}()
	for range 3 {
		succeeded(t, d, d.Shell("true"))
	}
	succeeded(t, d, d.Shell("touch go"))
	if cmd := <-waited; cmd.State != api.StateSucceeded || cmd.Continues {
		t.Errorf("the first command's wait ended with %s, continues %t", cmd.State, cmd.Continues)
	}
}
