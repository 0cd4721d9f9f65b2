package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"mediasandbox/internal/meminfo"
)

// hostFacts is what the figures depend on.
type hostFacts struct {
	when   time.Time
	cores  int
	model  string
	memory float64 // bytes
	kernel string
	load   string
}

func lookAtHost() (hostFacts, error) {
	h := hostFacts{when: time.Now().UTC(), cores: runtime.NumCPU()}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return h, fmt.Errorf("ask for the kernel: %w", err)
	}
	h.kernel = unix.ByteSliceToString(uts.Release[:])
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return h, fmt.Errorf("read the load: %w", err)
	}
	h.load = strings.Join(strings.Fields(string(load))[:3], " ")
	total, err := meminfo.Bytes(meminfo.Total)
	if err != nil {
		return h, err
	}
	h.memory = float64(total)
	h.model, err = cpuModel()
	return h, err
}

// cpuModel is the processor's name where the kernel tells it.
func cpuModel() (string, error) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", fmt.Errorf("read the processor's name: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if key, name, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(name), nil
		}
	}
	return runtime.GOARCH, nil
}

// versions names what was measured, as lines of the report.
func (b *bench) versions() ([]string, error) {
	info, err := b.main.Info(b.ctx)
	if err != nil {
		return nil, err
	}
	said, err := exec.CommandContext(b.ctx, filepath.Join(b.bin, "runsc"), "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("ask runsc for its version: %w", err)
	}
	gvisor, _, _ := strings.Cut(string(said), "\n")
	tree, err := exec.CommandContext(b.ctx, "git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		tree = []byte("no git checkout")
	}
	limits := "bounds of memory, CPU and processes enforced"
	if !info.Limits.Enforced {
		limits = "no cgroups: " + info.Limits.Unenforced
	}
	return []string{
		"media-sandbox " + info.Version + ", tree " + string(bytes.TrimSpace(tree)),
		"gVisor " + strings.TrimPrefix(gvisor, "runsc version "),
		"image SHA-256 " + b.image.Manifest.Image.SHA256 + "; for the chroot it was " + b.root.how,
		limits,
	}, nil
}

// clearDir removes the working directory. When something of it is left on the host
// it says so, and keeps the directory: sandboxes may have it mounted.
func clearDir(dir string) error {
	var err error
	for range 50 { // what the kernel takes down after its last user
		if err = leftovers(dir); err == nil {
			return os.RemoveAll(dir)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// leftovers says what of dir is still on the host.
func leftovers(dir string) error {
	var left []error
	table, err := processes()
	if err != nil {
		return err
	}
	for pid, p := range table {
		if line := strings.Join(p.args, " "); pid != os.Getpid() && strings.Contains(line, dir+"/") {
			left = append(left, fmt.Errorf("left on the host: process %d: %.100s", pid, line))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("look for what is left: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir+"/") {
			left = append(left, fmt.Errorf("left on the host: mount %s", strings.TrimSpace(line)))
		}
	}
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return fmt.Errorf("look for what is left: %w", err)
	}
	for _, f := range backing {
		if text, err := os.ReadFile(f); err == nil && strings.Contains(string(text), dir+"/") {
			left = append(left, fmt.Errorf("left on the host: loop device of %s", bytes.TrimSpace(text)))
		}
	}
	return errors.Join(left...)
}
