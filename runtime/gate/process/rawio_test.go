package process

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRawWritev writes frames of few and of very many pieces, each whole.
func TestRawWritev(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, fd := range fds {
			if err := unix.Close(fd); err != nil {
				t.Error(err)
			}
		}
	}()
	for _, n := range []int{1, 3, maxPieces, maxPieces + 1, 1024, 5000} {
		var pieces [][]byte
		for i := range n {
			pieces = append(pieces, fmt.Appendf(nil, "%d,", i))
		}
		if n > 1 {
			pieces[n/2] = nil // an empty one does no harm
		}
		want := slices.Concat(pieces...)
		if got, err := rawWritev(uintptr(fds[0]), pieces); err != nil || got != len(want) {
			t.Fatalf("%d pieces: %d of %d bytes, %v", n, got, len(want), err)
		}
		head, body := make([]byte, 7), make([]byte, 1<<16)
		got, err := rawReadv(uintptr(fds[1]), head, body)
		if frame := slices.Concat(head, body); err != nil || got != len(want) || !bytes.Equal(frame[:got], want) {
			t.Errorf("%d pieces: %d bytes came, %v", n, got, err)
		}
	}
	if _, err := rawRead(uintptr(fds[1]), make([]byte, 1)); err != unix.EAGAIN {
		t.Errorf("an empty socket: %v, want EAGAIN", err)
	}
}
