package uploader

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestSpoolKeepsHoles(t *testing.T) {
	s, err := OpenSpool(t.TempDir())
	must(t, err)
	defer s.Close()
	name := filepath.Join(t.TempDir(), "sparse")
	must(t, writeSparse(name))
	f, err := os.Open(name)
	must(t, err)
	defer f.Close()
	snap, err := s.Snapshot(context.Background(), f)
	must(t, err)
	copy, err := s.Open(snap)
	must(t, err)
	defer copy.Close()
	info, err := copy.Stat()
	must(t, err)
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; info.Size() != 64<<20+3 || used > 4<<20 {
		t.Errorf("the copy has %d bytes and uses %d", info.Size(), used)
	}
	got, err := os.ReadFile(filepath.Join(s.path, snap.Name))
	must(t, err)
	want, err := os.ReadFile(name)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Error("the copy differs")
	}
}

func TestSpoolNoticesChange(t *testing.T) {
	s, err := OpenSpool(t.TempDir())
	must(t, err)
	defer s.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	must(t, err)
	defer f.Close()
	f.WriteString("before")
	st, err := fstat(int(f.Fd()))
	must(t, err)
	must(t, waitRacy(context.Background(), st.id))
	f.WriteAt([]byte("change"), 0)
	if _, err := s.stage(context.Background(), f, st.id); !errors.Is(err, ErrChanged) {
		t.Errorf("staging a changed file: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Snapshot(ctx, f); !errors.Is(err, context.Canceled) {
		t.Errorf("snapshot after cancel: %v", err)
	}
	if n, _, err := s.Usage(); n != 0 || err != nil {
		t.Errorf("%d snapshots are left, %v", n, err)
	}
	if removed, err := s.Clean(nil); removed != 0 || err != nil {
		t.Errorf("%d orphans are left, %v", removed, err)
	}
}

func TestSpoolClean(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenSpool(dir)
	must(t, err)
	defer s.Close()
	var snaps []Snapshot
	for range 2 {
		f, err := os.Open(os.Args[0])
		must(t, err)
		snap, err := s.Snapshot(context.Background(), f)
		must(t, err)
		f.Close()
		snaps = append(snaps, snap)
	}
	must(t, os.WriteFile(filepath.Join(dir, "cut-short.tmp"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "not-ours"), nil, 0o600))
	removed, err := s.Clean(map[string]bool{snaps[1].Name: true})
	if removed != 2 || err != nil {
		t.Errorf("removed %d, %v", removed, err)
	}
	if _, err := s.Open(snaps[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the orphan is still there: %v", err)
	}
	f, err := s.Open(snaps[1])
	must(t, err)
	f.Close()
	for _, name := range []string{"../x.snap", "x", "", "/etc/passwd.snap"} {
		if _, err := s.Open(Snapshot{Name: name}); err == nil {
			t.Errorf("%q was opened", name)
		}
	}
}
