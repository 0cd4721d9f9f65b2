package uploader

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// How anything below the watched directory is opened: no step may leave it,
// follow a link of any kind, or cross into another mount.
const resolveBeneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// openDirectory opens the directory that all else is reached from. Its own
// path is the caller's and trusted.
func openDirectory(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open directory %s: %w", dir, err)
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// openBeneath opens name, one or more elements, below the directory dir.
// O_NONBLOCK keeps a FIFO that was swapped in from blocking us.
func openBeneath(dir int, name string, flags int) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY),
		Resolve: resolveBeneath,
	}
	if flags&unix.O_PATH != 0 {
		how.Flags = uint64(unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC)
	}
	// The kernel answers EAGAIN when a rename raced with the walk.
	for range 100 {
		fd, err := unix.Openat2(dir, name, &how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}

// openFile opens a file for reading and returns it with its state. What it is
// must be checked on that state, not on an earlier one.
func openFile(dir int, name string) (*os.File, fileStat, error) {
	fd, err := openBeneath(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, fileStat{}, err
	}
	st, err := fstat(fd)
	if err != nil {
		unix.Close(fd)
		return nil, fileStat{}, err
	}
	return os.NewFile(uintptr(fd), name), st, nil
}

// statBeneath returns the state of the entry itself, also of a link.
func statBeneath(dir int, name string) (fileStat, error) {
	fd, err := openBeneath(dir, name, unix.O_PATH)
	if err != nil {
		return fileStat{}, err
	}
	defer unix.Close(fd)
	return fstat(fd)
}

func fstat(fd int) (fileStat, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstat(fd, &st)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return statOf(&st), err
	}
}

// visit says what a walk does at a directory entry.
type visit struct {
	// dir is called for every directory before it is listed, with a
	// descriptor that the walk closes afterwards. Returning false ends the walk.
	dir func(p Path, fd int, st fileStat) bool
	// file is called for all else. Returning false ends the walk.
	file func(p Path, st fileStat) bool
	// unwalked is called for a directory that is not entered.
	unwalked func(p Path, reason Reason, err error)
	// names tells which directories are not entered for their name.
	names temporary
}

// errWalkEnds stops a walk early.
var errWalkEnds = errors.New("walk ends")

// walk visits the directory fd, whose path is p, and everything below it, by
// descriptors only: a directory that is swapped for a link while the walk is
// in it is left where it was, and one that was swapped before is not entered.
// The caller keeps fd.
func walk(fd int, p Path, depth int, v visit) error {
	st, err := fstat(fd)
	if err != nil {
		return fmt.Errorf("stat directory %s: %w", p, err)
	}
	if !v.dir(p, fd, st) {
		return errWalkEnds
	}
	// A second open gives the listing an offset of its own.
	again, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		v.unwalked(p, ReasonUnreadable, err)
		return nil
	}
	list := os.NewFile(uintptr(again), string(p))
	defer list.Close()
	for {
		names, err := list.Readdirnames(256)
		for _, name := range names {
			if err := walkEntry(again, join(p, name), name, depth, v); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			v.unwalked(p, ReasonUnreadable, err)
			return nil
		}
	}
}

func walkEntry(dir int, p Path, name string, depth int, v visit) error {
	if len(p) > maxPath {
		v.unwalked(p, ReasonPathLength, nil)
		return nil
	}
	var raw unix.Stat_t
	if err := unix.Fstatat(dir, name, &raw, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil // it went away between the listing and now
	}
	st := statOf(&raw)
	if !st.isDir() {
		if !v.file(p, st) {
			return errWalkEnds
		}
		return nil
	}
	if v.names.name(name) {
		v.unwalked(p, ReasonTemporary, nil)
		return nil
	}
	if depth <= 0 {
		v.unwalked(p, ReasonDepth, nil)
		return nil
	}
	sub, err := openBeneath(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil // swapped or gone; the change itself leads to another look
	}
	defer unix.Close(sub)
	return walk(sub, p, depth-1, v)
}

func join(dir Path, name string) Path {
	if dir == "" {
		return Path(name)
	}
	return dir + "/" + Path(name)
}
