// Package testenv finds what tests over real sandboxes need: the built
// programs and the image. `make test` makes both; a test that lacks them
// fails and says so, it never skips.
package testenv

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mediasandbox/rootfs"
)

// Root returns the checkout.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("the test does not run within the checkout")
		}
		dir = filepath.Dir(dir)
	}
}

// Bin returns a built program, or the directory of them for "".
func Bin(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(Root(t), "bin", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run `make build` first", err)
	}
	return path
}

// Media returns a file of testdata/media.
func Media(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(Root(t), "testdata", "media", name)
}

// Image returns the image that sandboxes boot from.
func Image(t testing.TB) rootfs.Image {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("tests over real sandboxes need root")
	}
	dir, err := rootfs.CacheDir("")
	if err != nil {
		t.Fatal(err)
	}
	image, err := rootfs.Locate(dir)
	if err != nil {
		t.Fatalf("%v: run `make image` first", err)
	}
	return image
}

// Dir returns a short temporary directory: a Unix socket's path holds 107
// bytes.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mst")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Leftovers names what of dir is still on the host: processes that name it on
// their command line, mounts and loop devices of what is below it, and cgroups
// of that name.
func Leftovers(t testing.TB, dir, cgroup string) []string {
	t.Helper()
	var left []string
	cmdlines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	self := filepath.Join("/proc", "self", "cmdline")
	own, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range cmdlines {
		line, err := os.ReadFile(path)
		if err != nil || bytes.Equal(line, own) {
			continue // ended meanwhile, or ourselves
		}
		if bytes.Contains(line, []byte(dir)) {
			left = append(left, "process "+filepath.Base(filepath.Dir(path))+": "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			left = append(left, "mount "+strings.TrimSpace(line))
		}
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range loops {
		if file, err := os.ReadFile(path); err == nil && strings.Contains(string(file), dir) {
			left = append(left, "loop device of "+strings.TrimSpace(string(file)))
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		groups, err := filepath.Glob(pattern + cgroup)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			left = append(left, "cgroup "+g)
		}
	}
	return left
}
