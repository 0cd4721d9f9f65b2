package session

import (
	"context"
	"errors"
	"io"
	"sync"

	"mediasandbox/daemon/api"
	"mediasandbox/runtime/sandbox"
)

// stdinPipe carries a caller's stream to a command that may not have started
// yet. One caller at a time feeds it.
type stdinPipe struct {
	*io.PipeReader
	w *io.PipeWriter

	// feeding is held by the caller who feeds it.
	feeding sync.Mutex
}

// newStdinPipe returns a pipe that breaks when ctx ends.
func newStdinPipe(ctx context.Context) *stdinPipe {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { _ = r.CloseWithError(io.ErrClosedPipe) }) // closing never fails
	return &stdinPipe{PipeReader: r, w: w}
}

// Feed sends r to the stdin of a command that was started with a streamed
// input, and then its end.
func (e *Engine) Feed(key ChatKey, id string, r io.Reader) error {
	c, err := e.Command(key, id)
	if err != nil {
		return err
	}
	run := e.runningOf(id)
	if run == nil {
		return api.Errorf(api.CodeCommandEnded, "command %s has ended: %s", id, c.State)
	}
	if run.stdin == nil {
		return api.Errorf(api.CodeInvalid, "command %s does not stream its input", id).WithHint("start it with stream_stdin")
	}
	if !run.stdin.feeding.TryLock() {
		return api.Errorf(api.CodeInvalid, "somebody else feeds command %s", id)
	}
	defer run.stdin.feeding.Unlock()
	_, err = io.Copy(run.stdin.w, r)
	if errors.Is(err, io.ErrClosedPipe) {
		return nil // the command has ended, and needs no more
	}
	return errors.Join(err, run.stdin.w.Close())
}

// Resize changes the size of a command's terminal.
func (e *Engine) Resize(key ChatKey, id string, size api.TTY) error {
	c, err := e.Command(key, id)
	if err != nil {
		return err
	}
	if !c.TTY {
		return api.Errorf(api.CodeInvalid, "command %s has no terminal", id)
	}
	run := e.runningOf(id)
	if run == nil {
		return api.Errorf(api.CodeCommandEnded, "command %s has ended: %s", id, c.State)
	}
	if p := run.process.Load(); p != nil {
		return (*p).Resize(sandbox.TTY{Rows: size.Rows, Cols: size.Cols})
	}
	return nil // it starts with the size that it was given
}
