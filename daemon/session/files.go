package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/gabriel-vasile/mimetype"

	"mediasandbox/daemon/api"
)

// guestDirs are the directories of a sandbox that are files of the host, so
// that the daemon can read and write them without the guest's help.
var guestDirs = []string{"workspace", "inputs", "outputs"}

// splitGuest turns an absolute path in the sandbox into one of guestDirs and a
// clean path below it ("." for the directory itself).
func splitGuest(p string) (dir, rest string, err error) {
	clean := path.Clean(p)
	if !path.IsAbs(p) || strings.IndexByte(p, 0) >= 0 {
		return "", "", api.Errorf(api.CodeInvalid, "path %q is not absolute", p).WithHint("begin it with /workspace, /inputs or /outputs")
	}
	dir, rest, _ = strings.Cut(clean[1:], "/")
	if !slices.Contains(guestDirs, dir) {
		return "", "", api.Errorf(api.CodeInvalid, "path %q is not below /workspace, /inputs or /outputs", p).
			WithHint("copy the file to one of them first")
	}
	if rest == "" {
		rest = "."
	}
	return dir, rest, nil
}

// fileError tells the caller of a file operation what went wrong in the
// sandbox, without the host's own paths.
func fileError(p string, err error) error {
	var pe *fs.PathError
	var le *os.LinkError
	var special notRegular
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return api.Errorf(api.CodeFileNotFound, "there is no file %s in the sandbox", p)
	case errors.As(err, &special):
		return api.Errorf(api.CodeInvalid, "%s is %v", p, special)
	case errors.As(err, &pe):
		return api.Errorf(api.CodeInvalid, "%s: %v", p, pe.Err)
	case errors.As(err, &le):
		return api.Errorf(api.CodeInvalid, "%s: %v", p, le.Err)
	}
	return err
}

// in holds the chat's sandbox while f works on one of its directories. The
// guest changes what is there at any moment: os.Root keeps every step below.
func (e *Engine) in(l *live, dir string, f func(*os.Root) error) error {
	root, err := os.OpenRoot(l.dir(dir))
	if err != nil {
		return fmt.Errorf("open the sandbox's /%s: %w", dir, err)
	}
	return errors.Join(f(root), root.Close())
}

// errNoSandbox says that a chat has nothing to look into.
func errNoSandbox(k ChatKey) error {
	return api.Errorf(api.CodeFileNotFound, "chat %s has no live sandbox, so it has no files", k.ID).
		WithHint("its finished outputs are cells: list them with `sandboxctl cells --chat %s`", k.ID)
}

// PutFile writes r to a path in the chat's sandbox, whole or not at all, and
// boots the sandbox if there is none.
func (e *Engine) PutFile(ctx context.Context, k ChatKey, p string, r io.Reader) (api.FileInfo, error) {
	dir, rest, err := splitGuest(p)
	if err != nil {
		return api.FileInfo{}, err
	}
	if rest == "." {
		return api.FileInfo{}, api.Errorf(api.CodeInvalid, "path %q names a directory", p).WithHint("add a file name")
	}
	hold := newID("put-")
	l, err := e.claim(ctx, k, hold)
	if err != nil {
		return api.FileInfo{}, err
	}
	var info api.FileInfo
	err = e.in(l, dir, func(root *os.Root) error {
		in, st, err := writeFile(root, rest, r)
		if err != nil {
			return fileError(p, err)
		}
		info = fileInfo("/"+dir+"/"+rest, st)
		if dir == "inputs" {
			l.setInput(rest, in)
		}
		return nil
	})
	return info, errors.Join(err, e.leave(l, hold))
}

// setInput notes a file below /inputs.
func (l *live) setInput(name string, in Input) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record.Inputs == nil {
		l.record.Inputs = make(map[string]Input)
	}
	l.record.Inputs[name] = in
}

// sniffBytes is how much of a file its content type is told from.
const sniffBytes = 3072

