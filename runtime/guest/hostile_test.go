package guest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mediasandbox/runtime/sandbox"
)

// FuzzHost lets a hostile guest say anything over a real socket pair. The host
// must neither panic nor hang, keep no more than it was sent, and serve the next.
func FuzzHost(f *testing.F) {
	var talk bytes.Buffer
	if err := errors.Join(
		WriteChunk(&talk, KindOutput, Chunk{Proc: "x", Stream: 1, Data: []byte("data")}),
		WriteChunk(&talk, KindOutput, Chunk{Proc: "x", Stream: 2, Offset: 1 << 40, Data: []byte("data")}),
		WriteJSON(&talk, KindHint, Hint{Path: []byte("/outputs/x")}),
		WriteJSON(&talk, KindFiles, Files{Seq: 1}),
		WriteJSON(&talk, KindExited, Exited{Proc: "x", Code: 1 << 40, Stdout: -1}),
	); err != nil {
		f.Fatal(err)
	}
	f.Add(talk.Bytes(), true)
	f.Add([]byte{0, 0, 0, 0, 64}, false)
	f.Add([]byte{255, 255, 255, 255, 65, 1, 2, 3}, true)
	f.Fuzz(func(t *testing.T, said []byte, hello bool) {
		ln := newPipeListener()
		h := NewHost(ln, Warm{}, quiet())
		defer h.Close(sandbox.ErrGone)
		out := &keeper{}
		if _, err := h.Reattach(t.Context(), "x", sandbox.Offsets{}, out); err != nil {
			t.Fatal(err)
		}
		conn := socketPair(t, ln)
		go func() { _, _ = io.Copy(io.Discard, conn) }() // ends with the connection
		if hello {
			if err := WriteJSON(conn, KindHello, Hello{Version: Version, Procs: []string{"x"}}); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = conn.Write(said) // the host may have had enough of it
		conn.Close()

		good := ln.greeted(t)
		defer good.Close()
		go answerQueries(good)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for errors.Is(awaitQuery(ctx, h), errNotConnected) {
		}
		if ctx.Err() != nil {
			t.Fatal("the host serves nobody any more")
		}
		out.mu.Lock()
		defer out.mu.Unlock()
		if n := out.kept[1].Len() + out.kept[2].Len(); n > len(said) {
			t.Errorf("kept %d bytes of %d", n, len(said))
		}
		if len(h.hints) > maxHints || len(h.procs) > 1 {
			t.Errorf("%d hints, %d processes", len(h.hints), len(h.procs))
		}
	})
}

// answerQueries is a guest that answers and never lets its own reading wait for
// its writing, as sandbox-init does not.
func answerQueries(conn net.Conn) {
	for {
		kind, body, err := ReadFrame(conn)
		if err != nil {
			return // the test is over
		}
		if q, err := ParseJSON[OpenFiles](body); err == nil && kind == KindOpenFiles {
			go func() { _ = WriteJSON(conn, KindFiles, Files{Seq: q.Seq}) }() // else the test sees no answer
		}
	}
}

func awaitQuery(ctx context.Context, h *Host) error {
	<-h.Ready()
	_, err := h.OpenForWriting(ctx, "/outputs")
	return err
}

// socketPair returns the guest's end of a real socket that the host serves.
func socketPair(t testing.TB, ln *pipeListener) net.Conn {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "guest channel")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ln.conns <- ends[1]
	return ends[0]
}
