package pid1

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"mediasandbox/runtime/sandbox"
)

// terminal makes a pseudo-terminal. The child gets its far end three times;
// what the host sends is typed into the near end, from which output is read.
func (p *process) terminal(size sandbox.TTY) ([]*os.File, error) {
	near, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("make a terminal: %w", err)
	}
	far, err := openFar(near)
	if err != nil {
		near.Close()
		return nil, fmt.Errorf("make a terminal: %w", err)
	}
	p.tty, p.outR = near, near
	p.resize(size)
	keys, err := unix.FcntlInt(near.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		closeAll([]*os.File{near, far})
		return nil, fmt.Errorf("make a terminal: %w", err)
	}
	p.stdin = newInput(p.id, os.NewFile(uintptr(keys), "keys"), p.host)
	const controlD = 4 // typed, it is the end of input
	p.stdin.end = []byte{controlD}
	return []*os.File{far, far, far}, nil
}

// openFar unlocks and opens the end that the child gets.
func openFar(near *os.File) (*os.File, error) {
	fd := int(near.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, fmt.Errorf("unlock it: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, fmt.Errorf("find its name: %w", err)
	}
	return os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
}

// resize tells the terminal its size; the kernel tells the foreground group.
func (p *process) resize(size sandbox.TTY) {
	if p.tty != nil {
		// A terminal that is closing has no size any more.
		_ = unix.IoctlSetWinsize(int(p.tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	}
}
