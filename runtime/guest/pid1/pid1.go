// Package pid1 is the guest's end of the protocol in runtime/guest: the first
// process of a sandbox. It starts commands, keeps their output until the host
// has it, ends a command with all its descendants, and tells the host which
// files below /outputs are finished.
//
// It holds nothing that the host relies on for another sandbox: guest root may
// kill or replace it, and then only this sandbox ends.
package pid1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"mediasandbox/runtime/guest"
)

// Config says where things are in the guest.
type Config struct {
	// Socket is the path of the host's listening socket.
	Socket string
	// Outputs is the directory whose finished files are hinted.
	Outputs string
	// Journal is the file that records which of them were closed.
	Journal string
	// Cgroup is the root of the guest's cgroup v2 tree.
	Cgroup string
	// PIDs is how many processes and threads the commands may have together;
	// 0 is no limit.
	PIDs int64
}

// Init is the guest's PID 1.
type Init struct {
	cfg   Config
	table *table

	// mu guards conn: frames are written whole.
	mu   sync.Mutex
	conn net.Conn
}

// New returns an Init; Run starts it.
func New(cfg Config) *Init {
	in := &Init{cfg: cfg}
	in.table = newTable(in)
	return in
}

// Run serves the host until ctx ends. It returns only when the host can never
// be served.
func (in *Init) Run(ctx context.Context) error {
	// PID 1 must outlive these. They are caught, not ignored: commands would
	// inherit that they are ignored, but not that they are caught.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE, syscall.SIGTERM)
	// The host's files are created with the modes the commands ask for.
	syscall.Umask(0o022)
	commands, err := boundCommands(in.cfg.Cgroup, in.cfg.PIDs)
	if err != nil {
		return fmt.Errorf("bound the commands: %w", err)
	}
	in.table.cgroup = commands
	in.table.refill()
	go in.table.reap()
	hints, err := watchOutputs(in.cfg.Outputs, in.cfg.Journal)
	if err != nil {
		return fmt.Errorf("watch %s: %w", in.cfg.Outputs, err)
	}
	go in.forwardHints(hints)
	pause := minRedial
	for ctx.Err() == nil {
		reached, err := in.serve(ctx)
		if err != nil {
			fmt.Fprintln(os.Stderr, "sandbox-init:", err)
		}
		if reached {
			pause = minRedial
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, maxRedial)
	}
	return ctx.Err()
}

// The pause between two attempts to reach the host grows: a daemon that
// restarts is found at once, and one that stays away costs its host little.
const (
	minRedial = 5 * time.Millisecond
	maxRedial = 500 * time.Millisecond
)

// serve speaks with the host over one connection, if it can be reached.
func (in *Init) serve(ctx context.Context) (reached bool, err error) {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", in.cfg.Socket)
	if err != nil {
		return false, nil // the host is away; it comes back
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := guest.WriteJSON(conn, guest.KindHello, guest.Hello{Version: guest.Version, Procs: in.table.ids()}); err != nil {
		return true, nil
	}
	in.setConn(conn)
	defer in.dropConn(conn)
	r := bufio.NewReaderSize(conn, 128<<10)
	for {
		kind, body, err := guest.ReadFrame(r)
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			return true, nil
		}
		if err != nil {
			return true, fmt.Errorf("read from the host: %w", err)
		}
		if err := in.handle(kind, body); err != nil {
			return true, err
		}
	}
}

// setConn makes conn the one that frames go to. Output flows again only for
// the processes that the host resumes.
func (in *Init) setConn(conn net.Conn) {
	in.mu.Lock()
	in.conn = conn
	in.mu.Unlock()
}

func (in *Init) dropConn(conn net.Conn) {
	in.mu.Lock()
	if in.conn == conn {
		in.conn = nil
	}
	in.mu.Unlock()
	in.table.pauseAll()
}

var errAway = errors.New("the host is away")

// sendJSON and sendChunk write one frame to the host.
func (in *Init) sendJSON(kind guest.Kind, v any) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.conn == nil {
		return errAway
	}
	return guest.WriteJSON(in.conn, kind, v)
}

func (in *Init) sendChunk(c guest.Chunk) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.conn == nil {
		return errAway
	}
	return guest.WriteChunk(in.conn, guest.KindOutput, c)
}

// handle acts on one frame of the host.
func (in *Init) handle(kind guest.Kind, body []byte) error {
	switch kind {
	case guest.KindStart:
		return decoded(body, in.table.start)
	case guest.KindResume:
		return decoded(body, in.table.resume)
	case guest.KindSignal:
		return decoded(body, in.table.signal)
	case guest.KindKill:
		return decoded(body, in.table.kill)
	case guest.KindForget:
		return decoded(body, in.table.forget)
	case guest.KindResize:
		return decoded(body, in.table.resize)
	case guest.KindWarm:
		return decoded(body, func(q guest.Warm) { go in.table.warm.start(in.table, q) })
	case guest.KindOpenFiles:
		return decoded(body, func(q guest.OpenFiles) { go in.answerOpenFiles(q) })
	case guest.KindAck, guest.KindStdin:
		c, err := guest.ParseChunk(body)
		if err != nil {
			return err
		}
		if kind == guest.KindAck {
			in.table.ack(c)
		} else {
			in.table.stdin(c)
		}
		return nil
	}
	return fmt.Errorf("frame kind %d is not known", kind)
}

func decoded[T any](body []byte, act func(T)) error {
	v, err := guest.ParseJSON[T](body)
	if err != nil {
		return err
	}
	act(v)
	return nil
}

func (in *Init) forwardHints(paths <-chan string) {
	for p := range paths {
		// A hint that the host misses is made good by the scan at the
		// command's end.
		_ = in.sendJSON(guest.KindHint, guest.Hint{Path: []byte(p)})
	}
}

func (in *Init) answerOpenFiles(q guest.OpenFiles) {
	a := guest.Files{Seq: q.Seq}
	paths, err := openForWriting("/proc", q.Dir)
	if err != nil {
		a.Err = err.Error()
	}
	for _, p := range paths {
		a.Paths = append(a.Paths, []byte(p))
	}
	_ = in.sendJSON(guest.KindFiles, a) // the host asks again after a reconnect
}
