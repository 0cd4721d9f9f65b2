package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"

	"mediasandbox/runtime/sandbox"
)

// ClosedFiles tells in which state the writer of each output last closed it,
// by the path in the guest. It reads what the guest left on the sandbox's disk.
type ClosedFiles func(disk string) (map[string]FileState, error)

// FileState is a state of a file; MTime is in nanoseconds since 1970.
type FileState struct{ Size, MTime int64 }

// writers answers which outputs are not finished. While the sandbox lives the
// guest knows; when it does not answer or has ended, a file is finished if it
// still is as its writer closed it. What a killed command was writing stays
// unfinished until somebody writes it again.
type writers struct {
	e *Engine
	l *live
}

// OpenForWriting implements uploader.Writers.
func (w writers) OpenForWriting(ctx context.Context, dir string) ([]string, error) {
	if w.l.handle != nil {
		open, err := w.l.handle.OpenForWriting(ctx, dir)
		if err == nil {
			return append(open, w.l.stillBroken()...), nil
		}
		if !errors.Is(err, sandbox.ErrGone) {
			w.e.log.Warn("ask the guest for its open files", "sandbox", w.l.record.Spec.ID, "error", err)
		}
	}
	closed, err := w.e.cfg.ClosedFiles(w.l.record.Spec.Disk)
	if err != nil {
		return nil, err
	}
	open := w.l.stillBroken()
	err = eachOutput(w.l.dir("outputs"), func(path string, st FileState) {
		if closed[path] != st {
			open = append(open, path)
		}
	})
	return open, err
}

// eachOutput calls f with the guest path and state of each regular file.
func eachOutput(outputs string, f func(path string, st FileState)) error {
	root, err := os.OpenRoot(outputs)
	if err != nil {
		return fmt.Errorf("look through outputs: %w", err)
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // gone, or nothing that would be published
		}
		if st, err := d.Info(); err == nil {
			f(path.Join("/outputs", name), stateOf(st))
		}
		return nil
	})
}

func stateOf(st fs.FileInfo) FileState { return FileState{st.Size(), st.ModTime().UnixNano()} }

// beingWritten is the state of a file whose writer is about to be killed.
var beingWritten = FileState{Size: -1}

// noteBroken remembers what is being written now, right before its writers are
// killed.
func (e *Engine) noteBroken(ctx context.Context, l *live) error {
	open, err := l.handle.OpenForWriting(ctx, "/outputs")
	if err != nil {
		return err
	}
	return e.breakOff(l, open, beingWritten)
}

// breakOff remembers that files, by their paths in the guest, lost their writers
// in that state. It is recorded, since a later daemon has to know it too.
func (e *Engine) breakOff(l *live, paths []string, st FileState) error {
	if len(paths) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range paths {
		l.broken[p] = st
	}
	return e.recordBroken(l)
}

// sealBroken takes the state of what was being written once the writers are
// dead: as long as a file stays in it, it is not finished.
func (e *Engine) sealBroken(l *live) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	sealed := false
	err := eachOutput(l.dir("outputs"), func(p string, st FileState) {
		if was, ok := l.broken[p]; ok && was == beingWritten {
			l.broken[p], sealed = st, true
		}
	})
	if sealed {
		err = errors.Join(err, e.recordBroken(l))
	}
	return err
}

// recordBroken writes down the broken files; l.mu is held.
func (e *Engine) recordBroken(l *live) error {
	l.record.Broken = maps.Clone(l.broken)
	return e.recordSandbox(l)
}

// recordSandbox writes down the sandbox; l.mu is held.
func (e *Engine) recordSandbox(l *live) error {
	return e.cfg.Store.Update(func(tx Tx) error { return tx.PutSandbox(l.record) })
}

// stillBroken names what a killed command was writing and nobody wrote since.
func (l *live) stillBroken() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.broken) == 0 {
		return nil
	}
	now := make(map[string]FileState)
	if eachOutput(l.dir("outputs"), func(p string, st FileState) { now[p] = st }) != nil {
		return nil
	}
	var still []string
	for p, st := range l.broken {
		switch got, ok := now[p]; {
		case ok && (st.Size < 0 || got == st):
			still = append(still, p)
		default:
			delete(l.broken, p)
		}
	}
	return still
}
