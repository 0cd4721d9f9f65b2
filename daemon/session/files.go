package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"mediasandbox/daemon/api"
)

// guestDirs are the directories of a sandbox that are files of the host, so
// that the daemon can read and write them without the guest's help.
var guestDirs = []string{"workspace", "inputs", "outputs"}

// location is a path in a sandbox: one of guestDirs and a clean path below it,
// "." for the directory itself.
type location struct{ dir, rest string }

// String is the path as the guest knows it.
func (at location) String() string { return path.Join("/", at.dir, at.rest) }

// locate reads a path that a caller gave.
func locate(p string) (location, error) {
	clean := path.Clean(p)
	if !path.IsAbs(p) || strings.IndexByte(p, 0) >= 0 {
		return location{}, api.Errorf(api.CodeInvalid, "path %q is not absolute", p).WithHint("begin it with /workspace, /inputs or /outputs")
	}
	dir, rest, _ := strings.Cut(clean[1:], "/")
	if !slices.Contains(guestDirs, dir) {
		return location{}, api.Errorf(api.CodeInvalid, "path %q is not below /workspace, /inputs or /outputs", p).
			WithHint("copy the file to one of them first")
	}
	if rest == "" {
		rest = "."
	}
	return location{dir, rest}, nil
}

// locateEntry is locate for what changes an entry of a directory.
func locateEntry(p string) (location, error) {
	at, err := locate(p)
	if err == nil && at.rest == "." {
		return at, api.Errorf(api.CodeInvalid, "%s itself can't be replaced or removed", at).WithHint("name something below it")
	}
	return at, err
}

// fileError tells the caller of a file operation what went wrong in the
// sandbox, without the host's own paths.
func fileError(at location, err error) error {
	var pe *fs.PathError
	var le *os.LinkError
	var special notRegular
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return api.Errorf(api.CodeFileNotFound, "there is no file %s in the sandbox", at)
	case errors.Is(err, unix.ELOOP):
		return api.Errorf(api.CodeInvalid, "%s: it is, or leads through, a symbolic link", at).WithHint("name the file that the link points to")
	case errors.Is(err, fs.ErrExist):
		return api.Errorf(api.CodeFileExists, "%s exists in the sandbox", at).WithHint("remove it first, or ask to replace it")
	case errors.Is(err, unix.ENOSPC):
		return api.Errorf(api.CodeDiskFull, "%s: the sandbox's disk is full", at).WithHint("remove what is not needed: `sandboxctl ls`, `sandboxctl rm`")
	case errors.As(err, &special):
		return api.Errorf(api.CodeInvalid, "%s is %v", at, special)
	case errors.As(err, &pe):
		return api.Errorf(api.CodeInvalid, "%s: %v", at, pe.Err)
	case errors.As(err, &le):
		return api.Errorf(api.CodeInvalid, "%s: %v", at, le.Err)
	}
	return err
}

// errNoSandbox says that a chat has nothing to look into.
func errNoSandbox(k ChatKey) error {
	return api.Errorf(api.CodeFileNotFound, "chat %s has no live sandbox, so it has no files", k.ID).
		WithHint("its finished outputs are cells: list them with `sandboxctl cells --chat %s`", k.ID)
}

// sandboxOf returns the chat's live sandbox, for looking into its files.
func (e *Engine) sandboxOf(k ChatKey) (*live, error) {
	if _, err := e.chatRecord(k); err != nil {
		return nil, err
	}
	if l := e.settled(k); l != nil {
		return l, nil
	}
	return nil, errNoSandbox(k)
}

// inPlace does f where a location of a sandbox's disk is; with create,
// directories above it are made.
func inPlace(disk string, at location, create bool, f func(place) error) error {
	top, err := os.Open(filepath.Join(disk, at.dir))
	if err != nil {
		return fmt.Errorf("open the sandbox's /%s: %w", at.dir, err)
	}
	p, err := walkTo(top, at.rest, create)
	if err != nil {
		return fileError(at, err)
	}
	if err := errors.Join(f(p), p.close()); err != nil {
		return fileError(at, err)
	}
	return nil
}

func (l *live) at(at location, create bool, f func(place) error) error {
	return inPlace(l.record.Spec.Disk, at, create, f)
}

// holding boots the chat's sandbox if there is none, and keeps it while f works.
func (e *Engine) holding(ctx context.Context, k ChatKey, f func(*live) error) error {
	if err := e.admitBytes(); err != nil {
		return err
	}
	hold := newID("put-")
	l, err := e.claim(ctx, k, hold)
	if err != nil {
		return err
	}
	return errors.Join(f(l), e.leave(l, hold))
}

// PutFile writes r to a path in the chat's sandbox, whole or not at all, and
// boots the sandbox if there is none.
func (e *Engine) PutFile(ctx context.Context, k ChatKey, p string, r io.Reader) (info api.FileInfo, err error) {
	at, err := locateEntry(p)
	if err != nil {
		return info, err
	}
	err = e.holding(ctx, k, func(l *live) error {
		in, st, err := writeFile(l.record.Spec.Disk, at, r)
		if err != nil {
			return err
		}
		l.setInput(at, in)
		l.wrote(at)
		info = fileInfo(at, st)
		return nil
	})
	return info, err
}

