package pid1

import (
	"bytes"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"

	"mediasandbox/runtime/guest"
)

// told reads what a stream tells over one connection, until that ends.
type told struct {
	mu     sync.Mutex
	chunks []guest.Chunk
}

func (h *told) read(t *testing.T, conn net.Conn) {
	for {
		kind, body, err := guest.ReadFrame(conn)
		if err != nil {
			return
		}
		c, err := guest.ParseChunk(body)
		if err != nil || kind != guest.KindOutput {
			t.Errorf("kind %d, %v", kind, err)
			return
		}
		h.mu.Lock()
		h.chunks = append(h.chunks, c)
		h.mu.Unlock()
	}
}

// connect gives the Init a connection whose other end h reads.
func connect(t *testing.T, in *Init, h *told) net.Conn {
	near, far := net.Pipe()
	in.setConn(near)
	go h.read(t, far)
	return near
}

func TestStreamKeepsAWindowUntilItIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, h := New(Config{}), &told{}
		conn := connect(t, in, h)
		s := newStream("x", 1, in)
		go s.send()
		piece := bytes.Repeat([]byte("p"), guest.MaxChunk)
		kept := 0
		go func() {
			for range 2 * guest.Window / guest.MaxChunk {
				s.keep(piece)
				kept += len(piece)
			}
			s.finish()
		}()
		synctest.Wait()
		if kept != guest.Window || !s.full() {
			t.Errorf("it took %d bytes ahead, the window is %d", kept, guest.Window)
		}
		var end int64
		for _, c := range h.chunks {
			if c.Offset != end || c.Proc != "x" || c.Stream != 1 {
				t.Errorf("a chunk at %d follows %d", c.Offset, end)
			}
			end += int64(len(c.Data))
		}
		if end != guest.Window {
			t.Errorf("it told %d bytes", end)
		}
		// Acknowledging a piece makes room for one; nonsense makes none.
		for _, offset := range []int64{guest.MaxChunk, guest.MaxChunk, 0, -5, 1 << 40} {
			s.ack(offset)
		}
		synctest.Wait()
		if kept != guest.Window+guest.MaxChunk {
			t.Errorf("after one acknowledgement it took %d", kept)
		}
		ended := make(chan int64, 1)
		go func() { ended <- s.wait() }()
		for offset := int64(2 * guest.MaxChunk); offset <= 2*guest.Window; offset += guest.MaxChunk {
			select {
			case <-ended:
				t.Fatal("it ended before all was acknowledged")
			default:
			}
			synctest.Wait()
			s.ack(offset)
		}
		if n := <-ended; n != 2*guest.Window {
			t.Errorf("its length is %d", n)
		}
		conn.Close()
	})
}

func TestForgottenStreamBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := New(Config{})
		s := newStream("x", 1, in)
		s.pause()
		done := make(chan struct{})
		go s.send()
		go func() {
			s.keep(make([]byte, guest.Window))
			s.keep(make([]byte, guest.Window))
			s.wait()
			close(done)
		}()
		synctest.Wait()
		s.drop()
		<-done
	})
}

// TestStreamIsWholeWhateverHappensToTheConnection breaks it and resumes at
// random, with acknowledgements that got lost.
func TestStreamIsWholeWhateverHappensToTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(5, 6))
		in := New(Config{})
		s := newStream("x", 2, in)
		s.pause()
		in.table.procs["x"] = &process{id: "x", stdout: newStream("x", 1, in), stderr: s}
		var want bytes.Buffer
		pieces := make([][]byte, 300)
		for i := range pieces {
			pieces[i] = make([]byte, 1+random.IntN(guest.MaxChunk))
			for j := range pieces[i] {
				pieces[i][j] = byte(random.Uint32())
			}
			want.Write(pieces[i])
		}
		go s.send()
		go func() {
			for _, p := range pieces {
				s.keep(p)
			}
			s.finish()
		}()
		var got []byte
		for rounds := 0; len(got) < want.Len(); rounds++ {
			if rounds > 10000 {
				t.Fatal("it does not get on")
			}
			h := &told{}
			conn := connect(t, in, h)
			s.resume(int64(len(got)))
			synctest.Wait()
			at := int64(len(got))
			for _, c := range h.chunks[:random.IntN(len(h.chunks)+1)] {
				if c.Offset > at {
					break // meant for the connection before: the host drops this one
				}
				if c.Offset < at {
					t.Fatalf("a chunk at %d follows %d", c.Offset, at)
				}
				at += int64(len(c.Data))
				got = append(got, c.Data...)
				if random.IntN(3) > 0 {
					s.ack(at)
				}
			}
			conn.Close()
			in.dropConn(conn)
		}
		s.ack(int64(len(got)))
		if n := s.wait(); n != int64(want.Len()) || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%d bytes came, %d were written, its length is %d", len(got), want.Len(), n)
		}
	})
}

// TestCutStreamHoldsWhatThePipeHeld lets a writer live on after the cut.
func TestCutStreamHoldsWhatThePipeHeld(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s := newStream("x", 1, New(Config{}))
	filled := make(chan struct{})
	go func() { s.fill(r); close(filled) }()
	before := bytes.Repeat([]byte("before"), 1000)
	if _, err := w.Write(before); err != nil {
		t.Fatal(err)
	}
	s.cut(r)
	s.mu.Lock()
	for !s.eof {
		s.cond.Wait()
	}
	held := bytes.Clone(s.held)
	s.mu.Unlock()
	if !bytes.Equal(held, before) {
		t.Errorf("%d bytes were kept, %d written before the cut", len(held), len(before))
	}
	for range 100 { // more than a pipe holds
		if _, err := w.Write(make([]byte, 64<<10)); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	<-filled
	if s.base+int64(len(s.held)) != int64(len(before)) {
		t.Errorf("%d bytes are held after the end", len(s.held))
	}
}
