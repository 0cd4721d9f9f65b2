package daemon_test

import (
	"context"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/daemon/session"
	"mediasandbox/daemon/store"
)

// stored lists the objects of a daemon's local store.
func stored(t *testing.T, d *daemontest.Daemon) []string {
	t.Helper()
	var files []string
	root := filepath.Join(d.Config.Paths.StateDir, "store")
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			files = append(files, strings.TrimPrefix(path, root+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// within polls until ok.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

// TestRetention gives cells an expiry, moves one into the past while no daemon
// runs, and looks at what the next one leaves of it.
func TestRetention(t *testing.T) {
	p := daemontest.Spawn(t)
	d := p.Daemon
	if _, err := d.ChangeSettings(t.Context(), api.ChangeSettings{Retention: "7d"}); err != nil {
		t.Fatal(err)
	}
	cmd := succeeded(t, d, d.Shell("echo one >/outputs/one.txt"))
	if at := cmd.Cells[0].File.ExpiresAt; at == nil || time.Until(*at).Round(time.Hour) != 7*24*time.Hour {
		t.Errorf("the account's 7 days end at %v", at)
	}
	hour := api.Retention("1h")
	if chat, err := d.ChangeChat(t.Context(), api.DefaultChat, api.ChangeChat{Retention: &hour}); err != nil || chat.Retention != hour {
		t.Fatalf("%+v, %v", chat, err)
	}
	cmd = succeeded(t, d, d.Shell("echo two >/outputs/two.txt"))
	if at := cmd.Cells[0].File.ExpiresAt; at == nil || time.Until(*at).Round(time.Minute) != time.Hour {
		t.Errorf("the chat's hour ends at %v", at)
	}
	before := len(stored(t, d))
	p.Kill()
	moveExpiry(t, d, 2, time.Now().Add(2*time.Second))
	p.Again()
	if cells, err := d.Cells(t.Context(), api.DefaultChat); err != nil || len(cells) != 2 {
		t.Fatalf("before the time: %d cells, %v", len(cells), err)
	}
	within(t, "the hiding of the cell", func() bool {
		_, err := d.Cell(t.Context(), api.DefaultChat, 2)
		return code(err) == api.CodeCellNotFound
	})
	within(t, "the removal of its file", func() bool { return len(stored(t, d)) < before })
	if cells, err := d.Cells(t.Context(), api.DefaultChat); err != nil || len(cells) != 1 || cells[0].Ordinal != 1 {
		t.Errorf("after it: %+v, %v", cells, err)
	}
	cmd = succeeded(t, d, d.Shell("echo more >>/outputs/two.txt"))
	if len(cmd.Cells) != 1 || cmd.Cells[0].Ordinal != 3 {
		t.Errorf("the file that changed after its cell expired became %+v", cmd.Cells)
	}
	if !sawEvent(t, d, api.EventCellExpired, 2) {
		t.Error("no event says that the cell expired")
	}
	if err := d.DeleteChat(t.Context(), api.DefaultChat); err != nil {
		t.Fatal(err)
	}
	within(t, "the removal of the chat's files", func() bool { return len(stored(t, d)) == 0 })
}

// moveExpiry changes a cell of the default chat while no daemon runs.
func moveExpiry(t *testing.T, d *daemontest.Daemon, ordinal int, at time.Time) {
	t.Helper()
	st, err := store.Open(filepath.Join(d.Config.Paths.StateDir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	err = st.Update(func(tx session.Tx) error {
		cell, err := tx.Cell(session.ChatKey{Account: "uid:0", ID: api.DefaultChat}, ordinal)
		if err != nil {
			return err
		}
		cell.File.ExpiresAt = &at
		return tx.PutCell(cell)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

// sawEvent tells whether the default chat has such an event of a cell.
func sawEvent(t *testing.T, d *daemontest.Daemon, want api.EventType, ordinal int) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	seen := false
	_ = d.Events(ctx, api.DefaultChat, 0, func(e api.Event) error { // ends with what we cancel
		if e.Type == want && e.Cell.Ordinal == ordinal {
			seen = true
			cancel()
		}
		return nil
	})
	return seen
}

// TestRetentionImmediate keeps nothing but the events.
func TestRetentionImmediate(t *testing.T) {
	d := daemontest.Start(t)
	if _, err := d.CreateChat(t.Context(), api.NewChat{ID: "brief", Retention: "soon"}); code(err) != api.CodeInvalid {
		t.Errorf("an unknown retention: %v", err)
	}
	now := api.RetentionImmediate
	if _, err := d.ChangeChat(t.Context(), api.DefaultChat, api.ChangeChat{Retention: &now}); err != nil {
		t.Fatal(err)
	}
	cmd := succeeded(t, d, d.Shell("echo gone >/outputs/gone.txt"))
	if len(cmd.Cells) != 0 {
		t.Errorf("cells: %+v", cmd.Cells)
	}
	if !sawEvent(t, d, api.EventCellPublished, 1) || !sawEvent(t, d, api.EventCellExpired, 1) {
		t.Error("the cell was not published and expired")
	}
	within(t, "the removal of its file", func() bool { return len(stored(t, d)) == 0 })
}
