package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	p, err := parseStat([]byte("77 (a ) b) S 42 77 77 0 -1 4194304 1 2 3 4 150 50 0 0 20 0 1 0 99 0 0"))
	if err != nil {
		t.Fatal(err)
	}
	if p.parent != 42 || p.cpu != 2*time.Second {
		t.Errorf("parent %d, cpu %s", p.parent, p.cpu)
	}
	if _, err := parseStat([]byte("77 (x) S 1")); err == nil {
		t.Error("a short line was taken")
	}
}

func TestParseRollup(t *testing.T) {
	text := "00400000-7fff [rollup]\nRss: 100 kB\nPss: 60 kB\nPss_Anon: 10 kB\nPss_File: 20 kB\nPss_Shmem: 30 kB\n" +
		"Private_Clean: 4 kB\nPrivate_Dirty: 5 kB\n"
	m, err := parseRollup(text)
	if err != nil {
		t.Fatal(err)
	}
	if want := (memory{rss: 102400, pss: 61440, anon: 10240, file: 20480, shmem: 30720, private: 9216}); m != want {
		t.Errorf("got %+v, want %+v", m, want)
	}
	if _, err := parseRollup(strings.Replace(text, "Pss_Shmem", "Pss_Other", 1)); err == nil {
		t.Error("a kernel that does not split PSS went unnoticed")
	}
}

func TestOwnProcessIsFoundWithItsChild(t *testing.T) {
	child := exec.Command("/bin/cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if err := child.Wait(); err != nil {
			t.Error(err)
		}
	}()
	table, err := processes()
	if err != nil {
		t.Fatal(err)
	}
	if below := descendants(table, os.Getpid()); !slices.Contains(below, child.Process.Pid) {
		t.Errorf("child %d is not among the descendants %v", child.Process.Pid, below)
	}
	spaces, err := addressSpaces([]int{os.Getpid(), child.Process.Pid, os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	if want := []int{os.Getpid(), child.Process.Pid}; !slices.Equal(spaces, want) {
		t.Errorf("address spaces of %v, want %v", spaces, want)
	}
	if ran, err := threadTime(os.Getpid()); err != nil || ran <= 0 {
		t.Errorf("this process has run for %s, %v", ran, err)
	}
}

func TestMemoryFilesAreCountedOnce(t *testing.T) {
	before, err := memfds(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("bench-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const size = 1 << 20
	if _, err := unix.Write(fd, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	again, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(again)
	after, err := memfds(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if after-before != size {
		t.Errorf("a memory file of %d bytes counts as %g", size, after-before)
	}
}
