package guest

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

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
