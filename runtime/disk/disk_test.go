package disk

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func newManager(t *testing.T, size int64) *Manager {
	t.Helper()
	m, err := New(t.Context(), Config{Dir: filepath.Join(t.TempDir(), "disks"), Size: size, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	if ok, why := m.Bounded(); !ok {
		t.Fatalf("this host can't bound disks: %s", why)
	}
	t.Cleanup(func() {
		mounts, err := os.ReadFile("/proc/self/mounts")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(mounts), m.cfg.Dir) {
			t.Errorf("left mounted:\n%s", mounts)
		}
	})
	return m
}

func TestADiskIsBounded(t *testing.T) {
	m := newManager(t, 32<<20)
	d, err := m.Make(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	err = os.WriteFile(filepath.Join(d.Data, "big"), make([]byte, 64<<20), 0o600)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writing twice the size: %v", err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(m.cfg.Dir, "one", "image"), &st); err != nil || st.Blocks*512 > 40<<20 {
		t.Errorf("the host lost %d bytes, %v", st.Blocks*512, err)
	}
	if err := m.Remove(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if ids, err := m.List(); err != nil || len(ids) != 0 {
		t.Errorf("left: %q, %v", ids, err)
	}
}

func TestADiskIsFoundAgain(t *testing.T) {
	m := newManager(t, 32<<20)
	d, err := m.Make(t.Context(), "again")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Data, "file"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, restart := range []bool{false, true} {
		if restart { // of the host
			if err := syscall.Unmount(d.Data, 0); err != nil {
				t.Fatal(err)
			}
		}
		again, err := m.Open("again")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(again.Data, "file")); err != nil || string(got) != "kept" {
			t.Errorf("after a restart %v: %q, %v", restart, got, err)
		}
	}
	for range 2 {
		if err := m.Remove(t.Context(), "again"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestABusyDiskGoesWithItsUser(t *testing.T) {
	m := newManager(t, 32<<20)
	d, err := m.Make(t.Context(), "busy")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(d.Data, "file"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Remove(ctx, "busy"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("still there"); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.Remove(t.Context(), "../up"); err == nil {
		t.Error("a path was taken for an id")
	}
}
