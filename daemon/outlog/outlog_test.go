package outlog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"
)

// readAll reads a log like a client: from offset on, noting what was skipped.
func readAll(t *testing.T, l *Log, offset int64) (data []byte, skipped int64) {
	t.Helper()
	buf := make([]byte, 37)
	for {
		n, from, err := l.ReadAt(t.Context(), buf, offset, true)
		if errors.Is(err, io.EOF) {
			return data, skipped
		}
		if err != nil {
			t.Fatal(err)
		}
		skipped += from - offset
		data = append(data, buf[:n]...)
		offset = from + int64(n)
	}
}

// model is what a log of that limit keeps of stream.
func model(stream []byte, limit int) []byte {
	if len(stream) <= limit {
		return stream
	}
	return append(append([]byte(nil), stream[:limit/2]...), stream[len(stream)-limit/2:]...)
}

func TestKeepsFirstAndLastHalf(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, 63, 64, 65, 127, 128, 129, 1000, 4096} {
		const limit = 128
		path := filepath.Join(t.TempDir(), "log")
		l, err := Create(path, limit)
		if err != nil {
			t.Fatal(err)
		}
		stream := make([]byte, size)
		for i := range stream {
			stream[i] = byte(r.Uint32())
		}
		for off := 0; off < size; {
			n := min(1+r.IntN(50), size-off)
			if err := l.Append(int64(off), stream[off:off+n]); err != nil {
				t.Fatal(err)
			}
			off += n
			if r.IntN(3) == 0 { // the writer dies and comes back
				l.Close()
				if l, err = Open(path); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := l.End(); err != nil {
			t.Fatal(err)
		}
		got, skipped := readAll(t, l, 0)
		if !bytes.Equal(got, model(stream, limit)) {
			t.Errorf("size %d: the log does not keep the first and the last half", size)
		}
		length, dropped := l.Size()
		if length != int64(size) || dropped != skipped || dropped != int64(max(0, size-limit)) {
			t.Errorf("size %d: length %d, dropped %d, a reader skipped %d", size, length, dropped, skipped)
		}
		l.Close()
	}
}

func TestFollowersSeeEveryByteOnce(t *testing.T) {
	l, err := Create(filepath.Join(t.TempDir(), "log"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := bytes.Repeat([]byte("0123456789"), 1000)
	results := make(chan []byte, 4)
	for range 4 {
		go func() {
			data, _ := readAll(t, l, 0)
			results <- data
		}()
	}
	for off := 0; off < len(want); off += 100 {
		if err := l.Append(int64(off), want[off:off+100]); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.End(); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if got := <-results; !bytes.Equal(got, want) {
			t.Errorf("a follower got %d bytes, want %d", len(got), len(want))
		}
	}
}

func TestAppendElsewhereIsRefused(t *testing.T) {
	l, err := Create(filepath.Join(t.TempDir(), "log"), 128)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Append(5, []byte("x")); err == nil {
		t.Error("a gap was accepted")
	}
	if err := l.End(); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(0, []byte("x")); err == nil {
		t.Error("an ended log was appended to")
	}
}

func TestReaderGivesUpWithItsContext(t *testing.T) {
	l, err := Create(filepath.Join(t.TempDir(), "log"), 128)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, _, err := l.ReadAt(ctx, make([]byte, 1), 0, true); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("reading an empty log: %v", err)
	}
}
