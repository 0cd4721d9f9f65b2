package daemon_test

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
)

// TestUpgradeFromTheFirstSchema starts a daemon over what the first one left on
// a host that has been started anew since: no sandbox lives.
func TestUpgradeFromTheFirstSchema(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) {
		packed, err := os.Open(filepath.Join("store", "testdata", "state-v1.db.gz"))
		if err != nil {
			t.Fatal(err)
		}
		defer packed.Close()
		r, err := gzip.NewReader(packed)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(c.Paths.StateDir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(c.Paths.StateDir, "state.db"), body, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	cells, err := d.Cells(t.Context(), "spring")
	if err != nil || len(cells) != 2 || cells[0].File.Name != "half.png" {
		t.Errorf("cells: %+v, %v", cells, err)
	}
	commands, err := d.Commands(t.Context(), "spring")
	if err != nil || len(commands) != 4 {
		t.Fatalf("commands: %+v, %v", commands, err)
	}
	if last := commands[3]; last.State != api.StateLost || !strings.Contains(last.Reason, "while the daemon was away") {
		t.Errorf("the command that ran: %s (%s)", last.State, last.Reason)
	}
	// What ran is taken to have run until now, so its turn is spent.
	if _, err := d.OpenTurn(t.Context(), "spring", ""); err != nil {
		t.Fatal(err)
	}
	cmd, err := d.Client.Start(t.Context(), "spring", api.NewCommand{Shell: "ls /inputs; echo three >/outputs/three.txt"})
	if err == nil {
		cmd, err = d.Wait(t.Context(), "spring", cmd.ID)
	}
	if err != nil || cmd.State != api.StateSucceeded || !cmd.FilesLost || len(cmd.Cells) != 1 || cmd.Cells[0].Ordinal != 3 {
		t.Errorf("the next command: %+v, %v", cmd, err)
	}
}
