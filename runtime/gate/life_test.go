package gate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mediasandbox/runtime/gate/internal/handover"
	"mediasandbox/runtime/sandbox"
)

var publicMode = sandbox.NetworkPolicy{Mode: sandbox.NetworkPublic}

// status returns a field of /proc/PID/status.
func status(t testing.TB, pid int, field string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.Join(strings.Fields(v), " ")
		}
	}
	t.Fatalf("/proc/%d/status has no %s", pid, field)
	return ""
}

// TestGateHasNoRights looks at the process from outside.
func TestGateHasNoRights(t *testing.T) {
	w := newWorld(t)
	// A descriptor that the daemon forgot to close on exec.
	leak, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0)
	w.must(err)
	defer func() { w.must(unix.Close(leak)) }()
	w.attach(w.manager(nil), "rights")
	pids := gatePIDs(t)
	if len(pids) != 1 {
		t.Fatalf("gates: %v, want one", pids)
	}
	pid := pids[0]
	const none = "0000000000000000"
	for field, want := range map[string]string{
		"Name": "sandbox-gate", "Uid": "65534 65534 65534 65534", "Gid": "65534 65534 65534 65534", "Groups": "",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2",
	} {
		if got := status(t, pid, field); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	// Every thread, not only the first.
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	w.must(err)
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		w.must(err)
		if got := status(t, tid, "Seccomp"); got != "2" {
			t.Errorf("thread %d: seccomp %s", tid, got)
		}
	}
	sid, err := unix.Getsid(pid)
	w.must(err)
	if sid != pid {
		t.Errorf("its session is %d, want its own", sid)
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	w.must(err)
	for _, fd := range fds {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		w.must(err)
		if strings.Contains(to, "passwd") {
			t.Errorf("descriptor %s leads to %s", fd.Name(), to)
		}
	}
	for _, limit := range []string{"Max core file size", "Max data size", "Max file size"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
		w.must(err)
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, limit) && strings.Contains(line, "unlimited") {
				t.Errorf("not limited: %s", strings.TrimSpace(line))
			}
		}
	}
}

// TestAttachFailures breaks each step in turn; nothing is ever left.
func TestAttachFailures(t *testing.T) {
	w := newWorld(t)
	// The test binary plays gates that fail, by the name it runs under.
	self, err := os.ReadFile("/proc/self/exe")
	w.must(err)
	bad := func(name string) string {
		path := filepath.Join(w.dir, name)
		w.must(os.WriteFile(path, self, 0o755))
		return path
	}
	for _, c := range []struct {
		name   string
		change func(*Config)
		before func(m *Manager)
		policy sandbox.NetworkPolicy
		want   string
	}{
		{"a program that ends", func(c *Config) { c.Binary = bad(endsGate) }, nil, publicMode, "out of luck"},
		{"a program that says why", func(c *Config) { c.Binary = bad(saysGate) }, nil, publicMode, "no TAP for you"},
		{"a program that is none", func(c *Config) {
			c.Binary = filepath.Join(w.dir, "none")
			w.must(os.WriteFile(c.Binary, []byte("garbage"), 0o755))
		}, nil, publicMode, "exec format error"},
		{"no such cgroup", func(c *Config) { c.Cgroup = filepath.Join(w.dir, "missing") }, nil, publicMode, "cgroup"},
		{"no such uplink", func(c *Config) { c.Uplink = filepath.Join(w.dir, "missing") }, nil, publicMode, "namespace"},
		{"a resolv.conf that is none", func(c *Config) { c.ResolvConf = w.dir }, nil, publicMode, "resolvers"},
		{"the last step", nil, func(m *Manager) {
			// The marker's place is taken by the time it is to be written: the
			// gate is not ready before that.
			m.cfg.Binary = bad(waitsGate)
			go func() {
				for os.Mkdir(m.attachedPath("fails"), 0o755) != nil {
					time.Sleep(time.Millisecond)
				}
			}()
		}, publicMode, "attached"},
		{"unknown mode", nil, nil, sandbox.NetworkPolicy{Mode: "open"}, "open"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{t: t, dir: t.TempDir(), uplink: w.uplink, outer: w.outer}
			w.must(os.Chmod(w.dir, 0o755))
			m := w.manager(c.change)
			if c.before != nil {
				c.before(m)
			}
			before := processes(t)
			_, err := m.Attach(t.Context(), "fails", c.policy)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("attach: %v, want it to mention %q", err, c.want)
			}
			if l := w.count(m.cfg.RunDir); l != (leftovers{}) {
				t.Errorf("left: %+v", l)
			}
			if ids, err := m.Attached(t.Context()); err != nil || len(ids) > 0 {
				t.Errorf("attached: %v, %v", ids, err)
			}
			w.eventually("no process is left", func() bool { return processes(t) == before })
		})
	}
}