// writeFile writes r to a location of a sandbox's disk: under a temporary name,
// which is renamed into place.
func writeFile(disk string, at location, r io.Reader) (in Input, st fs.FileInfo, err error) {
	err = inPlace(disk, at, true, func(to place) error {
		tmp := temporaryName()
		f, err := to.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		digest := newDigest()
		_, err = io.Copy(io.MultiWriter(f, digest), r)
		if err == nil {
			err = renameAt(to.dir, tmp, to, true)
		}
		var statErr error
		st, statErr = f.Stat()
		if err := errors.Join(err, statErr, f.Close()); err != nil {
			return errors.Join(err, ignoreGone(to.root.Remove(tmp)))
		}
		in = digest.input()
		return nil
	})
	return in, st, err
}

// putPrefix begins the names of what is being put.
const putPrefix = ".put-"

// temporaryName is one that no output is published under.
func temporaryName() string { return newID(putPrefix) + ".part" }

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func fileInfo(at location, st fs.FileInfo) api.FileInfo {
	return api.FileInfo{Path: at.String(), Size: st.Size(), Dir: st.IsDir(), Mode: st.Mode().String(), Modified: st.ModTime().UTC()}
}

// OpenFile opens a file of the chat's sandbox for reading.
func (e *Engine) OpenFile(k ChatKey, p string) (f *os.File, info api.FileInfo, err error) {
	at, err := locate(p)
	if err != nil {
		return nil, info, err
	}
	l, err := e.sandboxOf(k)
	if err != nil {
		return nil, info, err
	}
	err = l.at(at, false, func(from place) error {
		file, err := from.openRegular()
		if err != nil {
			return err
		}
		st, err := file.Stat()
		if err != nil {
			return errors.Join(err, file.Close())
		}
		f, info = file, fileInfo(at, st)
		return nil
	})
	return f, info, err
}

// StatFile describes a file, a directory or a link of the chat's sandbox.
func (e *Engine) StatFile(k ChatKey, p string) (info api.FileInfo, err error) {
	at, err := locate(p)
	if err != nil {
		return info, err
	}
	l, err := e.sandboxOf(k)
	if err != nil {
		return info, err
	}
	err = l.at(at, false, func(p place) error {
		st, err := p.root.Lstat(p.base)
		if err == nil {
			info = fileInfo(at, st)
		}
		return err
	})
	return info, err
}

// maxListed bounds a listing.
const maxListed = 10000

// ListFiles lists a directory of the chat's sandbox.
func (e *Engine) ListFiles(k ChatKey, p string) ([]api.FileInfo, error) {
	at, err := locate(p)
	if err != nil {
		return nil, err
	}
	l, err := e.sandboxOf(k)
	if err != nil {
		return nil, err
	}
	list := []api.FileInfo{}
	err = l.at(at, false, func(p place) error {
		d, err := p.open(os.O_RDONLY | unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		entries, err := d.Readdir(maxListed)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		for _, st := range entries {
			list = append(list, fileInfo(location{at.dir, path.Join(at.rest, st.Name())}, st))
		}
		return errors.Join(err, d.Close())
	})
	slices.SortFunc(list, func(a, b api.FileInfo) int { return strings.Compare(a.Path, b.Path) })
	return list, err
}

// RemoveFile removes a file, or a directory with all in it.
func (e *Engine) RemoveFile(k ChatKey, p string) error {
	at, err := locateEntry(p)
	if err != nil {
		return err
	}
	l, err := e.sandboxOf(k)
	if err != nil {
		return err
	}
	return l.at(at, false, func(p place) error {
		if _, err := p.root.Lstat(p.base); err != nil {
			return err
		}
		if err := p.root.RemoveAll(p.base); err != nil {
			return err
		}
		l.dropInput(at)
		return nil
	})
}

// MoveFile renames a file or a directory of the chat's sandbox. Unless it may
// replace what is there, that is an error.
func (e *Engine) MoveFile(k ChatKey, req api.MoveFile) (info api.FileInfo, err error) {
	from, err := locateEntry(req.From)
	if err != nil {
		return info, err
	}
	to, err := locateEntry(req.To)
	if err != nil {
		return info, err
	}
	if (from.dir == "inputs") != (to.dir == "inputs") {
		return info, api.Errorf(api.CodeInvalid, "%s can't be moved to %s: /inputs holds what was put there, and nothing else", from, to).
			WithHint("copy it in a command, or put it where it belongs")
	}
	l, err := e.sandboxOf(k)
	if err != nil {
		return info, err
	}
	err = l.at(from, false, func(source place) error {
		return l.at(to, true, func(target place) error {
			if _, err := source.root.Lstat(source.base); err != nil {
				return fileError(from, err)
			}
			if err := renameAt(source.dir, source.base, target, req.Replace); err != nil {
				return err
			}
			l.moveInput(from, to)
			st, err := target.root.Lstat(target.base)
			if err != nil {
				return fmt.Errorf("look at what was moved: %w", err)
			}
			info = fileInfo(to, st)
			return nil
		})
	})
	return info, err
}
