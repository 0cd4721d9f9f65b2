package pid1

import (
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mediasandbox/runtime/guest"
)

//go:embed warm.py
var warmSource []byte

const (
	warmScript = "/run/media-sandbox-warm.py"
	// warmPause is how long after a child was taken the next one is forked: a
	// fork of a large process costs gVisor some 30 ms of a CPU, which the
	// command that has just begun shall have.
	warmPause = 25 * time.Millisecond
	// warmPatience bounds the wait for a child that is being forked: starting
	// Python anew takes longer.
	warmPatience = 250 * time.Millisecond
	// warmHello bounds the wait for a child to say its pid.
	warmHello = 5 * time.Second
)

// warmer keeps a Python process with its imports done, and one child of it
// forked ahead.
type warmer struct {
	// mu guards the fields below.
	mu      sync.Mutex
	control *net.UnixConn
	ready   *warmChild
	// next asks for the next child. Until that comes, coming is open.
	next   *time.Timer
	coming chan struct{}
}

// warmChild waits for the script that it is to become.
type warmChild struct {
	pid  int
	conn *net.UnixConn
}

// start begins warming, once.
func (w *warmer) start(t *table, req guest.Warm) {
	w.mu.Lock()
	begun := w.control != nil
	w.mu.Unlock()
	if begun {
		return
	}
	control, err := w.launch(t, req)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox-init: warm python:", err)
		return
	}
	w.mu.Lock()
	w.control = control
	w.ask(0)
	w.mu.Unlock()
	go w.collect(control)
}

// launch starts the parent process.
func (w *warmer) launch(t *table, req guest.Warm) (*net.UnixConn, error) {
	if err := os.WriteFile(warmScript, warmSource, 0o600); err != nil {
		return nil, fmt.Errorf("write the script: %w", err)
	}
	path, err := lookPath([]string{"python3"}, req.Env, "/")
	if err != nil {
		return nil, err
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket pair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "control")
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, syscall.Close(fds[0]))
	}
	defer null.Close()
	attr := &syscall.ProcAttr{
		Dir: "/", Env: req.Env,
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), theirs.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	t.mu.Lock()
	_, err = syscall.ForkExec(path, []string{"python3", warmScript}, attr)
	t.adopted = true
	t.born.Signal()
	t.mu.Unlock()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", path, err), syscall.Close(fds[0]))
	}
	return unixConn(fds[0])
}

// unixConn takes a descriptor over.
func unixConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("take over a socket: %w", err)
	}
	return c.(*net.UnixConn), nil
}

// ask wants another child after a pause. mu is held.
func (w *warmer) ask(pause time.Duration) {
	if w.control == nil || w.coming != nil {
		return
	}
	control := w.control
	w.coming = make(chan struct{})
	w.next = time.AfterFunc(pause, func() {
		_, _ = control.Write([]byte("f")) // collect notices its end
	})
}

// arrived notes that a child came, or with nil that none will. mu is held.
func (w *warmer) arrived(child *warmChild) {
	if w.ready != nil {
		w.ready.conn.Close()
	}
	w.ready = child
	if w.coming != nil {
		close(w.coming)
		w.coming = nil
	}
}

// late returns what closes when a child comes, if one is on its way and none is
// here. Its pause is over: somebody waits.
func (w *warmer) late() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ready != nil || w.coming == nil {
		return nil
	}
	if w.next.Stop() {
		w.next.Reset(0)
	}
	return w.coming
}

// collect receives children until the parent ends.
func (w *warmer) collect(control *net.UnixConn) {
	for {
		child, err := receiveChild(control)
		w.mu.Lock()
		if err != nil {
			w.control = nil
		}
		w.arrived(child)
		w.mu.Unlock()
		if err != nil {
			control.Close()
			return
		}
	}
}

func receiveChild(control *net.UnixConn) (*warmChild, error) {
	buf, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := control.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return nil, errors.New("no child came")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.New("no child's socket came")
	}
	conn, err := unixConn(fds[0])
	if err != nil {
		return nil, err
	}
	hello := make([]byte, 32)
	if err := conn.SetReadDeadline(time.Now().Add(warmHello)); err != nil {
		return nil, err
	}
	k, err := conn.Read(hello)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(hello[:k])))
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &warmChild{pid, conn}, nil
}

// take returns the child that is ready, or nil.
func (w *warmer) take() *warmChild {
	w.mu.Lock()
	defer w.mu.Unlock()
	child := w.ready
	w.ready = nil
	if child != nil {
		w.ask(warmPause)
	}
	return child
}

// died forgets a child that ended before it was taken.
func (w *warmer) died(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ready == nil || w.ready.pid != pid {
		return
	}
	w.ready.conn.Close()
	w.ready = nil
	w.ask(warmPause)
}

// become makes the child a command.
func (c *warmChild) become(req guest.Start, files []*os.File) error {
	defer c.conn.Close()
	body, err := json.Marshal(struct {
		Argv []string `json:"argv"`
		Env  []string `json:"env"`
		Dir  string   `json:"dir"`
	}{req.Argv[1:], req.Env, req.Dir})
	if err != nil {
		return fmt.Errorf("encode a request to python: %w", err)
	}
	body = append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	rights := unix.UnixRights(int(files[0].Fd()), int(files[1].Fd()), int(files[2].Fd()))
	n, _, err := c.conn.WriteMsgUnix(body, rights, nil)
	if err == nil && n < len(body) {
		_, err = c.conn.Write(body[n:])
	}
	if err != nil {
		return fmt.Errorf("hand a script to python: %w", err)
	}
	return nil
}
