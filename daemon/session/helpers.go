package session

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"mediasandbox/daemon/api"
	"mediasandbox/runtime/sandbox"
)

// maxHelperOutput bounds what a helper may say, in bytes.
const maxHelperOutput = 1 << 20

// helper is a Python program of ours that looks at media where they are
// harmless: in the sandbox. It runs among hostile processes, so that nothing
// it says may be believed unchecked.
type helper struct {
	name   string // for errors, and of its script
	source []byte
	args   []string
	stdin  io.Reader
	// said, if set, hears what it prints as it comes.
	said io.Writer
}

// ask runs a helper to its end and returns what it printed.
func (e *Engine) ask(ctx context.Context, handle sandbox.Handle, h helper) ([]byte, error) {
	id := newID(h.name + "-")
	sink := &memorySink{tee: h.said}
	cmd := e.guestCommand(CommandRecord{Command: api.Command{
		ID: id, Dir: "/", Python: string(h.source), Script: h.name + ".py", Args: h.args,
	}}, sink)
	cmd.Stdin = h.stdin
	p, err := handle.Start(ctx, id, cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", h.name, err)
	}
	defer func() { _ = p.Forget() }() // a sandbox that is gone has forgotten already
	select {
	case <-p.Done():
	case <-ctx.Done():
		_ = p.Kill() // it dies with its sandbox at the latest
		return nil, fmt.Errorf("%s: %w", h.name, context.Cause(ctx))
	}
	if st := p.Status(); st.Err != nil || st.Code != 0 {
		return nil, fmt.Errorf("%s ended with code %d (%v): %s", h.name, st.Code, st.Err, sink.tail())
	}
	return sink.out.Bytes(), nil
}

// memorySink keeps a bounded amount of output; more is dropped.
type memorySink struct {
	out, err bytes.Buffer
	// tee, if set, gets what comes on stdout too, all of it.
	tee io.Writer
}

// Write implements sandbox.Sink.
func (m *memorySink) Write(s sandbox.Stream, _ int64, data []byte) error {
	buf := &m.out
	if s == sandbox.Stderr {
		buf = &m.err
	}
	buf.Write(data[:min(len(data), maxHelperOutput-buf.Len())])
	if s == sandbox.Stdout && m.tee != nil {
		_, err := m.tee.Write(data)
		return err
	}
	return nil
}

// tail is the end of what was said on stderr, on one line.
func (m *memorySink) tail() string {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(m.err.String(), "?")), " ")
	return text[max(0, len(text)-maxNote):]
}
