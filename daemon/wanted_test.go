package daemon_test

import (
	"errors"
	"slices"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
)

// checkCells compares the paths of the default chat's cells.
func checkCells(t *testing.T, d *daemontest.Daemon, when string, want ...string) {
	t.Helper()
	cells, err := d.Cells(t.Context(), api.DefaultChat)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range cells {
		got = append(got, c.File.Path)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%s: the cells are %q, want %q", when, got, want)
	}
}

// TestTemporaryNamesAreAskedFor: files with temporary names become cells when a
// command asks for them, also such as were there before; others stay out and
// are told. A daemon that comes later knows what was asked for.
func TestTemporaryNamesAreAskedFor(t *testing.T) {
	p := daemontest.Spawn(t)
	const write = `mkdir -p /outputs/.hidden && for f in a.part b.tmp .c .hidden/d.txt e.txt; do echo "$f" >"/outputs/$f"; done`
	cmd := succeeded(t, p.Daemon, p.Shell(write))
	checkCells(t, p.Daemon, "unasked", "e.txt")
	if len(cmd.Skipped) != 4 {
		t.Errorf("told as not published: %+v", cmd.Skipped)
	}
	succeeded(t, p.Daemon, p.Finish(api.NewCommand{Argv: []string{"true"}, Publish: []string{"*.part", ".hidden"}}))
	checkCells(t, p.Daemon, "asked for later", ".hidden/d.txt", "a.part", "e.txt")
	started, err := p.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{
		Shell: "echo up; sleep 3; echo late >/outputs/late.tmp; echo part >/outputs/z.part", Publish: []string{"*.tmp"},
	})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, p.Daemon, started, "up\n")
	p.Kill()
	p.Again()
	ended, err := p.Wait(t.Context(), api.DefaultChat, started.ID)
	if err != nil {
		t.Fatal(err)
	}
	succeeded(t, p.Daemon, ended)
	checkCells(t, p.Daemon, "after the daemon was killed", ".hidden/d.txt", "a.part", "b.tmp", "e.txt", "late.tmp", "z.part")
	for _, bad := range []string{"", "[", string(make([]byte, 300))} {
		_, err := p.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Argv: []string{"true"}, Publish: []string{bad}})
		var known *api.Error
		if !errors.As(err, &known) || known.Code != api.CodeInvalid || known.Hint == "" {
			t.Errorf("pattern %.10q: %v", bad, err)
		}
	}
}