// writeFile writes r under a temporary name and renames it into place.
func writeFile(root *os.Root, name string, r io.Reader) (Input, fs.FileInfo, error) {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return Input{}, nil, err
	}
	tmp := path.Join(path.Dir(name), "."+newID("put-")+".part")
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return Input{}, nil, err
	}
	sum := sha256.New()
	var head bytes.Buffer
	size, err := io.Copy(io.MultiWriter(f, sum, &headWriter{&head}), r)
	if err == nil {
		err = root.Rename(tmp, name)
	}
	st, statErr := f.Stat()
	if err := errors.Join(err, statErr, f.Close()); err != nil {
		return Input{}, nil, errors.Join(err, ignoreGone(root.Remove(tmp)))
	}
	in := Input{Size: size, SHA256: hex.EncodeToString(sum.Sum(nil)), ContentType: mimetype.Detect(head.Bytes()).String()}
	return in, st, nil
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// headWriter keeps the first sniffBytes of what is written to it.
type headWriter struct{ buf *bytes.Buffer }

func (h *headWriter) Write(p []byte) (int, error) {
	h.buf.Write(p[:min(len(p), sniffBytes-h.buf.Len())])
	return len(p), nil
}

func fileInfo(p string, st fs.FileInfo) api.FileInfo {
	return api.FileInfo{Path: p, Size: st.Size(), Dir: st.IsDir(), Mode: st.Mode().String(), Modified: st.ModTime().UTC()}
}

// OpenFile opens a file of the chat's sandbox for reading.
func (e *Engine) OpenFile(k ChatKey, p string) (*os.File, api.FileInfo, error) {
	dir, rest, err := splitGuest(p)
	if err != nil {
		return nil, api.FileInfo{}, err
	}
	if _, err := e.chatRecord(k); err != nil {
		return nil, api.FileInfo{}, err
	}
	l := e.liveOf(k)
	if l == nil {
		return nil, api.FileInfo{}, errNoSandbox(k)
	}
	var f *os.File
	var info api.FileInfo
	err = e.in(l, dir, func(root *os.Root) error {
		file, err := openRegular(root, rest)
		if err != nil {
			return fileError(p, err)
		}
		st, err := file.Stat()
		if err != nil {
			return errors.Join(err, file.Close())
		}
		f, info = file, fileInfo(p, st)
		return nil
	})
	return f, info, err
}

// notRegular is the error for what is there and no regular file.
type notRegular fs.FileMode

func (m notRegular) Error() string { return fmt.Sprintf("not a regular file (%s)", fs.FileMode(m)) }

// openRegular opens a file and nothing else. It does not block, since the guest
// may have put a FIFO there.
func openRegular(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
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

// maxListed bounds a listing.
const maxListed = 10000

// ListFiles lists a directory of the chat's sandbox.
func (e *Engine) ListFiles(k ChatKey, p string) ([]api.FileInfo, error) {
	dir, rest, err := splitGuest(p)
	if err != nil {
		return nil, err
	}
	if _, err := e.chatRecord(k); err != nil {
		return nil, err
	}
	l := e.liveOf(k)
	if l == nil {
		return nil, errNoSandbox(k)
	}
	list := []api.FileInfo{}
	err = e.in(l, dir, func(root *os.Root) error {
		d, err := root.Open(rest)
		if err != nil {
			return fileError(p, err)
		}
		entries, err := d.ReadDir(maxListed)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if err := errors.Join(err, d.Close()); err != nil {
			return fileError(p, err)
		}
		for _, entry := range entries {
			st, err := entry.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return fileError(p, err)
			}
			list = append(list, fileInfo(path.Join("/", dir, rest, entry.Name()), st))
		}
		return nil
	})
	slices.SortFunc(list, func(a, b api.FileInfo) int { return strings.Compare(a.Path, b.Path) })
	return list, err
}

// RemoveFile removes a file, or a directory with all in it.
func (e *Engine) RemoveFile(k ChatKey, p string) error {
	dir, rest, err := splitGuest(p)
	if err != nil {
		return err
	}
	if _, err := e.chatRecord(k); err != nil {
		return err
	}
	l := e.liveOf(k)
	if l == nil {
		return errNoSandbox(k)
	}
	if rest == "." {
		return api.Errorf(api.CodeInvalid, "%s itself can't be removed", p)
	}
	return e.in(l, dir, func(root *os.Root) error {
		if _, err := root.Lstat(rest); err != nil {
			return fileError(p, err)
		}
		if err := root.RemoveAll(rest); err != nil {
			return fileError(p, err)
		}
		return nil
	})
}