// Names under which the test binary plays a gate that fails.
const (
	endsGate  = "gate-that-ends"
	saysGate  = "gate-that-says-why"
	waitsGate = "gate-that-waits"
)

// badGate plays such a gate, if this is its name.
func badGate() (code int, ok bool) {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return 0, false
	}
	tell := func(line string) { fmt.Fprintln(os.NewFile(handover.FDReady, "ready"), line) }
	switch filepath.Base(exe) {
	case endsGate:
		fmt.Fprintln(os.Stderr, "out of luck")
		return 3, true
	case saysGate:
		tell("no TAP for you")
		return 3, true
	case waitsGate:
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		if err := unix.FcntlFlock(handover.FDLock, unix.F_SETLK, &lock); err != nil {
			return 3, true
		}
		for st := (unix.Stat_t{}); unix.Fstatat(handover.FDDir, "attached", &st, 0) != nil; {
			time.Sleep(time.Millisecond)
		}
		tell(handover.Ready)
		select {}
	}
	return 0, false
}

func TestAttachTwice(t *testing.T) {
	w := newWorld(t)
	w.listenTCP(w.outer, publicAddr+":80", echo)
	m := w.manager(nil)
	a := w.attach(m, "twice")
	if _, err := m.Attach(t.Context(), "twice", publicMode); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second attach: %v, want 'exists'", err)
	}
	// The first is unharmed.
	c, _, err := w.guestDial(a, "tcp4", publicAddr+":80")
	w.must(err)
	w.must(c.Close())
	for _, id := range []string{"", "../up", "a/b", "UPPER", strings.Repeat("a", 33)} {
		if _, err := m.Attach(t.Context(), id, publicMode); err == nil {
			t.Errorf("attach %q: no error", id)
		}
		if err := m.Detach(t.Context(), id); err == nil {
			t.Errorf("detach %q: no error", id)
		}
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Attach(canceled, "late", publicMode); !errors.Is(err, context.Canceled) {
		t.Errorf("attach with a context that ended: %v", err)
	}
	if ids, err := m.Attached(t.Context()); err != nil || !slices.Equal(ids, []string{"twice"}) {
		t.Errorf("attached: %v, %v", ids, err)
	}
}

// TestDetachRemovesAll counts before, during and after.
func TestDetachRemovesAll(t *testing.T) {
	w := newWorld(t)
	m := w.manager(nil)
	for range 3 {
		for i := range 4 {
			_, err := m.Attach(t.Context(), fmt.Sprint("n", i), publicMode)
			w.must(err)
		}
		if l := w.count(m.cfg.RunDir); l.mounts != 4 || l.gates != 4 {
			t.Errorf("with four networks: %+v", l)
		}
		for i := range 4 {
			w.must(m.Detach(t.Context(), fmt.Sprint("n", i)))
			w.must(m.Detach(t.Context(), fmt.Sprint("n", i)))
		}
		if l := w.count(m.cfg.RunDir); l != (leftovers{}) {
			t.Errorf("left: %+v", l)
		}
	}
	w.must(m.Detach(t.Context(), "never-was"))
	// What a crash in the middle of Attach leaves.
	w.must(os.Mkdir(m.gatePath("half"), 0o755))
	w.must(os.WriteFile(m.netnsPath("half"), nil, 0o600))
	w.must(m.Detach(t.Context(), "half"))
	if ids, err := m.Attached(t.Context()); err != nil || len(ids) != 0 {
		t.Errorf("attached: %v, %v", ids, err)
	}
}

