package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"mediasandbox/runtime/sandbox"
)

// Proc follows one process of the guest. It implements sandbox.Process.
type Proc struct {
	id    string
	host  *Host
	sink  sandbox.Sink
	start *Start // nil when an earlier daemon started it
	done  chan struct{}

	// mu guards everything below.
	mu     sync.Mutex
	known  bool // the guest has shown that it has the process
	have   [3]int64
	status sandbox.Status
	over   bool
	// taken counts the input bytes that the command has read.
	taken int64
	room  chan struct{}
}

var _ sandbox.Process = (*Proc)(nil)

// Start begins a process. The guest may be away for a moment; it is asked as
// soon as it is back.
func (h *Host) Start(ctx context.Context, id string, cmd sandbox.Command) (*Proc, error) {
	req := &Start{
		Proc: id, Argv: cmd.Argv, Env: cmd.Env, Dir: cmd.Dir, Files: cmd.Files,
		Stdin: cmd.Stdin != nil, TTY: cmd.TTY, Warm: cmd.Warm, GraceMillis: cmd.KillGrace.Milliseconds(),
		Keep: cmd.KeepBackground,
	}
	p := h.newProc(id, cmd.Sink)
	p.start = req
	if err := h.follow(p); err != nil {
		return nil, err
	}
	if err := p.ask(false); err != nil && !errors.Is(err, errNotConnected) {
		h.unfollow(id)
		return nil, fmt.Errorf("start a command: %w", err)
	}
	if cmd.Stdin != nil {
		go p.feed(cmd.Stdin)
	}
	return p, nil
}

// Reattach follows a process that was started before, from these offsets on.
func (h *Host) Reattach(ctx context.Context, id string, from sandbox.Offsets, sink sandbox.Sink) (*Proc, error) {
	p := h.newProc(id, sink)
	p.known = true
	p.have[sandbox.Stdout], p.have[sandbox.Stderr] = from.Stdout, from.Stderr
	if err := h.follow(p); err != nil {
		return nil, err
	}
	if err := p.ask(true); err != nil && !errors.Is(err, errNotConnected) {
		h.unfollow(id)
		return nil, fmt.Errorf("reattach to a command: %w", err)
	}
	return p, nil
}

func (h *Host) newProc(id string, sink sandbox.Sink) *Proc {
	return &Proc{id: id, host: h, sink: sink, done: make(chan struct{}), room: make(chan struct{}, 1)}
}

func (h *Host) follow(p *Proc) error {
	if p.id == "" || len(p.id) > MaxID {
		return fmt.Errorf("process id %q is not 1 to %d bytes long", p.id, MaxID)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		return h.ended
	}
	if h.procs[p.id] != nil {
		return fmt.Errorf("process %s is followed already", p.id)
	}
	h.procs[p.id] = p
	return nil
}

func (h *Host) unfollow(id string) {
	h.mu.Lock()
	delete(h.procs, id)
	h.mu.Unlock()
}

// ask tells the guest to start the process, or to go on telling of it.
func (p *Proc) ask(guestHasIt bool) error {
	p.mu.Lock()
	over, known := p.over, p.known
	p.known = known || guestHasIt
	resume := Resume{Proc: p.id, Stdout: p.have[sandbox.Stdout], Stderr: p.have[sandbox.Stderr]}
	p.mu.Unlock()
	switch {
	case over:
		return nil
	case guestHasIt, known:
		// A guest that has forgotten it answers that it is unknown.
		return p.host.sendJSON(KindResume, resume)
	}
	return p.host.sendJSON(KindStart, p.start)
}

// chunk takes a piece of output, or the acknowledgement of input.
func (p *Proc) chunk(c Chunk) error {
	if c.Stream == 0 {
		p.inputTaken(c.Offset)
		return nil
	}
	if c.Stream > 2 {
		return fmt.Errorf("stream %d is not known", c.Stream)
	}
	p.mu.Lock()
	p.known = true
	have, over := p.have[c.Stream], p.over
	p.mu.Unlock()
	if over {
		return nil
	}
	end := c.Offset + int64(len(c.Data))
	if c.Offset > have || end < have {
		return fmt.Errorf("output of %s from %d to %d does not continue at %d", p.id, c.Offset, end, have)
	}
	if err := p.sink.Write(sandbox.Stream(c.Stream), have, c.Data[have-c.Offset:]); err != nil {
		p.end(sandbox.Status{Code: -1, Err: fmt.Errorf("keep output: %w", err)})
		return nil
	}
	p.mu.Lock()
	p.have[c.Stream] = end
	p.mu.Unlock()
	if err := p.host.sendChunk(KindAck, Chunk{Proc: p.id, Stream: c.Stream, Offset: end}); err != nil && !errors.Is(err, errNotConnected) {
		return err
	}
	return nil
}

func (p *Proc) exited(e Exited) {
	st := sandbox.Status{
		Code: e.Code, Signal: e.Signal, Left: min(max(e.Left, 0), MaxLeft), PIDsRefused: e.PIDsRefused,
	}
	for _, path := range e.Broken[:min(len(e.Broken), MaxPaths)] {
		st.Broken = append(st.Broken, string(path))
	}
	p.mu.Lock()
	complete := e.Stdout == p.have[sandbox.Stdout] && e.Stderr == p.have[sandbox.Stderr]
	p.mu.Unlock()
	switch {
	case e.Unknown:
		st = sandbox.Status{Code: -1, Err: sandbox.ErrNoProcess}
	case !complete:
		st = sandbox.Status{Code: -1, Err: errors.New("the guest reported the end before all output")}
	}
	p.end(st)
}

func (p *Proc) end(st sandbox.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	p.over, p.status = true, st
	close(p.done)
}

// feed sends the input with a bounded window. Input is best effort over a lost
// connection: then the command sees the end of file.
func (p *Proc) feed(r io.Reader) {
	buf := make([]byte, MaxChunk)
	var sent int64
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if !p.awaitRoom(sent + int64(n)) {
				return
			}
			if p.host.sendChunk(KindStdin, Chunk{Proc: p.id, Offset: sent, Data: buf[:n]}) != nil {
				return
			}
			sent += int64(n)
		}
		if err != nil {
			_ = p.host.sendChunk(KindStdin, Chunk{Proc: p.id, Offset: sent}) // the end of input
			return
		}
	}
}

func (p *Proc) awaitRoom(end int64) bool {
	for {
		p.mu.Lock()
		ok := end-p.taken <= StdinWindow
		p.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-p.room:
		case <-p.done:
			return false
		}
	}
}

func (p *Proc) inputTaken(offset int64) {
	p.mu.Lock()
	p.taken = max(p.taken, offset)
	p.mu.Unlock()
	select {
	case p.room <- struct{}{}:
	default:
	}
}

// Signal implements sandbox.Process.
func (p *Proc) Signal(sig int) error {
	return p.host.sendJSON(KindSignal, Signal{Proc: p.id, Signal: sig})
}

// Resize implements sandbox.Process.
func (p *Proc) Resize(size sandbox.TTY) error {
	return p.host.sendJSON(KindResize, Resize{Proc: p.id, TTY: size})
}

// Kill implements sandbox.Process.
func (p *Proc) Kill() error { return p.host.sendJSON(KindKill, ProcRef{Proc: p.id}) }

// Done implements sandbox.Process.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Status implements sandbox.Process.
func (p *Proc) Status() sandbox.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// Forget implements sandbox.Process.
func (p *Proc) Forget() error {
	p.host.unfollow(p.id)
	return p.host.sendJSON(KindForget, ProcRef{Proc: p.id})
}
