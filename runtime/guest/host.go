package guest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"mediasandbox/runtime/sandbox"
)

// Host is the host's end of one sandbox's channel. It listens for the guest,
// outlives any one connection, and is safe for concurrent use.
type Host struct {
	ln    net.Listener
	log   *slog.Logger
	warm  Warm
	hints chan string
	ready chan struct{}
	done  chan struct{}

	readyOnce sync.Once
	// writeMu keeps frames whole.
	writeMu sync.Mutex

	// mu guards everything below.
	mu      sync.Mutex
	conn    net.Conn
	procs   map[string]*Proc
	queries map[uint64]chan Files
	seq     uint64
	ended   error
}

// ioTimeout bounds a write to a guest that does not read, and its hello.
const ioTimeout = 5 * time.Second

// maxHints is how many hints may wait; more are dropped, since the scan at a
// command's end finds the same files.
const maxHints = 4096

// NewHost serves the guest that dials ln. Close ends it. With an environment
// in warm the guest is asked to keep a warm Python.
func NewHost(ln net.Listener, warm Warm, log *slog.Logger) *Host {
	h := &Host{
		ln: ln, warm: warm, log: log,
		hints: make(chan string, maxHints), ready: make(chan struct{}), done: make(chan struct{}),
		procs: make(map[string]*Proc), queries: make(map[uint64]chan Files),
	}
	go h.accept()
	return h
}

// Ready is closed when the guest has said hello for the first time.
func (h *Host) Ready() <-chan struct{} { return h.ready }

// Hints delivers what the guest says of finished files.
func (h *Host) Hints() <-chan string { return h.hints }

// Close ends the channel; every process still followed ends with cause.
func (h *Host) Close(cause error) {
	h.mu.Lock()
	if h.ended != nil {
		h.mu.Unlock()
		return
	}
	h.ended = cause
	conn, procs := h.conn, h.procs
	h.procs = map[string]*Proc{}
	h.mu.Unlock()
	h.ln.Close()
	if conn != nil {
		conn.Close()
	}
	<-h.done
	for _, p := range procs {
		p.end(sandbox.Status{Code: -1, Err: cause})
	}
	close(h.hints)
}

// accept serves one connection after the other. The guest's PID 1 holds one;
// whoever else in the guest dials waits for it to end.
func (h *Host) accept() {
	defer close(h.done)
	for {
		conn, err := h.ln.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				h.log.Error("accept from the guest", "error", err)
			}
			return
		}
		if err := h.serve(conn); err != nil {
			h.log.Warn("guest channel", "error", err)
		}
		conn.Close()
	}
}

func (h *Host) serve(conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(ioTimeout)); err != nil {
		return fmt.Errorf("set the hello's deadline: %w", err)
	}
	r := bufio.NewReaderSize(conn, 128<<10)
	kind, body, err := ReadFrame(r)
	if err != nil {
		return fmt.Errorf("read hello: %w", err)
	}
	hello, err := ParseJSON[Hello](body)
	if err != nil {
		return fmt.Errorf("read hello: %w", err)
	}
	if kind != KindHello || hello.Version != Version {
		return fmt.Errorf("hello of kind %d and version %d is not of version %d", kind, hello.Version, Version)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("clear the hello's deadline: %w", err)
	}
	defer h.disconnected()
	if err := h.greet(conn, hello); err != nil {
		return err
	}
	h.readyOnce.Do(func() { close(h.ready) })
	for {
		kind, body, err := ReadFrame(r)
		if err != nil {
			return nil // the guest dials again, or the sandbox has ended
		}
		if err := h.handle(kind, body); err != nil {
			return err
		}
	}
}

