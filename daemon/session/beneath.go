package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// How a path below a sandbox's directory is walked. The guest changes what is
// there at any moment: no step may leave the directory, follow a link, or cross
// into another mount.
const resolveBeneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// place is a path below one of a sandbox's directories, walked up to the
// directory that holds it. What is done there is done by base, which is a
// single name, or "." for the sandbox's directory itself.
type place struct {
	dir *os.File
	// root is dir too, for what os.Root can do.
	root *os.Root
	base string
}

// walkTo walks to name below dir, which it takes over. With create, directories
// that are missing are made.
func walkTo(dir *os.File, name string, create bool) (place, error) {
	if parent := path.Dir(name); parent != "." {
		for element := range strings.SplitSeq(parent, "/") {
			next, err := openDirAt(dir, element, create)
			dir.Close()
			if err != nil {
				return place{}, err
			}
			dir = next
		}
	}
	root, err := rootOf(dir)
	if err != nil {
		return place{}, errors.Join(err, dir.Close())
	}
	return place{dir, root, path.Base(name)}, nil
}

// rootOf returns an open directory as an os.Root.
func rootOf(dir *os.File) (*os.Root, error) {
	root, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
	if err != nil {
		return nil, fmt.Errorf("open a directory of the sandbox: %w", err)
	}
	return root, nil
}

func openDirAt(dir *os.File, name string, create bool) (*os.File, error) {
	f, err := openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if !create || !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := unix.Mkdirat(int(dir.Fd()), name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, &fs.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
}

// openAt opens an entry of a directory, never through a link. A FIFO that the
// guest put there does not block it.
func openAt(dir *os.File, name string, flags int) (*os.File, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC), Resolve: resolveBeneath}
	for range 100 {
		fd, err := unix.Openat2(int(dir.Fd()), name, &how)
		if err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		// EAGAIN says that a rename raced with the walk.
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: unix.EAGAIN}
}

func (p place) open(flags int) (*os.File, error) { return openAt(p.dir, p.base, flags) }

// notRegular is the error for what is there and no regular file.
type notRegular fs.FileMode

func (m notRegular) Error() string { return fmt.Sprintf("not a regular file (%s)", fs.FileMode(m)) }

// openRegular opens a file for reading, and nothing else.
func (p place) openRegular() (*os.File, error) {
	f, err := p.open(os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = notRegular(st.Mode())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// renameAt moves an entry of a directory to a place. Unless it may replace what
// is there, that is an error.
func renameAt(dir *os.File, name string, to place, replace bool) error {
	flags := uint(unix.RENAME_NOREPLACE)
	if replace {
		flags = 0
	}
	if err := unix.Renameat2(int(dir.Fd()), name, int(to.dir.Fd()), to.base, flags); err != nil {
		return &fs.PathError{Op: "rename", Path: name, Err: err}
	}
	return nil
}

func (p place) close() error { return errors.Join(p.root.Close(), p.dir.Close()) }
