package guest

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mediasandbox/runtime/sandbox"
)

// pipeListener lets a test dial a Host without a socket of the host's.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

// dial returns the guest's end of a connection that the host serves.
func (l *pipeListener) dial() net.Conn {
	near, far := net.Pipe()
	l.conns <- far
	return near
}

// greeted returns one that has said hello.
func (l *pipeListener) greeted(t testing.TB, procs ...string) net.Conn {
	t.Helper()
	conn := l.dial()
	if err := WriteJSON(conn, KindHello, Hello{Version: Version, Procs: procs}); err != nil {
		t.Fatal(err)
	}
	return conn
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// keeper is a sink that checks that output arrives in one piece.
type keeper struct {
	mu   sync.Mutex
	kept [3]bytes.Buffer
	err  error
}

// Write implements sandbox.Sink.
func (k *keeper) Write(s sandbox.Stream, offset int64, data []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if offset != int64(k.kept[s].Len()) {
		return fmt.Errorf("stream %d continues at %d after %d bytes", s, offset, k.kept[s].Len())
	}
	if k.err != nil {
		return k.err
	}
	k.kept[s].Write(data)
	return nil
}

// expect reads one frame of that kind.
func expect[T any](t testing.TB, conn net.Conn, want Kind) T {
	t.Helper()
	kind, body, err := ReadFrame(conn)
	if err != nil || kind != want {
		t.Fatalf("kind %d, %v; want kind %d", kind, err, want)
	}
	v, err := ParseJSON[T](body)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// acked sends a chunk and waits for its acknowledgement.
func acked(t testing.TB, conn net.Conn, c Chunk) {
	t.Helper()
	if err := WriteChunk(conn, KindOutput, c); err != nil {
		t.Fatal(err)
	}
	kind, body, err := ReadFrame(conn)
	if err != nil || kind != KindAck {
		t.Fatalf("kind %d, %v; want an acknowledgement", kind, err)
	}
	if got, err := ParseChunk(body); err != nil || got.Offset != c.Offset+int64(len(c.Data)) || got.Stream != c.Stream {
		t.Fatalf("%+v, %v", got, err)
	}
}

// TestCommandOutlivesItsConnection plays a guest that loses the connection in
// the middle of a command and sends some of its output twice.
func TestCommandOutlivesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipeListener()
		h := NewHost(ln, Warm{}, quiet())
		defer h.Close(sandbox.ErrGone)
		conn := ln.greeted(t)
		<-h.Ready()
		out := &keeper{}
		began := make(chan *Proc)
		go func() {
			p, err := h.Start(t.Context(), "x", sandbox.Command{Argv: []string{"true"}, Sink: out})
			if err != nil {
				t.Error(err)
			}
			began <- p
		}()
		if s := expect[Start](t, conn, KindStart); s.Proc != "x" {
			t.Errorf("%+v", s)
		}
		p := <-began
		acked(t, conn, Chunk{Proc: "x", Stream: 1, Offset: 0, Data: []byte("one ")})
		acked(t, conn, Chunk{Proc: "x", Stream: 2, Offset: 0, Data: []byte("err")})
		conn.Close()
		synctest.Wait()
		if err := p.Kill(); !errors.Is(err, errNotConnected) {
			t.Errorf("a signal without a connection: %v", err)
		}
		conn = ln.greeted(t, "x")
		defer conn.Close()
		if r := expect[Resume](t, conn, KindResume); r.Stdout != 4 || r.Stderr != 3 {
			t.Errorf("it resumes at %+v", r)
		}
		// It begins before what the host has, as after a lost acknowledgement.
		acked(t, conn, Chunk{Proc: "x", Stream: 1, Offset: 2, Data: []byte("e two")})
		if err := WriteJSON(conn, KindExited, Exited{Proc: "x", Code: 3, Stdout: 7, Stderr: 3}); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if st := p.Status(); st.Code != 3 || st.Err != nil {
			t.Errorf("%+v", st)
		}
		if got := out.kept[1].String() + "|" + out.kept[2].String(); got != "one two|err" {
			t.Errorf("kept %q", got)
		}
	})
}