// greet makes conn the present connection and asks again for all that the
// last one did not finish.
func (h *Host) greet(conn net.Conn, hello Hello) error {
	known := make(map[string]bool, len(hello.Procs))
	for _, id := range hello.Procs {
		known[id] = true
	}
	h.mu.Lock()
	if h.ended != nil {
		h.mu.Unlock()
		return net.ErrClosed
	}
	h.conn = conn
	procs := make([]*Proc, 0, len(h.procs))
	for _, p := range h.procs {
		procs = append(procs, p)
	}
	h.mu.Unlock()
	if len(h.warm.Env) > 0 {
		if err := h.sendJSON(KindWarm, h.warm); err != nil {
			return err
		}
	}
	for _, p := range procs {
		if err := p.ask(known[p.id]); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) disconnected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn = nil
	for seq, ch := range h.queries {
		close(ch)
		delete(h.queries, seq)
	}
}

func (h *Host) handle(kind Kind, body []byte) error {
	switch kind {
	case KindOutput:
		c, err := ParseChunk(body)
		if err != nil {
			return err
		}
		if p := h.proc(c.Proc); p != nil {
			return p.chunk(c)
		}
	case KindExited:
		e, err := ParseJSON[Exited](body)
		if err != nil {
			return err
		}
		if p := h.proc(e.Proc); p != nil {
			p.exited(e)
		}
	case KindHint:
		hint, err := ParseJSON[Hint](body)
		if err != nil {
			return err
		}
		select {
		case h.hints <- string(hint.Path):
		default:
		}
	case KindFiles:
		f, err := ParseJSON[Files](body)
		if err != nil {
			return err
		}
		h.answer(f)
	default:
		return fmt.Errorf("frame kind %d is not known", kind)
	}
	return nil
}

func (h *Host) proc(id string) *Proc {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.procs[id]
}

func (h *Host) answer(f Files) {
	h.mu.Lock()
	ch := h.queries[f.Seq]
	delete(h.queries, f.Seq)
	h.mu.Unlock()
	if ch != nil {
		ch <- f
	}
}

var errNotConnected = errors.New("the guest is not connected")

// send writes one frame with write, bounded in time.
func (h *Host) send(write func(net.Conn) error) error {
	h.mu.Lock()
	conn, ended := h.conn, h.ended
	h.mu.Unlock()
	if ended != nil {
		return ended
	}
	if conn == nil {
		return errNotConnected
	}
	h.writeMu.Lock()
	defer h.writeMu.Unlock()
	if err := conn.SetWriteDeadline(time.Now().Add(ioTimeout)); err != nil {
		return fmt.Errorf("set the deadline of a write to the guest: %w", err)
	}
	if err := write(conn); err != nil {
		conn.Close()
		return fmt.Errorf("write to the guest: %w", err)
	}
	return nil
}

func (h *Host) sendJSON(kind Kind, v any) error {
	return h.send(func(c net.Conn) error { return WriteJSON(c, kind, v) })
}

func (h *Host) sendChunk(kind Kind, c Chunk) error {
	return h.send(func(conn net.Conn) error { return WriteChunk(conn, kind, c) })
}

// answerTimeout bounds the wait for an answer: a guest can stop its PID 1.
const answerTimeout = 20 * time.Second

// OpenForWriting asks the guest which files below dir are open for writing.
func (h *Host) OpenForWriting(ctx context.Context, dir string) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, fmt.Errorf("the guest's PID 1 did not answer within %s", answerTimeout))
	defer cancel()
	ch := make(chan Files, 1)
	h.mu.Lock()
	h.seq++
	seq := h.seq
	h.queries[seq] = ch
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.queries, seq)
		h.mu.Unlock()
	}()
	if err := h.sendJSON(KindOpenFiles, OpenFiles{Seq: seq, Dir: dir}); err != nil {
		return nil, err
	}
	select {
	case f, ok := <-ch:
		if !ok {
			return nil, errNotConnected
		}
		if f.Err != "" {
			return nil, fmt.Errorf("guest: %s", f.Err)
		}
		if len(f.Paths) > MaxPaths {
			return nil, fmt.Errorf("guest named %d open files, the limit is %d", len(f.Paths), MaxPaths)
		}
		paths := make([]string, len(f.Paths))
		for i, p := range f.Paths {
			paths[i] = string(p)
		}
		return paths, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
