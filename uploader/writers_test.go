package uploader

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// writers are the ways in which programs write files. Each runs as a process
// of its own and returns once it is done. step is the pause between pieces;
// it is longer than the settle period where a writer holds its file open.
var writers = map[string]func(dir string) error{
	"append-held-open": func(dir string) error {
		f, err := os.Create(filepath.Join(dir, "held.bin"))
		if err != nil {
			return err
		}
		for i := range 5 {
			if _, err := fmt.Fprintf(f, "piece %d\n", i); err != nil {
				return err
			}
			pause(400 * time.Millisecond)
		}
		return f.Close()
	},
	"append-reopen": func(dir string) error {
		return reopenAndAppend(filepath.Join(dir, "reopen.log"), 12, 60*time.Millisecond)
	},
	"append-reopen-slow": func(dir string) error {
		return reopenAndAppend(filepath.Join(dir, "slow.log"), 6, time.Second)
	},
	"seek-back": func(dir string) error {
		f, err := os.Create(filepath.Join(dir, "movie.mp4"))
		if err != nil {
			return err
		}
		f.Write(make([]byte, 64))
		for range 4 {
			f.Write(bytes.Repeat([]byte("mdat"), 1<<16))
			pause(250 * time.Millisecond)
		}
		if _, err := f.WriteAt([]byte("moov and the true size"), 0); err != nil {
			return err
		}
		return f.Close()
	},
	"rename-into-place": func(dir string) error {
		name := filepath.Join(dir, "render.png.tmp")
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		for range 4 {
			f.Write(bytes.Repeat([]byte("p"), 5000))
			pause(60 * time.Millisecond)
		}
		if err := f.Close(); err != nil {
			return err
		}
		return os.Rename(name, filepath.Join(dir, "render.png"))
	},
	"mmap": func(dir string) error {
		f, err := os.OpenFile(filepath.Join(dir, "mapped.raw"), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		const size = 1 << 20
		if err := f.Truncate(size); err != nil {
			return err
		}
		m, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		f.Close() // the mapping alone keeps it open
		for i := range 4 {
			copy(m[i*(size/4):], bytes.Repeat([]byte{byte('a' + i)}, size/4))
			pause(300 * time.Millisecond)
		}
		return unix.Munmap(m)
	},
	"truncate-rewrite": func(dir string) error {
		name := filepath.Join(dir, "again.txt")
		for i := range 5 {
			if err := os.WriteFile(name, bytes.Repeat([]byte{byte('0' + i)}, 3000-500*i), 0o644); err != nil {
				return err
			}
			pause(50 * time.Millisecond)
		}
		return nil
	},
	"sparse":        func(dir string) error { return writeSparse(filepath.Join(dir, "holes.img")) },
	"zero-byte":     func(dir string) error { return os.WriteFile(filepath.Join(dir, "empty"), nil, 0o644) },
	"long-name":     func(dir string) error { return writeNamed(dir, strings.Repeat("n", 255)) },
	"newline":       func(dir string) error { return writeNamed(dir, "two\nlines.txt") },
	"invalid-utf8":  func(dir string) error { return writeNamed(dir, "caf\xe9 \xff\xfe.png") },
	"emoji":         func(dir string) error { return writeNamed(dir, "🎬 finále 100%.mp4") },
	"dots":          func(dir string) error { return writeNamed(dir, "a..b...") },
	"deep":          writeDeep,
	"hard-link-off": linkAndUnlink,
}

// processes are what else the test binary can be.
var processes = map[string]func(dir string) error{}

func writerProcess(name, dir string) error {
	write := writers[name]
	if write == nil {
		write = processes[name]
	}
	if write == nil {
		return fmt.Errorf("no writer %q", name)
	}
	return write(dir)
}

// pause is a writer's own pace.
func pause(d time.Duration) { <-time.After(d) }

func reopenAndAppend(name string, pieces int, step time.Duration) error {
	for i := range pieces {
		f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		fmt.Fprintf(f, "line %d\n", i)
		if err := f.Close(); err != nil {
			return err
		}
		pause(step)
	}
	return nil
}

func writeNamed(dir, name string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte("contents of "+name), 0o644)
}

func writeSparse(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	f.WriteAt([]byte("start"), 0)
	f.WriteAt([]byte("end"), 64<<20)
	return f.Close()
}

