package daemon_test

import (
	"strings"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
)

// TestCellsOfConcurrentCommands runs two commands that write at the same time,
// and puts a file while none runs: each cell belongs to who made it.
func TestCellsOfConcurrentCommands(t *testing.T) {
	d := daemontest.Start(t)
	slow, err := d.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: "echo up; until test -e go; do sleep 0.05; done; echo slow >/outputs/slow.txt; touch done", Label: "slow"})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, d, slow, "up")
	quick := succeeded(t, d, d.Finish(api.NewCommand{Shell: "echo quick >/outputs/quick.txt; touch go; until test -e done; do sleep 0.05; done", Label: "quick"}))
	if slow, err = d.Wait(t.Context(), api.DefaultChat, slow.ID); err != nil {
		t.Fatal(err)
	}
	if len(quick.Cells) != 1 || quick.Cells[0].File.Name != "quick.txt" || quick.Cells[0].Label != "quick" {
		t.Errorf("the quick command's cells: %+v", quick.Cells)
	}
	if len(slow.Cells) != 1 || slow.Cells[0].File.Name != "slow.txt" || slow.Cells[0].Label != "slow" {
		t.Errorf("the slow command's cells: %+v", slow.Cells)
	}
	if _, err := d.PutFile(t.Context(), api.DefaultChat, "/outputs/put.txt", strings.NewReader("put")); err != nil {
		t.Fatal(err)
	}
	succeeded(t, d, d.Shell("true"))
	cells, err := d.Cells(t.Context(), api.DefaultChat)
	if err != nil || len(cells) != 3 || cells[2].File.Name != "put.txt" || cells[2].Command != "" {
		t.Errorf("after a file was put: %+v, %v", cells, err)
	}
	if _, err := d.Provenance(t.Context(), api.DefaultChat, 3); code(err) != api.CodeCommandNotFound {
		t.Errorf("the provenance of a file that was put: %v", err)
	}
}