// TestEndsThatAreNone: a guest that ends a command before all its output, or
// does not know it.
func TestEndsThatAreNone(t *testing.T) {
	for name, tt := range map[string]struct {
		exited Exited
		want   string
	}{
		"early":   {Exited{Proc: "x", Stdout: 10}, "before all output"},
		"unknown": {Exited{Proc: "x", Unknown: true}, sandbox.ErrNoProcess.Error()},
	} {
		synctest.Test(t, func(t *testing.T) {
			ln := newPipeListener()
			h := NewHost(ln, Warm{}, quiet())
			defer h.Close(sandbox.ErrGone)
			p, err := h.Reattach(t.Context(), "x", sandbox.Offsets{}, &keeper{})
			if err != nil {
				t.Fatal(err)
			}
			conn := ln.greeted(t)
			defer conn.Close()
			expect[Resume](t, conn, KindResume)
			if err := WriteJSON(conn, KindExited, tt.exited); err != nil {
				t.Fatal(err)
			}
			<-p.Done()
			if st := p.Status(); st.Err == nil || st.Code != -1 || !bytes.Contains([]byte(st.Err.Error()), []byte(tt.want)) {
				t.Errorf("%s: %+v", name, st)
			}
		})
	}
}

func TestSinkThatFailsEndsTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipeListener()
		h := NewHost(ln, Warm{}, quiet())
		defer h.Close(sandbox.ErrGone)
		full := errors.New("disk full")
		p, err := h.Reattach(t.Context(), "x", sandbox.Offsets{}, &keeper{err: full})
		if err != nil {
			t.Fatal(err)
		}
		conn := ln.greeted(t, "x")
		defer conn.Close()
		expect[Resume](t, conn, KindResume)
		if err := WriteChunk(conn, KindOutput, Chunk{Proc: "x", Stream: 1, Data: []byte("data")}); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if st := p.Status(); !errors.Is(st.Err, full) {
			t.Errorf("%+v", st)
		}
	})
}

func TestCloseEndsWhatIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipeListener()
		h := NewHost(ln, Warm{}, quiet())
		p, err := h.Reattach(t.Context(), "x", sandbox.Offsets{}, &keeper{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Reattach(t.Context(), "x", sandbox.Offsets{}, &keeper{}); err == nil {
			t.Error("one process is followed twice")
		}
		h.Close(sandbox.ErrGone)
		h.Close(errors.New("again"))
		<-p.Done()
		if st := p.Status(); !errors.Is(st.Err, sandbox.ErrGone) {
			t.Errorf("%+v", st)
		}
		if _, open := <-h.Hints(); open {
			t.Error("hints go on")
		}
		if _, err := h.Start(t.Context(), "y", sandbox.Command{}); !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("a start after the end: %v", err)
		}
	})
}

