package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"mediasandbox/daemon/api"
	"mediasandbox/internal/treetar"
)

// PutTree unpacks a tar stream as the directory at a path in the chat's
// sandbox, whole or not at all, and boots the sandbox if there is none. Unless
// it may replace what is there, that is an error.
func (e *Engine) PutTree(ctx context.Context, k ChatKey, p string, replace bool, r io.Reader) (info api.FileInfo, err error) {
	at, err := locateEntry(p)
	if err != nil {
		return info, err
	}
	err = e.holding(ctx, k, func(l *live) error {
		return l.at(at, true, func(to place) error {
			in, st, err := unpack(at, to, replace, r)
			if err != nil {
				return err
			}
			l.dropInput(at)
			l.setInput(at, in)
			l.wrote(at)
			info = fileInfo(at, st)
			return nil
		})
	})
	return info, err
}

// writeTree unpacks a tar stream to a location of a sandbox's disk.
func writeTree(disk string, at location, r io.Reader) (in Input, st fs.FileInfo, err error) {
	err = inPlace(disk, at, true, func(to place) error {
		in, st, err = unpack(at, to, false, r)
		return err
	})
	return in, st, err
}

// unpack writes a tree under a temporary name and renames it into place.
func unpack(at location, to place, replace bool, r io.Reader) (in Input, st fs.FileInfo, err error) {
	if _, err := to.root.Lstat(to.base); err == nil && !replace {
		return in, nil, fs.ErrExist
	}
	tmp := temporaryName()
	if err := to.root.Mkdir(tmp, 0o755); err != nil {
		return in, nil, err
	}
	// What is left of it, or what it replaced.
	defer func() { err = errors.Join(err, to.root.RemoveAll(tmp)) }()
	dir, err := to.root.OpenRoot(tmp)
	if err != nil {
		return in, nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	digest, err := unpackInto(dir, to, r)
	if err != nil {
		return in, nil, treeError(at, err)
	}
	if err := renameTree(to, tmp, replace); err != nil {
		return in, nil, err
	}
	st, err = dir.Stat(".")
	return digest.input(), st, err
}

func unpackInto(dir *os.Root, to place, r io.Reader) (*treeDigest, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(to.dir.Fd()), &st); err != nil {
		return nil, fmt.Errorf("look at the sandbox's disk: %w", err)
	}
	digest := &treeDigest{}
	u := treetar.Unpacker{Root: dir, Room: int64(st.Bavail) * st.Bsize, Observe: digest.file}
	return digest, u.Unpack(r)
}

// renameTree gives the directory tmp its place. What was there is then tmp.
func renameTree(to place, tmp string, replace bool) error {
	err := renameAt(to.dir, tmp, to, false)
	if !replace || !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := unix.Renameat2(int(to.dir.Fd()), tmp, int(to.dir.Fd()), to.base, unix.RENAME_EXCHANGE); err != nil {
		return &fs.PathError{Op: "rename", Path: tmp, Err: err}
	}
	return nil
}

// treeError tells the caller what is wrong with a tree.
func treeError(at location, err error) error {
	var entry *treetar.EntryError
	switch {
	case errors.As(err, &entry):
		return api.Errorf(api.CodeInvalid, "the tree for %s is refused: %v", at, entry).
			WithHint("nothing of it was kept")
	case errors.Is(err, io.ErrUnexpectedEOF), strings.Contains(err.Error(), "archive/tar"):
		return api.Errorf(api.CodeInvalid, "the tree for %s is refused: %v", at, err).
			WithHint("send a whole tar stream; nothing of it was kept")
	}
	return err
}

// PackTree writes a directory of the chat's sandbox as a tar stream to what
// start returns, which is called once there is something to write. The end says
// what was left out. After an error the stream is not whole.
func (e *Engine) PackTree(k ChatKey, p string, start func() io.Writer) (end api.TreeEnd, err error) {
	at, err := locate(p)
	if err != nil {
		return end, err
	}
	l, err := e.sandboxOf(k)
	if err != nil {
		return end, err
	}
	err = l.at(at, false, func(from place) error {
		return from.pack(start, func(name string, mode fs.FileMode) error {
			end.Skip(name, mode)
			return nil
		})
	})
	var entry *treetar.EntryError
	if errors.As(err, &entry) {
		err = api.Errorf(api.CodeInvalid, "the tree of %s is not whole: %v", at, entry)
	}
	return end, err
}

// pack writes the directory at a place as a tar stream.
func (p place) pack(start func() io.Writer, skip treetar.Skip) (err error) {
	// Opened without following links; os.Root would, if only below.
	d, err := p.open(os.O_RDONLY | unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	root, err := rootOf(d)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	err = treetar.Pack(root, start(), skip)
	return errors.Join(err, root.Close(), d.Close())
}

// openIn opens a file of a sandbox's disk.
func openIn(disk string, at location) (f io.ReadCloser, err error) {
	err = inPlace(disk, at, false, func(p place) (err error) {
		f, err = p.openRegular()
		return err
	})
	return f, err
}

// openTree reads a directory of a sandbox's disk as a tar stream.
func openTree(disk string, at location) (io.ReadCloser, error) {
	r, w := io.Pipe()
	go func() {
		w.CloseWithError(inPlace(disk, at, false, func(p place) error {
			return p.pack(func() io.Writer { return w }, func(string, fs.FileMode) error { return nil })
		}))
	}()
	return r, nil
}

// treeType is the content type of an Input that is a directory.
const treeType = "inode/directory"

func (in Input) tree() bool { return in.ContentType == treeType }

// treeDigest is the digest of a directory: SHA-256 over the sorted lines "DIGEST
// NAME" of its files, whatever order they came in.
type treeDigest struct {
	lines []string
	size  int64
}

// file returns what digests one of the files.
func (t *treeDigest) file(name string) io.WriteCloser {
	return &treeFile{digest: newDigest(), tree: t, name: name}
}

type treeFile struct {
	*digest
	tree *treeDigest
	name string
}

// Close implements io.Closer.
func (f *treeFile) Close() error {
	in := f.input()
	f.tree.lines = append(f.tree.lines, in.SHA256+" "+f.name+"\n")
	f.tree.size += in.Size
	return nil
}

func (t *treeDigest) input() Input {
	slices.Sort(t.lines)
	sum := sha256.New()
	for _, line := range t.lines {
		io.WriteString(sum, line) // a hash does not fail
	}
	return Input{Size: t.size, SHA256: hex.EncodeToString(sum.Sum(nil)), ContentType: treeType}
}
