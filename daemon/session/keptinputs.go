package session

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"mediasandbox/internal/treetar"
)

// keptInputs holds copies of the files that cells were made from, by content,
// so that a cell can be made again when its sandbox is gone. A chat's copies go
// with the chat.
type keptInputs struct {
	chatDirs
	// limit bounds a chat's copies, in bytes; what does not fit is not kept.
	limit int64
	// mu is held while a copy is made.
	mu keyedMutex
}

func (k *keptInputs) has(chat ChatKey, sha string) bool {
	_, err := os.Lstat(filepath.Join(k.of(chat), sha))
	return err == nil && sha != ""
}

func (k *keptInputs) open(chat ChatKey, sha string) (*os.File, error) {
	return os.Open(filepath.Join(k.of(chat), sha))
}

// drop removes a chat's copies.
func (k *keptInputs) drop(chat ChatKey) error {
	unlock := k.mu.lock(chat.String())
	defer unlock()
	return k.chatDirs.drop(chat)
}

// errNotKept says that there was no room.
var errNotKept = errors.New("the chat's kept inputs are at their limit")

// keep copies a file whose content should be that of in. The guest may change
// it meanwhile: then nothing is kept.
func (k *keptInputs) keep(chat ChatKey, in Input, open func() (io.ReadCloser, error)) (err error) {
	unlock := k.mu.lock(chat.String())
	defer unlock()
	if k.has(chat, in.SHA256) {
		return nil
	}
	dir := k.of(chat)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("keep an input: %w", err)
	}
	used, err := usedBy(dir)
	if err != nil {
		return fmt.Errorf("keep an input: %w", err)
	}
	if used+in.Size > k.limit {
		return errNotKept
	}
	r, err := open()
	if err != nil {
		return fmt.Errorf("keep an input: %w", err)
	}
	defer r.Close()
	path := filepath.Join(dir, in.SHA256)
	if err := copyVerified(path, r, in); err != nil {
		return fmt.Errorf("keep an input: %w", errors.Join(err, ignoreGone(os.Remove(path+partSuffix))))
	}
	return nil
}

// copyVerified makes path hold what r gives if that is what in says.
func copyVerified(path string, r io.Reader, in Input) error {
	f, err := os.OpenFile(path+partSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	got, err := readInput(io.TeeReader(r, f), in)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if got.Size != in.Size || got.SHA256 != in.SHA256 {
		return errors.New("it has changed since it was put there")
	}
	return os.Rename(path+partSuffix, path)
}

// readInput reads a file, or a directory's stream, to no more than it should
// have.
func readInput(r io.Reader, want Input) (Input, error) {
	if !want.tree() {
		d := newDigest()
		_, err := io.Copy(d, io.LimitReader(r, want.Size+1))
		return d.input(), err
	}
	d := &treeDigest{}
	u := treetar.Unpacker{Room: want.Size, Observe: d.file}
	err := u.Unpack(r)
	return d.input(), err
}

// usedBy is how many bytes the files of a directory have.
func usedBy(dir string) (int64, error) {
	var total int64
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		st, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) || strings.HasSuffix(e.Name(), partSuffix) {
			continue
		}
		if err != nil {
			return 0, err
		}
		total += st.Size()
	}
	return total, err
}

// keepInputs keeps what a command that made cells was given. Cells' files need
// no copy.
func (e *Engine) keepInputs(l *live, cmd CommandRecord) {
	if cmd.Made == nil || !l.firstCell(cmd.ID) {
		return
	}
	l.keeping.Go(func() {
		for name, in := range cmd.Made.Inputs {
			if in.Cell > 0 || in.SHA256 == "" {
				continue
			}
			err := e.inputs.keep(cmd.Key(), in, func() (io.ReadCloser, error) { return openInput(l.record.Spec.Disk, name, in) })
			if err != nil {
				e.log.Warn("an input is not kept for replays", "chat", cmd.Key(), "command", cmd.ID, "input", name, "error", err)
			}
		}
	})
}

// openInput opens what a sandbox was given: a file, or a directory as a tar
// stream.
func openInput(disk, name string, in Input) (io.ReadCloser, error) {
	at := location{"inputs", name}
	if in.tree() {
		return openTree(disk, at)
	}
	return openIn(disk, at)
}

// firstCell tells whether no cell of the command was seen before.
func (l *live) firstCell(command string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.spans {
		if s := &l.spans[i]; s.command.ID == command && !s.cells {
			s.cells = true
			return true
		}
	}
	return false
}
