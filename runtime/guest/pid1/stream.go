package pid1

import (
	"errors"
	"io"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"mediasandbox/runtime/guest"
)

// stream carries one output pipe of a process to the host. It keeps what the
// host has not acknowledged, at most guest.Window bytes; when that is full it
// stops reading, and the process's writes block.
type stream struct {
	proc string
	id   uint8
	host *Init

	mu   sync.Mutex
	cond *sync.Cond
	// held are the bytes from offset base on.
	held []byte
	base int64
	// sent is the offset up to which the present connection has been told.
	sent   int64
	paused bool
	// eof is set when the pipe gives no more; dropped when nobody will ask.
	eof, dropped bool
}

func newStream(proc string, id uint8, host *Init) *stream {
	s := &stream{proc: proc, id: id, host: host}
	s.cond = sync.NewCond(&s.mu)
	return s
}

// fill reads the pipe until it ends or the pipe is closed. When cut was called
// it ends the stream with what the pipe holds by then, and throws away what
// comes later: whoever holds the pipe may write on.
func (s *stream) fill(r *os.File) {
	defer s.finish()
	if err := s.copy(r, math.MaxInt64); !errors.Is(err, os.ErrDeadlineExceeded) {
		return // io.EOF, or closed after the grace time
	}
	if err := r.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	if err := s.copy(r, unread(r)); err != nil {
		return
	}
	s.finish()
	_, _ = io.Copy(io.Discard, r) // until the last writer ends
}

// copy keeps what r gives, at most limit bytes.
func (s *stream) copy(r io.Reader, limit int64) error {
	buf := make([]byte, min(guest.MaxChunk, limit))
	for limit > 0 {
		n, err := r.Read(buf[:min(int64(len(buf)), limit)])
		s.keep(buf[:n])
		if err != nil {
			return err
		}
		limit -= int64(n)
	}
	return nil
}

// cut makes fill end the stream although others hold the pipe r.
func (s *stream) cut(r *os.File) {
	if err := r.SetReadDeadline(time.Now()); err != nil {
		s.finish()
	}
}

// unread is how many bytes a pipe holds.
func unread(r *os.File) int64 {
	conn, err := r.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	if err := conn.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); err != nil {
		return 0
	}
	return int64(n)
}

func (s *stream) finish() {
	s.mu.Lock()
	s.eof = true
	s.mu.Unlock()
	s.cond.Broadcast()
}

func (s *stream) keep(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.held)+len(data) > guest.Window && !s.dropped {
		s.cond.Wait()
	}
	if s.dropped {
		return
	}
	s.held = append(s.held, data...)
	s.cond.Broadcast()
}

// send tells the host what is held, until the stream ends and all of it was
// acknowledged, or the process is forgotten. Losing the connection pauses it.
func (s *stream) send() {
	for {
		c, ok := s.next()
		if !ok {
			return
		}
		if err := s.host.sendChunk(c); err != nil {
			s.pause()
		}
	}
}

// next waits for the next piece to tell. It returns false when all was told
// and acknowledged.
func (s *stream) next() (guest.Chunk, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		end := s.base + int64(len(s.held))
		switch {
		case s.dropped, s.eof && len(s.held) == 0:
			s.cond.Broadcast()
			return guest.Chunk{}, false
		case !s.paused && s.sent < end:
			n := min(end-s.sent, guest.MaxChunk)
			from := s.sent - s.base
			data := append([]byte(nil), s.held[from:from+n]...)
			c := guest.Chunk{Proc: s.proc, Stream: s.id, Offset: s.sent, Data: data}
			s.sent += n
			return c, true
		}
		s.cond.Wait()
	}
}

// ack lets go of everything below offset.
func (s *stream) ack(offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := offset - s.base
	if n <= 0 || n > int64(len(s.held)) {
		return
	}
	s.held = append(s.held[:0], s.held[n:]...)
	s.base = offset
	s.sent = max(s.sent, offset)
	s.cond.Broadcast()
}

// full tells whether the reader of the pipe waits for the host.
func (s *stream) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)+guest.MaxChunk > guest.Window
}

func (s *stream) pause() {
	s.mu.Lock()
	s.paused = true
	s.mu.Unlock()
}

// resume starts telling again from offset, below which the host has all.
func (s *stream) resume(offset int64) {
	s.ack(offset)
	s.mu.Lock()
	s.sent = s.base
	s.paused = false
	s.mu.Unlock()
	s.cond.Broadcast()
}

func (s *stream) drop() {
	s.mu.Lock()
	s.dropped = true
	s.held = nil
	s.mu.Unlock()
	s.cond.Broadcast()
}

// wait returns once everything was told and acknowledged, and the length.
func (s *stream) wait() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.dropped && (!s.eof || len(s.held) > 0) {
		s.cond.Wait()
	}
	return s.base
}

// note adds a line of sandbox-init's own to the stream.
func (s *stream) note(line string) { s.keep([]byte(line)) }
