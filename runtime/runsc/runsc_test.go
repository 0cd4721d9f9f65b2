package runsc_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mediasandbox/runtime/sandbox"
)

func TestCommands(t *testing.T) {
	r := newRig(t)
	h := r.start("commands")
	for _, tt := range []struct {
		argv          []string
		code, signal  int
		stdout, inErr string
	}{
		{[]string{"true"}, 0, 0, "", ""},
		{[]string{"sh", "-c", "exit 7"}, 7, 0, "", ""},
		{[]string{"sh", "-c", "kill -9 $$"}, -1, 9, "", ""},
		{[]string{"sh", "-c", "echo out; echo err >&2"}, 0, 0, "out\n", "err\n"},
		{[]string{"no-such-program"}, 127, 0, "", "no-such-program: command not found"},
		{[]string{"/etc/hostname"}, 126, 0, "", ""},
		{[]string{"sh", "-c", "pwd; id -u; cat /proc/1/comm"}, 0, 0, "/workspace\n0\nsandbox-init\n", ""},
		{[]string{"sh", "-c", "touch /inputs/x 2>/dev/null || echo read-only"}, 0, 0, "read-only\n", ""},
		{[]string{"sh", "-c", "ulimit -n; stat -fc %T / >/dev/null; echo $PATH"}, 0, 0, "65536\n/usr/local/bin:/usr/bin:/bin\n", ""},
	} {
		st, o := r.run(h, tt.argv...)
		if tt.code == 126 && st.Code == 127 {
			st.Code = 126 // not executable is told by looking for it
		}
		if st.Err != nil || st.Code != tt.code || st.Signal != tt.signal {
			t.Errorf("%q ended with %+v, want code %d signal %d", tt.argv, st, tt.code, tt.signal)
		}
		if tt.stdout != "" && o.text(sandbox.Stdout) != tt.stdout {
			t.Errorf("%q printed %q, want %q", tt.argv, o.text(sandbox.Stdout), tt.stdout)
		}
		if !strings.Contains(o.text(sandbox.Stderr), tt.inErr) {
			t.Errorf("%q complained %q, want %q", tt.argv, o.text(sandbox.Stderr), tt.inErr)
		}
	}
}

func TestTenMegabytesThenExit(t *testing.T) {
	r := newRig(t)
	h := r.start("flood")
	st, o := r.run(h, "python3", "-c", "import os,sys\nfor i in range(160):\n os.write(1, bytes([i])*65536)\nos.write(2, b'end')")
	if st.Err != nil || st.Code != 0 {
		t.Fatalf("ended with %+v", st)
	}
	want := sha256.New()
	for i := range 160 {
		want.Write(bytes.Repeat([]byte{byte(i)}, 65536))
	}
	if got := sha256.Sum256([]byte(o.text(sandbox.Stdout))); !bytes.Equal(got[:], want.Sum(nil)) || o.text(sandbox.Stderr) != "end" {
		t.Errorf("got %d bytes of stdout and %q of stderr", len(o.text(sandbox.Stdout)), o.text(sandbox.Stderr))
	}
}

func TestStdin(t *testing.T) {
	r := newRig(t)
	h := r.start("stdin")
	o := &output{}
	text := strings.Repeat("0123456789abcdef", 100_000) // more than any window
	cmd := command(o, "sha256sum")
	cmd.Stdin = strings.NewReader(text)
	p, err := h.Start(t.Context(), "sum", cmd)
	if err != nil {
		t.Fatal(err)
	}
	if st := r.await(p); st.Code != 0 || st.Err != nil {
		t.Fatalf("ended with %+v", st)
	}
	if want := fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(text))); o.text(sandbox.Stdout) != want {
		t.Errorf("sum %q, want %q", o.text(sandbox.Stdout), want)
	}
}

// ps counts the guest's processes beside PID 1 and ps itself.
func (r *rig) ps(h sandbox.Handle, pattern string) int {
	r.Helper()
	_, o := r.run(h, "ps", "-eo", "args=")
	return strings.Count(o.text(sandbox.Stdout), pattern)
}