func writeDeep(dir string) error {
	for i := range 20 {
		sub := filepath.Join(dir, "d", strings.Repeat("x/", i), fmt.Sprint("leaf", i))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return err
		}
		if err := writeNamed(sub, "file.txt"); err != nil {
			return err
		}
	}
	return nil
}

// linkAndUnlink writes under one name, links the final one, and removes the first.
func linkAndUnlink(dir string) error {
	tmp := filepath.Join(dir, "linked.tmp")
	if err := os.WriteFile(tmp, []byte("linked into place"), 0o644); err != nil {
		return err
	}
	if err := os.Link(tmp, filepath.Join(dir, "linked.txt")); err != nil {
		return err
	}
	return os.Remove(tmp)
}

// start runs a writer as a process. The returned function waits for its end.
func (r *rig) start(writer string) (wait func()) {
	r.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "UPLOADER_TEST_WRITER="+writer, "UPLOADER_TEST_DIR="+r.dir, "GORACE=atexit_sleep_ms=0")
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	return func() {
		r.t.Helper()
		if err := cmd.Wait(); err != nil {
			r.t.Fatal(errors.Join(err, errors.New(out.String())))
		}
	}
}

// TestWritersWithoutFlush: nothing says that the command ended, and no hint
// comes; every file is published once, whole.
func TestWritersWithoutFlush(t *testing.T) {
	for name := range writers {
		if name == "append-reopen-slow" {
			continue // TestDefaultSettle
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.start(name)()
			r.waitFor("files", 20*time.Second, func() bool { return r.Status().Published > 0 && r.Status().Pending == 0 })
			r.flush()
			r.checkFinal()
		})
	}
}

// TestWritersWithFlush: the command ends and is flushed at once.
func TestWritersWithFlush(t *testing.T) {
	for name := range writers {
		if name == "append-reopen-slow" {
			continue // TestDefaultSettle
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *Config) { c.Settle = DefaultSettle })
			r.start(name)()
			if left := r.flush(); len(left) > 0 {
				t.Errorf("left out: %v", left)
			}
			r.checkFinal()
		})
	}
}

// TestDefaultSettle: the true default outlives a writer that comes back every
// second, and publishes two to three seconds after its last visit, not sooner.
func TestDefaultSettle(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Settle, c.RenameSettle = 0, 0 })
	r.start("append-reopen-slow")()
	r.waitPath("slow.log")
	info, err := os.Stat(filepath.Join(r.dir, "slow.log"))
	if err != nil {
		t.Fatal(err)
	}
	if wait := r.got["slow.log"][0].at.Sub(info.ModTime()); wait < DefaultSettle || wait > DefaultSettle+time.Second {
		t.Errorf("published %v after the last piece", wait)
	}
	r.checkFinal()
}

// TestHeldOpenIsLeftOut: a flush while a background process still writes.
func TestHeldOpenIsLeftOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, err := os.Create(filepath.Join(r.dir, "background.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprintln(f, "first")
	r.write("done.txt", "done")
	r.write("later.part", "unfinished")
	left := r.flush()
	want := []Skipped{{Path: "background.log", Reason: ReasonOpen}, {Path: "later.part", Reason: ReasonTemporary}}
	if fmt.Sprint(left) != fmt.Sprint(want) {
		t.Errorf("left out %v, want %v", left, want)
	}
	fmt.Fprintln(f, "second")
	f.Close()
	r.waitPath("background.log")
	r.checkFinal()
}

// TestFiveThousandFiles: all at once, all published, frames in their order.
func TestFiveThousandFiles(t *testing.T) {
	r := newRig(t, nil)
	const count = 5000
	for i := range count {
		r.write(fmt.Sprintf("frame-%d.png", i), fmt.Sprint("frame ", i))
	}
	began := time.Now()
	if left := r.flush(); len(left) > 0 {
		t.Errorf("left out: %d files, first %v", len(left), left[0])
	}
	t.Logf("%d files in %v", count, time.Since(began))
	r.checkFinal()
	last := -1
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.order {
		var n int
		if _, err := fmt.Sscanf(string(p), "frame-%d.png", &n); err != nil || n != last+1 {
			t.Fatalf("after frame %d came %s", last, p)
		}
		last = n
	}
}
