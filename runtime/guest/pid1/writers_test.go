package pid1

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDescriptorWrites(t *testing.T) {
	for text, want := range map[string]bool{
		"pos:\t0\nflags:\t0100000\nmnt_id:\t29\n":  false, // O_RDONLY
		"pos:\t0\nflags:\t0100001\nmnt_id:\t29\n":  true,  // O_WRONLY
		"pos:\t0\nflags:\t02100002\nmnt_id:\t29\n": true,  // O_RDWR
		"flags:\t0102001\n":                        true,  // O_APPEND
		"pos:\t0\n":                                true,  // late rather than half
		"flags:\tnone\n":                           true,
		"":                                         true,
	} {
		if got := descriptorWrites(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

// TestOpenForWriting looks at this very process, through the host's own /proc.
func TestOpenForWriting(t *testing.T) {
	dir := t.TempDir()
	open := func(name string, flags int) *os.File {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(dir, name), flags|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	mapped := func(name string, prot, flags int) {
		t.Helper()
		f := open(name, os.O_RDWR)
		if err := f.Truncate(4096); err != nil {
			t.Fatal(err)
		}
		m, err := unix.Mmap(int(f.Fd()), 0, 4096, prot, flags)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Munmap(m); err != nil {
				t.Error(err)
			}
		})
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	open("read", os.O_RDONLY)
	open("write", os.O_WRONLY)
	open("append", os.O_WRONLY|os.O_APPEND)
	open("both ways", os.O_RDWR)
	if err := open("closed", os.O_WRONLY).Close(); err != nil {
		t.Fatal(err)
	}
	mapped("mapped", unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	mapped("mapped, read only", unix.PROT_READ, unix.MAP_SHARED)
	mapped("mapped, private", unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err := os.Mkdir(dir+"-beside", 0o700); err != nil {
		t.Fatal(err)
	}
	open("../"+filepath.Base(dir)+"-beside/other", os.O_WRONLY)

	// A /proc of this process alone, with one that has ended and what is no process.
	proc := t.TempDir()
	if err := os.Symlink("/proc/self", filepath.Join(proc, "1")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"2", "self", "meminfo"} {
		if err := os.Mkdir(filepath.Join(proc, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	got, err := openForWriting(proc, dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range got {
		names = append(names, strings.TrimPrefix(path, dir+"/"))
	}
	if want := []string{"append", "both ways", "mapped", "write"}; !slices.Equal(names, want) {
		t.Errorf("found %q, want %q", names, want)
	}
	if _, err := openForWriting(filepath.Join(proc, "none"), dir); err == nil {
		t.Error("a missing /proc is no error")
	}
}
