// Package treetar carries a directory as a tar stream between two sides that
// don't trust each other: a user's files into a sandbox, a sandbox's files to a
// user.
//
// Only directories and regular files travel. Names, kinds, sizes and numbers
// are checked as they come, and nothing is ever written outside of the
// directory it is given. What is left behind after an error is the caller's to
// remove: unpack into a new directory and rename that into place.
package treetar

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
)

// Bounds of one tree.
const (
	// MaxEntries is how many files and directories it may hold.
	MaxEntries = 20000
	// MaxDepth is how deep they may lie.
	MaxDepth = 32
	maxPath  = 4096
	maxName  = 255
)

// EntryError names the entry that a tree was refused for.
type EntryError struct{ Name, Why string }

// Error implements error.
func (e *EntryError) Error() string { return fmt.Sprintf("entry %q %s", e.Name, e.Why) }

func refuse(name, format string, args ...any) error {
	return &EntryError{name, fmt.Sprintf(format, args...)}
}

// Unpacker writes a stream into a directory.
type Unpacker struct {
	// Root is an empty directory. Others may change it meanwhile: then the tree
	// may be refused, but nothing is written outside. Without one the stream is
	// only looked at.
	Root *os.Root
	// Room is how many bytes the files may have together.
	Room int64
	// Observe, if set, returns what is to see a file's content too; it is
	// closed when the file is whole.
	Observe func(name string) io.WriteCloser

	entries int
	bytes   int64
}

// Unpack reads a stream to its end.
func (u *Unpacker) Unpack(r io.Reader) error {
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return drain(r)
		}
		if err != nil {
			return fmt.Errorf("read the tar stream: %w", err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if err := u.entry(h, tr); err != nil {
			return err
		}
	}
}

// drain reads the padding after the end, so that a stream that was cut off is
// told from a whole one.
func drain(r io.Reader) error {
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("read the tar stream: %w", err)
	}
	return nil
}

func (u *Unpacker) entry(h *tar.Header, content io.Reader) error {
	name, err := checkName(h.Name)
	if err != nil {
		return err
	}
	if u.entries++; u.entries > MaxEntries {
		return refuse(h.Name, "is one too many: a tree may hold %d files and directories", MaxEntries)
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return u.file(name, h, content)
	case tar.TypeDir:
		if u.Root == nil {
			return nil
		}
		if err := u.Root.MkdirAll(name, 0o755); err != nil {
			return clash(h.Name, err)
		}
		return nil
	}
	return refuse(h.Name, "is %s: only files and directories are taken", kindOf(h.Typeflag))
}

// checkName returns the clean form of an entry's name; "." is the tree itself.
func checkName(name string) (string, error) {
	clean := path.Clean(name)
	switch {
	case name == "" || strings.IndexByte(name, 0) >= 0:
		return "", refuse(name, "has no proper name")
	case path.IsAbs(name):
		return "", refuse(name, "is absolute")
	case len(name) > maxPath:
		return "", refuse(name[:64]+"…", "has a name of over %d bytes", maxPath)
	}
	depth := 0
	for element := range strings.SplitSeq(name, "/") {
		if element == ".." {
			return "", refuse(name, "leads out of the tree")
		}
		if len(element) > maxName {
			return "", refuse(element[:64]+"…", "has a name of over %d bytes", maxName)
		}
		if element != "" && element != "." {
			depth++
		}
	}
	if depth > MaxDepth {
		return "", refuse(name, "is over %d levels deep", MaxDepth)
	}
	return clean, nil
}

func (u *Unpacker) file(name string, h *tar.Header, content io.Reader) (err error) {
	if h.Size > u.Room-u.bytes {
		return refuse(h.Name, "claims %d bytes, and %d are free", h.Size, u.Room-u.bytes)
	}
	u.bytes += h.Size
	var sinks []io.Writer
	if u.Observe != nil {
		seen := u.Observe(name)
		defer func() { err = errors.Join(err, seen.Close()) }()
		sinks = append(sinks, seen)
	}
	if u.Root == nil {
		_, err := io.Copy(io.MultiWriter(sinks...), content)
		return err
	}
	if err := u.Root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return clash(h.Name, err)
	}
	// O_EXCL finds names that come twice, without remembering them.
	f, err := u.Root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return clash(h.Name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(io.MultiWriter(append(sinks, f)...), content); err != nil {
		return fmt.Errorf("unpack %q: %w", h.Name, err)
	}
	return u.finish(name, h, f)
}

// finish gives a file its mode and time.
func (u *Unpacker) finish(name string, h *tar.Header, f *os.File) error {
	// No set-uid, and nothing that others could write.
	if err := f.Chmod(fs.FileMode(h.Mode)&0o755 | 0o600); err != nil {
		return fmt.Errorf("unpack %q: %w", h.Name, err)
	}
	if plausible(h.ModTime) {
		if err := u.Root.Chtimes(name, h.ModTime, h.ModTime); err != nil {
			return clash(h.Name, err)
		}
	}
	return nil
}

// plausible tells whether a time can be a file's.
func plausible(t time.Time) bool { return t.Year() >= 1970 && t.Year() < 2200 }

// clash explains an entry that does not fit to those before it.
func clash(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrExist):
		return refuse(name, "comes twice")
	case isNotDir(err):
		return refuse(name, "lies below a file")
	}
	return fmt.Errorf("unpack %q: %w", name, err)
}

func kindOf(flag byte) string {
	switch flag {
	case tar.TypeLink:
		return "a hard link"
	case tar.TypeSymlink:
		return "a symbolic link"
	case tar.TypeChar, tar.TypeBlock:
		return "a device"
	case tar.TypeFifo:
		return "a FIFO"
	}
	return fmt.Sprintf("of the unknown kind %q", flag)
}