// TestBadGuestsAreDroppedAndTheNextIsServed begins in ways that end the
// connection, the slow ones after the time that a guest is given.
func TestBadGuestsAreDroppedAndTheNextIsServed(t *testing.T) {
	chunk := func(c Chunk) func(net.Conn) error {
		return func(conn net.Conn) error {
			return errors.Join(WriteJSON(conn, KindHello, Hello{Version: Version, Procs: []string{"x"}}),
				skipFrame(conn), WriteChunk(conn, KindOutput, c))
		}
	}
	for name, talk := range map[string]func(net.Conn) error{
		"says nothing":    func(net.Conn) error { return nil },
		"says half":       func(c net.Conn) error { _, err := c.Write([]byte{0, 0}); return err },
		"another version": func(c net.Conn) error { return WriteJSON(c, KindHello, Hello{Version: Version + 1}) },
		"no hello":        func(c net.Conn) error { return WriteJSON(c, KindHint, Hint{}) },
		"no JSON":         func(c net.Conn) error { return writeFrame(c, KindHello, []byte("{")) },
		"too large":       func(c net.Conn) error { _, err := c.Write([]byte{255, 255, 255, 255, byte(KindHello)}); return err },
		"unknown kind": func(c net.Conn) error {
			return errors.Join(WriteJSON(c, KindHello, Hello{Version: Version, Procs: []string{"x"}}), skipFrame(c), writeFrame(c, 200, nil))
		},
		"a gap":             chunk(Chunk{Proc: "x", Stream: 1, Offset: 5, Data: []byte("late")}),
		"another stream":    chunk(Chunk{Proc: "x", Stream: 3, Data: []byte("x")}),
		"does not read":     func(c net.Conn) error { return WriteJSON(c, KindHello, Hello{Version: Version}) },
		"cut after a frame": func(c net.Conn) error { return c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := newPipeListener()
				h := NewHost(ln, Warm{}, quiet())
				defer h.Close(sandbox.ErrGone)
				out := &keeper{}
				p, err := h.Reattach(t.Context(), "x", sandbox.Offsets{}, out)
				if err != nil {
					t.Fatal(err)
				}
				bad := ln.dial()
				if err := talk(bad); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				good := ln.greeted(t, "x")
				defer good.Close()
				if waited := time.Since(began); waited > 2*ioTimeout {
					t.Errorf("the next guest waited %s", waited)
				}
				expect[Resume](t, good, KindResume)
				acked(t, good, Chunk{Proc: "x", Stream: 1, Data: []byte("fine")})
				if got := out.kept[1].String(); got != "fine" {
					t.Errorf("kept %q", got)
				}
				select {
				case <-p.Done():
					t.Errorf("the command ended: %+v", p.Status())
				default:
				}
			})
		})
	}
}

// skipFrame reads the frame with which the host asks for a process.
func skipFrame(conn net.Conn) error {
	_, _, err := ReadFrame(conn)
	return err
}

func TestHintsAndQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipeListener()
		h := NewHost(ln, Warm{}, quiet())
		defer h.Close(sandbox.ErrGone)
		if _, err := h.OpenForWriting(t.Context(), "/outputs"); !errors.Is(err, errNotConnected) {
			t.Errorf("without a guest: %v", err)
		}
		conn := ln.greeted(t)
		<-h.Ready()
		// More hints than anybody reads are dropped, and block nobody.
		for range maxHints + 100 {
			if err := WriteJSON(conn, KindHint, Hint{Path: []byte("/outputs/bad\xff")}); err != nil {
				t.Fatal(err)
			}
		}
		if got := <-h.Hints(); got != "/outputs/bad\xff" {
			t.Errorf("hint %q", got)
		}
		ask := func(answer func(seq uint64) error) ([]string, error) {
			go func() {
				kind, body, err := ReadFrame(conn)
				q, parseErr := ParseJSON[OpenFiles](body)
				if err := errors.Join(err, parseErr, answer(q.Seq)); err != nil || kind != KindOpenFiles {
					t.Errorf("kind %d, %v", kind, err)
				}
			}()
			return h.OpenForWriting(t.Context(), "/outputs")
		}
		got, err := ask(func(seq uint64) error {
			return errors.Join(
				WriteJSON(conn, KindFiles, Files{Seq: seq + 7, Paths: [][]byte{[]byte("/not/asked")}}),
				WriteJSON(conn, KindFiles, Files{Seq: seq, Paths: [][]byte{[]byte("/outputs/a")}}),
				WriteJSON(conn, KindFiles, Files{Seq: seq, Paths: [][]byte{[]byte("/twice")}}))
		})
		if err != nil || !slices.Equal(got, []string{"/outputs/a"}) {
			t.Errorf("%q, %v", got, err)
		}
		if _, err := ask(func(seq uint64) error { return WriteJSON(conn, KindFiles, Files{Seq: seq, Err: "no /proc"}) }); err == nil {
			t.Error("the guest's error was lost")
		}
		many := make([][]byte, MaxPaths+1)
		if _, err := ask(func(seq uint64) error { return WriteJSON(conn, KindFiles, Files{Seq: seq, Paths: many}) }); err == nil {
			t.Error("more paths than allowed were taken")
		}
		if _, err := ask(func(uint64) error { return conn.Close() }); !errors.Is(err, errNotConnected) {
			t.Errorf("a guest that goes away: %v", err)
		}
	})
}
