package daemon_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mediasandbox/daemon"
	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
)

// TestAnEphemeralDaemonEndsWithCommandsWaiting ends one while commands run and
// wait; the test's end looks for what is left.
func TestAnEphemeralDaemonEndsWithCommandsWaiting(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.Running, c.Limits.Pool = 2, 1 })
	for i := range 10 {
		c, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: "echo up; sleep 60"})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			waitFor(t, d, c, "up")
		}
	}
	d.Stop()
}

// TestRecordsThatAreGoneAreMissed empties and removes the database beside files
// of chats: a daemon over that would remove living sandboxes.
func TestRecordsThatAreGoneAreMissed(t *testing.T) {
	d := daemontest.Start(t)
	succeeded(t, d, d.Shell("echo x >/outputs/x.txt"))
	d.Stop()
	db := filepath.Join(d.Config.Paths.StateDir, "state.db")
	kept, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func() error{
		"empty":   func() error { return os.WriteFile(db, nil, 0o600) },
		"missing": func() error { return os.Remove(db) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if _, err := daemon.New(t.Context(), d.Config, true, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "restore it from a backup") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(db, kept, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPutOntoADirectory(t *testing.T) {
	d := daemontest.Start(t)
	succeeded(t, d, d.Shell("mkdir /workspace/dir"))
	if _, err := d.PutFile(t.Context(), api.DefaultChat, "/workspace/dir", strings.NewReader("x")); code(err) != api.CodeInvalid {
		t.Errorf("put onto a directory: %v", err)
	}
}
