package daemon_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
)

// hostFull checks that an error says that the host is full, and that it passes.
func hostFull(t *testing.T, what string, err error) {
	t.Helper()
	var known *api.Error
	if !errors.As(err, &known) || known.Code != api.CodeHostFull || !known.Retryable || known.Hint == "" {
		t.Errorf("%s: %v", what, err)
	}
}

// startIn begins a command that runs until it is ended.
func startIn(t *testing.T, c *client.Client, chat string) api.Command {
	t.Helper()
	cmd, err := c.Start(t.Context(), chat, api.NewCommand{Argv: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	return cmd
}

// runs waits until a command is running.
func runs(t *testing.T, c *client.Client, cmd api.Command) {
	t.Helper()
	eventually(t, fmt.Sprintf("command %s does not run", cmd.ID), func() bool {
		got, err := c.Command(t.Context(), cmd.Chat, cmd.ID)
		if err != nil || got.State.Ended() {
			t.Fatalf("%+v, %v", got, err)
		}
		return got.State == api.StateRunning
	})
}

// eventually polls until ok.
func eventually(t *testing.T, otherwise string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}

// TestAccountsWaitAndTheHostRefuses fills an account's running commands over two
// chats, and then the queue of the host.
func TestAccountsWaitAndTheHostRefuses(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.AccountRunning, c.Limits.Waiting = 2, 2 })
	ctx := t.Context()
	for _, id := range []string{"a", "b"} {
		if _, err := d.CreateChat(ctx, api.NewChat{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	first, second := startIn(t, d.Client, "a"), startIn(t, d.Client, "b")
	runs(t, d.Client, first)
	runs(t, d.Client, second)
	third, fourth := startIn(t, d.Client, "a"), startIn(t, d.Client, "b")
	eventually(t, "the waiting commands do not show their places", func() bool {
		a, errA := d.Command(ctx, "a", third.ID)
		b, errB := d.Command(ctx, "b", fourth.ID)
		return errors.Join(errA, errB) == nil && a.State == api.StateQueued && b.State == api.StateQueued && a.Place+b.Place == 3
	})
	info, err := d.Info(ctx)
	if err != nil || info.Running != 2 || info.Waiting != 2 || info.Sandboxes != 2 || info.Limits.AccountRunning != 2 {
		t.Errorf("info: %+v, %v", info, err)
	}
	_, err = d.Client.Start(ctx, "a", api.NewCommand{Argv: []string{"true"}})
	hostFull(t, "one command too many", err)

	// Another account waits for nobody of this one, but finds the queue full.
	other := client.New(d.Config.Paths.Socket, "other")
	_, err = other.Start(ctx, api.DefaultChat, api.NewCommand{Argv: []string{"true"}})
	hostFull(t, "another account's command", err)
	for _, cmd := range []api.Command{first, third} {
		if err := d.Client.Kill(ctx, "a", cmd.ID, 0); err != nil {
			t.Fatal(err)
		}
	}
	runs(t, d.Client, fourth)
	cmd, err := other.Start(ctx, api.DefaultChat, api.NewCommand{Argv: []string{"true"}})
	if err == nil {
		cmd, err = other.Wait(ctx, api.DefaultChat, cmd.ID)
	}
	if err != nil || cmd.State != api.StateSucceeded {
		t.Errorf("%+v, %v", cmd, err)
	}
}

// TestShortDiskRefusesWork keeps back more than the host has.
func TestShortDiskRefusesWork(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.DiskReserve = 1 << 60 })
	_, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Argv: []string{"true"}})
	hostFull(t, "a command", err)
	_, err = d.PutFile(t.Context(), api.DefaultChat, "/workspace/x", &blocks{left: 10})
	hostFull(t, "a file", err)
	_, err = d.PutTree(t.Context(), api.DefaultChat, "/workspace/t", false, tarOf(t))
	hostFull(t, "a tree", err)
	if commands, err := d.Commands(t.Context(), api.DefaultChat); err != nil || len(commands) != 0 {
		t.Errorf("commands: %+v, %v", commands, err)
	}
}

// TestShortMemoryRefusesSandboxes keeps back more than the host has once a chat
// has its sandbox.
func TestShortMemoryRefusesSandboxes(t *testing.T) {
	p := daemontest.Spawn(t)
	d := p.Daemon
	succeeded(t, d, d.Shell("true"))
	p.Kill()
	d.Config.Limits.MemoryReserve = 1 << 60
	p.Again()
	succeeded(t, d, d.Shell("true"))
	if _, err := d.CreateChat(t.Context(), api.NewChat{ID: "second"}); err != nil {
		t.Fatal(err)
	}
	_, err := d.Client.Start(t.Context(), "second", api.NewCommand{Argv: []string{"true"}})
	hostFull(t, "a command of another chat", err)
	if commands, err := d.Commands(t.Context(), "second"); err != nil || len(commands) != 0 {
		t.Errorf("commands: %+v, %v", commands, err)
	}
}

// TestAccountBytes reaches an account's limits of bytes.
func TestAccountBytes(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.AccountStored, c.Limits.AccountDaily = 3000, 5000 })
	ctx := t.Context()
	full := func(retryable bool) {
		t.Helper()
		_, err := d.Client.Start(ctx, api.DefaultChat, api.NewCommand{Argv: []string{"true"}})
		var known *api.Error
		if !errors.As(err, &known) || known.Code != api.CodeAccountFull || known.Retryable != retryable {
			t.Errorf("%v", err)
		}
	}
	succeeded(t, d, d.Shell("head -c 2000 /dev/zero >/outputs/a"))
	succeeded(t, d, d.Shell("head -c 2000 /dev/zero >/outputs/b")) // one that has begun may go over
	full(false)
	s, err := d.Settings(ctx)
	if err != nil || s.Stored != 4000 || s.StoredLimit != 3000 || s.Today != 4000 || s.TodayLimit != 5000 {
		t.Errorf("%+v, %v", s, err)
	}
	// Others have limits of their own.
	other := client.New(d.Config.Paths.Socket, "other")
	if _, err := other.Start(ctx, api.DefaultChat, api.NewCommand{Argv: []string{"true"}}); err != nil {
		t.Error(err)
	}
	if err := d.DeleteChat(ctx, api.DefaultChat); err != nil {
		t.Fatal(err)
	}
	succeeded(t, d, d.Shell("head -c 1500 /dev/zero >/outputs/c"))
	full(true)
	if s, err = d.Settings(ctx); err != nil || s.Stored != 1500 || s.Today != 5500 {
		t.Errorf("%+v, %v", s, err)
	}
}
