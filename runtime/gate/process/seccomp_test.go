package process

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// forbidden is what a gate that was taken over would want to do.
var forbidden = map[string]func(){
	"bind":   func() { _ = unix.Bind(3, &unix.SockaddrInet4{}) },
	"listen": func() { _ = unix.Listen(3, 1) },
	"accept": func() { _, _, _ = unix.Accept(3) },
	"exec":   func() { _ = unix.Exec("/bin/true", nil, nil) },
	"fork":   func() { _, _, _ = unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0) },
	"open": func() {
		_, _ = unix.Openat(unix.AT_FDCWD, "/etc/passwd", unix.O_RDONLY, 0)
	},
	"write-a-file": func() { _, _ = unix.Openat(8, "x", unix.O_WRONLY|unix.O_CREAT, 0o600) },
	"raw-socket":   func() { _, _ = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 1) },
	"packet-socket": func() {
		_, _ = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	},
	"unix-socket": func() { _, _ = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) },
	"netlink":     func() { _, _ = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) },
	"ptrace":      func() { _ = unix.PtraceAttach(1) },
	"kill":        func() { _ = unix.Kill(1, 0) },
	"ioctl":       func() { _, _ = unix.IoctlGetInt(0, unix.TUNGETIFF) },
	"namespace":   func() { _ = unix.Unshare(unix.CLONE_NEWUSER) },
	"executable-memory": func() {
		_, _ = unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	},
}

// filterEnv makes the test binary install the filter and do what it says.
const filterEnv = "GATE_TEST_FORBIDDEN"

func TestMain(m *testing.M) {
	what := os.Getenv(filterEnv)
	if what == "" {
		os.Exit(m.Run())
	}
	if err := installFilter(); err != nil {
		fmt.Println("install:", err)
		os.Exit(3)
	}
	if f := forbidden[what]; f != nil {
		f()
		fmt.Println("it went through")
		os.Exit(4)
	}
	os.Exit(lawful())
}

// lawful does what a gate does all day.
func lawful() int {
	c, err := net.Dial("tcp4", "127.0.0.1:1")
	if err == nil {
		fmt.Println("somebody listens at port 1")
		return 5
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		fmt.Println("dial:", err, c)
		return 6
	}
	done := make(chan []byte)
	for range 50 {
		go func() {
			runtime.LockOSThread()
			done <- make([]byte, 1<<20)
		}()
	}
	for range 50 {
		<-done
	}
	runtime.GC()
	return 0
}

// staticSelf returns this test binary as the product is built: without cgo,
// whose threads need other system calls.
func staticSelf(t *testing.T) string {
	t.Helper()
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("the binary does not say how it was built")
	}
	if slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "0"}) {
		return os.Args[0]
	}
	path := filepath.Join(t.TempDir(), "process.test")
	cmd := exec.Command("go", "test", "-c", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the test without cgo: %v: %s", err, out)
	}
	return path
}

func TestSystemCallFilter(t *testing.T) {
	self := staticSelf(t)
	run := func(what string) error {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), filterEnv+"="+what, "GOMAXPROCS=2")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
		}
		return nil
	}
	if err := run("lawful"); err != nil {
		t.Errorf("a lawful process: %v", err)
	}
	for what := range forbidden {
		err := run(what)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGSYS {
			t.Errorf("%s: %v, want death by SIGSYS", what, err)
		}
	}
}
