package treetar

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
)

// Skip hears of an entry that does not travel: a link, a FIFO, a device, a
// socket. Returning an error ends the packing.
type Skip func(name string, mode fs.FileMode) error

// Pack writes the directory and all below it as a stream, sorted by name.
// Others may change it meanwhile: a file that shrinks is an error, for the
// stream has promised its length; what goes away before its turn is left out.
func Pack(root *os.Root, w io.Writer, skip Skip) error {
	p := packer{root: root, tar: tar.NewWriter(w), skip: skip}
	if err := p.dir(".", 0); err != nil {
		return err
	}
	if err := p.tar.Close(); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	return nil
}

type packer struct {
	root    *os.Root
	tar     *tar.Writer
	skip    Skip
	entries int
}

// dir packs what is in a directory.
func (p *packer) dir(name string, depth int) error {
	if depth > MaxDepth {
		return refuse(name, "is over %d levels deep", MaxDepth)
	}
	names, err := p.list(name)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := p.entry(path.Join(name, n), depth); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) list(name string) ([]string, error) {
	d, err := p.root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("pack %q: %w", name, err)
	}
	names, err := d.Readdirnames(MaxEntries - p.entries + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err := errors.Join(err, d.Close()); err != nil {
		return nil, fmt.Errorf("pack %q: %w", name, err)
	}
	if p.entries += len(names); p.entries > MaxEntries {
		return nil, refuse(name, "holds too much: a tree may hold %d files and directories", MaxEntries)
	}
	slices.Sort(names)
	return names, nil
}

func (p *packer) entry(name string, depth int) error {
	st, err := p.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("pack %q: %w", name, err)
	case st.IsDir():
		if err := p.header(name+"/", st); err != nil {
			return err
		}
		return p.dir(name, depth+1)
	case st.Mode().IsRegular():
		return p.file(name)
	}
	return p.skip(name, st.Mode())
}

func (p *packer) header(name string, st fs.FileInfo) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: st.Size(), Mode: int64(st.Mode().Perm()), ModTime: st.ModTime()}
	if st.IsDir() {
		h.Typeflag, h.Size = tar.TypeDir, 0
	}
	if err := p.tar.WriteHeader(h); err != nil {
		return fmt.Errorf("pack %q: %w", name, err)
	}
	return nil
}

// file packs a regular file; what took its place meanwhile is left out.
func (p *packer) file(name string) (err error) {
	f, err := p.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pack %q: %w", name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("pack %q: %w", name, err)
	}
	if !st.Mode().IsRegular() {
		return p.skip(name, st.Mode())
	}
	if err := p.header(name, st); err != nil {
		return err
	}
	n, err := io.Copy(p.tar, io.LimitReader(f, st.Size()))
	if err != nil {
		return fmt.Errorf("pack %q: %w", name, err)
	}
	if n < st.Size() {
		return refuse(name, "shrank while it was read")
	}
	return nil
}

func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
