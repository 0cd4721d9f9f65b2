package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
// guest knows; when it has ended, a file is finished if it still is as its
// writer closed it. What a killed command was writing stays unfinished until
// somebody writes it again.
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
			return nil, err
		}
	}
	closed, err := w.e.cfg.ClosedFiles(w.l.record.Spec.Disk)
	if err != nil {
		return nil, err
	}
	var open []string
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

// noteBroken remembers what is being written now, right before its writers are
// killed.
func (l *live) noteBroken(ctx context.Context) error {
	open, err := l.handle.OpenForWriting(ctx, "/outputs")
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range open {
		l.broken[p] = FileState{Size: -1}
	}
	return nil
}

// sealBroken takes the state of what was being written once the writers are
// dead: as long as a file stays in it, it is not finished.
func (l *live) sealBroken() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return eachOutput(l.dir("outputs"), func(p string, st FileState) {
		if was, ok := l.broken[p]; ok && was.Size < 0 {
			l.broken[p] = st
		}
	})
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
