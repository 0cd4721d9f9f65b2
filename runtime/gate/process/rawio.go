package process

import (
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls of this file read and write descriptors that never block, and do
// so without telling the Go scheduler. An ordinary call of 64 KB takes long
// enough that the runtime's monitor takes the processor away from the
// goroutine and wakes another thread, which here was a third of all work.

// rawRead reads what there is, without waiting.
func rawRead(fd uintptr, b []byte) (int, error) { return raw(unix.SYS_READ, fd, b) }

// rawWrite writes what there is room for, without waiting.
func rawWrite(fd uintptr, b []byte) (int, error) { return raw(unix.SYS_WRITE, fd, b) }

func raw(call, fd uintptr, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for {
		n, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// maxPieces is how many pieces of a frame the kernel is handed: the header of
// the TAP, those of the packet, and its payload. A payload of very many small
// ones, of which the kernel takes 1024 at most, is put together first.
const maxPieces = 16

// rawReadv reads a frame into pieces, without waiting.
func rawReadv(fd uintptr, pieces ...[]byte) (int, error) { return rawv(unix.SYS_READV, fd, pieces) }

// rawWritev writes a frame from pieces, whole or not at all.
func rawWritev(fd uintptr, pieces [][]byte) (int, error) {
	if len(pieces) > maxPieces {
		return rawWrite(fd, slices.Concat(pieces...))
	}
	return rawv(unix.SYS_WRITEV, fd, pieces)
}

func rawv(call, fd uintptr, pieces [][]byte) (int, error) {
	var iov [maxPieces]unix.Iovec
	n := 0
	for _, p := range pieces {
		if len(p) == 0 {
			continue
		}
		iov[n].Base = &p[0]
		iov[n].SetLen(len(p))
		n++
	}
	for {
		got, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(&iov[0])), uintptr(n))
		switch errno {
		case 0:
			return int(got), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}