// TestGateIsStartedAgain kills gates, under this Manager and under the next.
func TestGateIsStartedAgain(t *testing.T) {
	w := newWorld(t)
	w.listenTCP(w.outer, publicAddr+":80", echo)
	var restarts atomic.Int64
	onRestart := func(c *Config) { c.OnRestart = func(string, string) { restarts.Add(1) } }
	first, err := New(w.config(onRestart))
	w.must(err)
	a, err := first.Attach(t.Context(), "again", publicMode)
	w.must(err)
	works := func() {
		t.Helper()
		w.eventually("a new flow works", func() bool {
			c, _, err := w.guestDial(a, "tcp4", publicAddr+":80")
			if err != nil {
				return false
			}
			return c.Close() == nil
		})
	}
	kill := func() {
		t.Helper()
		old := gatePIDs(t)
		if len(old) != 1 {
			t.Fatalf("gates: %v, want one", old)
		}
		w.must(unix.Kill(old[0], unix.SIGKILL))
		w.eventually("another gate runs", func() bool {
			now := gatePIDs(t)
			return len(now) == 1 && now[0] != old[0]
		})
	}
	works()
	kill()
	works()
	kill()
	works()
	w.must(first.Close())
	alive := gatePIDs(t)
	if len(alive) != 1 {
		t.Fatalf("gates after the manager was closed: %v, want one", alive)
	}
	works()

	second, err := New(w.config(onRestart))
	w.must(err)
	if now := gatePIDs(t); !slices.Equal(now, alive) {
		t.Errorf("the gate was %v and is %v: a restart of the daemon replaced it", alive, now)
	}
	kill()
	works()
	w.must(second.Close())

	// Dead before the daemon is back.
	w.must(unix.Kill(gatePIDs(t)[0], unix.SIGKILL))
	w.eventually("the gate is gone", func() bool { return len(gatePIDs(t)) == 0 })
	third, err := New(w.config(onRestart))
	w.must(err)
	works()
	if n := restarts.Load(); n != 4 {
		t.Errorf("%d restarts were told, want 4", n)
	}
	w.must(third.Detach(t.Context(), "again"))
	if l := w.count(third.cfg.RunDir); l != (leftovers{}) {
		t.Errorf("left: %+v", l)
	}
	w.must(third.Close())
}

// daemonVerb makes the test binary play a daemon that attaches a network and
// waits to be killed.
const daemonVerb = "play-daemon"

func playDaemon(args []string) int {
	m, err := New(Config{RunDir: args[0], Binary: args[1], Uplink: args[2], ResolvConf: args[3]})
	if err == nil {
		_, err = m.Attach(context.Background(), "orphan", publicMode)
	}
	fmt.Println("attached:", err)
	if err != nil {
		return 1
	}
	select {}
}

// TestDaemonKilled kills a daemon, and not its networks.
func TestDaemonKilled(t *testing.T) {
	w := newWorld(t)
	w.listenTCP(w.outer, publicAddr+":80", echo)
	cfg := w.config(nil)
	cmd := exec.Command(os.Args[0], daemonVerb, cfg.RunDir, cfg.Binary, cfg.Uplink, cfg.ResolvConf)
	cmd.Stderr = testWriter{t}
	out, err := cmd.StdoutPipe()
	w.must(err)
	w.must(cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(line, "<nil>") {
		t.Fatalf("the daemon: %q, %v", line, err)
	}
	w.must(cmd.Process.Kill())
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
		t.Fatalf("the daemon ended with %v", err)
	}
	alive := gatePIDs(t)
	if len(alive) != 1 {
		t.Fatalf("gates: %v, want one", alive)
	}
	m, err := New(cfg)
	w.must(err)
	defer func() { w.must(m.Close()) }()
	c, _, err := w.guestDial(sandbox.Attachment{Namespace: m.netnsPath("orphan")}, "tcp4", publicAddr+":80")
	w.must(err)
	w.must(c.Close())
	if now := gatePIDs(t); !slices.Equal(now, alive) {
		t.Errorf("the gate was %v and is %v", alive, now)
	}
	w.must(m.Detach(t.Context(), "orphan"))
	if l := w.count(cfg.RunDir); l != (leftovers{}) {
		t.Errorf("left: %+v", l)
	}
}

// TestNewRefusesToPretend holds that a Manager which could not keep its
// promise is not made.
func TestNewRefusesToPretend(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*Config){
		"no program":          func(c *Config) { c.Binary = filepath.Join(w.dir, "missing") },
		"a directory":         func(c *Config) { c.Binary = w.dir },
		"a relative run path": func(c *Config) { c.RunDir = "run" },
	} {
		if m, err := New(w.config(change)); err == nil {
			t.Errorf("%s: no error", name)
			w.must(m.Close())
		}
	}
}