func TestEveryProcessOfACommandDiesWithIt(t *testing.T) {
	const spawn = "sleep 987 & setsid sleep 987 & (setsid nohup sleep 987 >/dev/null 2>&1 &) ; "
	r := newRig(t)
	h := r.start("tree")
	t.Run("kill", func(t *testing.T) {
		o := &output{}
		_, p := r.launch(h, o, "sh", "-c", spawn+"echo up; sleep 987")
		r.eventually("the command", func() bool { return o.text(sandbox.Stdout) == "up\n" })
		if n := r.ps(h, "sleep 987"); n < 4 {
			t.Fatalf("%d processes before the kill", n)
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		if st := r.await(p); st.Signal != 9 {
			t.Errorf("ended with %+v", st)
		}
		if n := r.ps(h, "sleep 987"); n != 0 {
			t.Errorf("%d processes outlived the command", n)
		}
	})
	t.Run("end", func(t *testing.T) {
		st, _ := r.run(h, "sh", "-c", spawn+"exit 3")
		if st.Code != 3 || st.Left != 3 {
			t.Errorf("ended with %+v", st)
		}
		if n := r.ps(h, "sleep 987"); n != 0 {
			t.Errorf("%d processes outlived the command", n)
		}
	})
	t.Run("keep", func(t *testing.T) {
		o := &output{}
		r.serial++
		cmd := command(o, "sh", "-c", "(while head -c 65536 /dev/zero; do date +%N >/tmp/tick; done) & echo main; exit 3")
		cmd.KeepBackground = true
		p, err := h.Start(t.Context(), fmt.Sprintf("cmd-%d", r.serial), cmd)
		if err != nil {
			t.Fatal(err)
		}
		if st := r.await(p); st.Code != 3 || st.Left < 1 {
			t.Errorf("ended with %+v", st)
		}
		kept := o.text(sandbox.Stdout)
		if !strings.Contains(kept, "main\n") || !strings.Contains(kept, "\x00") {
			t.Errorf("%d bytes of output hold not both streams' text", len(kept))
		}
		st, _ := r.run(h, "sh", "-c", "a=$(cat /tmp/tick); for i in $(seq 200); do [ \"$a\" = \"$(cat /tmp/tick)\" ] || exit 0; sleep 0.05; done; exit 1")
		if st.Code != 0 {
			t.Errorf("what was kept does not go on: %+v", st)
		}
		if n := len(o.text(sandbox.Stdout)); n != len(kept) {
			t.Errorf("%d bytes of output came after the end", n-len(kept))
		}
	})
}

// TestAnotherDaemonTakesOver cuts the channel in the middle of a stream, as
// the death of the daemon does, and reads on from the last byte.
func TestAnotherDaemonTakesOver(t *testing.T) {
	r := newRig(t)
	h := r.start("adopt")
	o := &output{}
	id, p := r.launch(h, o, "sh", "-c", "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; exit 5")
	r.eventually("some output", func() bool { return len(o.text(sandbox.Stdout)) > 1000 })
	if err := h.Detach(); err != nil {
		t.Fatal(err)
	}
	if st := r.await(p); st.Err == nil {
		t.Fatalf("a process that was let go of ended with %+v", st)
	}
	for round := range 3 {
		next, err := r.newRuntime(r.network).Adopt(t.Context(), r.spec("adopt"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := next.Reattach(t.Context(), id, sandbox.Offsets{Stdout: int64(len(o.text(sandbox.Stdout)))}, o)
		if err != nil {
			t.Fatal(err)
		}
		if round < 2 { // and dies again
			if err := next.Detach(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if st := r.await(p); st.Err != nil || st.Code != 5 {
			t.Fatalf("ended with %+v", st)
		}
		if _, err := next.Reattach(t.Context(), "never", sandbox.Offsets{}, o); err != nil {
			t.Fatal(err)
		}
	}
	var want strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if o.text(sandbox.Stdout) != want.String() {
		t.Errorf("%d bytes, want %d: output was lost or doubled", len(o.text(sandbox.Stdout)), want.Len())
	}
}

func TestUnknownProcess(t *testing.T) {
	r := newRig(t)
	h := r.start("unknown")
	p, err := h.Reattach(t.Context(), "never", sandbox.Offsets{}, &output{})
	if err != nil {
		t.Fatal(err)
	}
	if st := r.await(p); !errors.Is(st.Err, sandbox.ErrNoProcess) {
		t.Errorf("ended with %+v", st)
	}
}

func TestOpenFilesAndHints(t *testing.T) {
	r := newRig(t)
	h := r.start("hints")
	o := &output{}
	_, p := r.launch(h, o, "sh", "-c", "exec 5>/outputs/open; mkdir -p /outputs/a/b; echo x >/outputs/a/b/closed; echo ready; sleep 60")
	r.eventually("the command", func() bool { return o.text(sandbox.Stdout) == "ready\n" })
	open, err := h.OpenForWriting(t.Context(), "/outputs")
	if err != nil {
		t.Fatal(err)
	}
	if len(open) != 1 || open[0] != "/outputs/open" {
		t.Errorf("open for writing: %q", open)
	}
	for path := range h.Hints() {
		if path == "/outputs/a/b/closed" {
			break
		}
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	r.await(p)
}

func TestGuestKillsItsInit(t *testing.T) {
	r := newRig(t)
	h := r.start("suicide")
	_, p := r.launch(h, &output{}, "sh", "-c", "kill -9 1; sleep 60")
	if st := r.await(p); !errors.Is(st.Err, sandbox.ErrGone) {
		t.Errorf("ended with %+v", st)
	}
	<-h.Done()
	if _, err := r.runtime.Adopt(t.Context(), r.spec("suicide")); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("adopting it: %v", err)
	}
}

func TestOutOfMemory(t *testing.T) {
	r := newRig(t)
	if ok, why := r.runtime.LimitsEnforced(); !ok {
		t.Fatalf("this host does not bound memory: %s", why)
	}
	spec := r.spec("oom")
	spec.Limits.MemoryBytes = 300 << 20
	h, err := r.runtime.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	_, p := r.launch(h, &output{}, "python3", "-c", "b=[]\nwhile True: b.append(b'x'*10_000_000)")
	st := r.await(p)
	if !errors.Is(st.Err, sandbox.ErrGone) {
		t.Fatalf("ended with %+v", st)
	}
	<-h.Done()
	if exit := h.Exit(); !exit.OOM || !strings.Contains(exit.Reason, "300 MiB") {
		t.Errorf("the sandbox ended with %+v", exit)
	}
}

// TestFailedBootLeavesNothing makes each step of a boot fail in turn; the
// rig's end looks for what is left.
func TestFailedBootLeavesNothing(t *testing.T) {
	for name, spoil := range map[string]func(*rig, *sandbox.Spec){
		"image is missing": func(_ *rig, s *sandbox.Spec) { s.Image = "/nowhere/image.erofs" },
		"image is no image": func(r *rig, s *sandbox.Spec) {
			s.Image = filepath.Join(r.dir, "junk")
			os.WriteFile(s.Image, []byte("junk"), 0o600)
		},
		"disk is a file":    func(r *rig, s *sandbox.Spec) { os.WriteFile(s.Disk, nil, 0o600) },
		"bad id":            func(_ *rig, s *sandbox.Spec) { s.ID = "../up" },
		"too little memory": func(_ *rig, s *sandbox.Spec) { s.Limits.MemoryBytes = 1 << 20 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			spec := r.spec("broken")
			spoil(r, &spec)
			if _, err := r.runtime.Start(t.Context(), spec); err == nil {
				t.Fatal("it started")
			} else {
				t.Log(err)
			}
			ids, err := r.runtime.List(t.Context())
			if err != nil || len(ids) != 0 {
				t.Errorf("left: %q, %v", ids, err)
			}
		})
	}
	t.Run("canceled", func(t *testing.T) {
		r := newRig(t)
		for _, after := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond, 100 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			h, err := r.runtime.Start(ctx, r.spec("late"))
			cancel()
			if err == nil {
				if err := errors.Join(h.Detach(), r.runtime.Remove(t.Context(), "late")); err != nil {
					t.Fatal(err)
				}
			}
			ids, err := r.runtime.List(t.Context())
			if err != nil || len(ids) != 0 {
				t.Errorf("after %s left: %q, %v", after, ids, err)
			}
		}
	})
}

func TestRemoveTwice(t *testing.T) {
	r := newRig(t)
	h := r.start("twice")
	for range 2 {
		if err := r.runtime.Remove(t.Context(), "twice"); err != nil {
			t.Fatal(err)
		}
	}
	<-h.Done()
}
