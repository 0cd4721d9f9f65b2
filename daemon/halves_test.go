package daemon_test

import (
	"testing"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
)

// publishedNone checks that no cell is a file of that name.
func publishedNone(t *testing.T, d *daemontest.Daemon, name string) {
	t.Helper()
	cells, err := d.Cells(t.Context(), api.DefaultChat)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cells {
		if c.File.Name == name {
			t.Errorf("a half-written %s is cell #%d, %d bytes", name, c.Ordinal, c.File.Size)
		}
	}
}

// TestHalfWrittenFilesStayUnpublished kills the writers of files in every way in
// which they can lose them, and lets their sandbox die afterwards.
func TestHalfWrittenFilesStayUnpublished(t *testing.T) {
	p := daemontest.Spawn(t)
	d := p.Daemon
	d.Finish(api.NewCommand{Shell: "exec 3>/outputs/timed-out.txt; echo half >&3; sleep 60", Timeout: 1})
	succeeded(t, d, d.Shell("(exec 3>/outputs/background.txt; echo half >&3; sleep 60) & sleep 0.3"))
	publishedNone(t, d, "background.txt")
	p.Kill()
	p.Again()
	writer, err := d.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: "exec 3>/outputs/alive.txt; echo half >&3; echo up; sleep 60"})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, d, writer, "up")
	<-time.After(6 * time.Second) // longer than a file is quiet for when nobody answers
	succeeded(t, d, d.Shell("echo whole >/outputs/whole.txt"))
	if cmd := d.Shell("kill -9 1; sleep 60"); cmd.State != api.StateLost {
		t.Fatalf("the sandbox did not die: %s", cmd.State)
	}
	sandboxGone(t, d)
	for _, name := range []string{"timed-out.txt", "background.txt", "alive.txt"} {
		publishedNone(t, d, name)
	}
	if cells, err := d.Cells(t.Context(), api.DefaultChat); err != nil || len(cells) != 1 || cells[0].File.Name != "whole.txt" {
		t.Errorf("cells: %+v, %v", cells, err)
	}
}
