package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/outlog"
	"mediasandbox/runtime/sandbox"
)

// Why a command's context ends.
var (
	errCanceled = errors.New("it was canceled")
	errTimedOut = errors.New("it ran into its timeout")
	// errLeft is the engine letting go; the command goes on without it.
	errLeft = errors.New("the daemon lets go")
)

const (
	// killGrace is how long output stays open after the main process ended.
	killGrace = time.Second
	// notePatience is how long a guest may take to tell what a command that is to
	// be killed was writing.
	notePatience = 5 * time.Second
	// killTimeout is how long a killed command may take to end before its
	// sandbox is ended instead.
	killTimeout = 10 * time.Second
	// flushTimeout bounds the wait for a command's outputs to be recorded.
	flushTimeout = 5 * time.Minute
	// factsTimeout bounds the wait for what the outputs' media facts are.
	factsTimeout = 30 * time.Second
)

// running is a command that has not ended.
type running struct {
	out, err *outlog.Log
	ctx      context.Context
	cancel   context.CancelCauseFunc
	process  atomic.Pointer[sandbox.Process]
	progress *workProgress
	done     chan struct{}
	stdin    *stdinPipe

	// writing is held while the record is written.
	writing sync.Mutex
	// mu guards rec and users.
	mu  sync.Mutex
	rec CommandRecord
	// users are the command itself and the readers of its logs: the last one
	// closes them.
	users int
}

// use keeps the logs open for a reader, unless they are closed already.
func (r *running) use() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users == 0 {
		return false
	}
	r.users++
	return true
}

// release lets go of the logs.
func (r *running) release() error {
	r.mu.Lock()
	r.users--
	last := r.users == 0
	r.mu.Unlock()
	if !last {
		return nil
	}
	return errors.Join(r.out.Close(), r.err.Close())
}

func (e *Engine) makeRunning(rec CommandRecord, out, errs *outlog.Log) *running {
	r := &running{rec: rec, out: out, err: errs, done: make(chan struct{}), users: 1}
	r.progress = e.followProgress(r)
	r.ctx, r.cancel = context.WithCancelCause(e.ctx)
	if rec.Stream {
		r.stdin = newStdinPipe(r.ctx)
	}
	return r
}

func (r *running) record() CommandRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rec
}

// discard undoes newRunning.
func (r *running) discard() error {
	r.cancel(errLeft)
	return r.release()
}

// Write implements sandbox.Sink: the logs are files, safe against the death of
// this process.
func (r *running) Write(s sandbox.Stream, offset int64, data []byte) error {
	if s == sandbox.Stderr {
		r.progress.saw("stderr", offset, data)
		return r.err.Append(offset, data)
	}
	r.progress.saw("stdout", offset, data)
	return r.out.Append(offset, data)
}

func (r *running) log(stream string) *outlog.Log {
	switch stream {
	case "stdout":
		return r.out
	case "stderr":
		return r.err
	}
	return nil
}

func (r *running) sizes() (out, errs api.Output) { return outputOf(r.out), outputOf(r.err) }

func outputOf(l *outlog.Log) api.Output {
	length, dropped := l.Size()
	return api.Output{Bytes: length, Dropped: dropped, Truncated: dropped > 0}
}

// run is a command's whole life after it was recorded; l is its sandbox if it is
// in there already.
func (e *Engine) run(r *running, line *ticket, l *live) {
	if err := line.wait(r.ctx); err != nil {
		e.endUnstarted(r, err)
		return
	}
	defer line.leave()
	e.mu.Lock()
	closing := e.closing
	e.mu.Unlock()
	if closing && l == nil { // it stays queued, for a later daemon
		return
	}
	var err error
	if l == nil {
		l, err = e.begin(r)
	}
	if err == nil {
		err = e.start(r, l)
	}
	if err != nil {
		e.endUnstarted(r, err)
		return
	}
	e.follow(r, l)
}

// endUnstarted ends a command that never ran.
func (e *Engine) endUnstarted(r *running, err error) {
	var known *api.Error
	switch {
	case e.ctx.Err() != nil, errors.Is(err, errClosing): // a later daemon begins it, or says so
		return
	case errors.Is(context.Cause(r.ctx), errCanceled):
		e.end(r, nil, verdict{state: api.StateCanceled, reason: "it was canceled before it started"})
	case errors.As(err, &known):
		e.end(r, nil, verdict{state: api.StateFailed, reason: "it could not be started: " + known.Message})
	default:
		e.log.Error("start a command", "command", r.record().ID, "error", err)
		e.end(r, nil, verdict{state: api.StateFailed, reason: "it could not be started: the daemon's log says why"})
	}
}

// begin brings a command into its chat's sandbox, and records it as running.
func (e *Engine) begin(r *running) (*live, error) {
	rec := r.record()
	l, err := e.claim(r.ctx, rec.Key(), rec.ID)
	if err != nil {
		return nil, err
	}
	err = e.placeInputs(r.ctx, l, rec)
	if err == nil {
		err = e.want(l, rec.Publish)
	}
	if err == nil {
		e.settle(&rec, l)
		err = move(&rec, api.StateRunning, now())
	}
	if err == nil {
		err = e.save(r, rec, nil)
	}
	if err != nil {
		return nil, errors.Join(err, e.leave(l, rec.ID))
	}
	return l, nil
}

// settle notes in what a command is about to run.
func (e *Engine) settle(rec *CommandRecord, l *live) {
	rec.Sandbox, rec.Image, rec.Made = l.record.Spec.ID, l.record.Image, e.made(l, *rec)
}

// start starts a command in the sandbox that it has entered.
func (e *Engine) start(r *running, l *live) error {
	rec := r.record()
	l.began(rec)
	cmd := e.guestCommand(rec, r)
	if r.stdin != nil {
		cmd.Stdin = r.stdin
	}
	p, err := l.handle.Start(r.ctx, rec.ID, cmd)
	if err != nil {
		return errors.Join(err, e.leave(l, rec.ID))
	}
	r.process.Store(&p)
	return nil
}

// save records a change of a running command and tells its followers. A
// sandbox that it leaves idle is recorded with it.
func (e *Engine) save(r *running, rec CommandRecord, idle *SandboxRecord) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	was := r.record().State
	rec.Ending = r.record().Ending
	err := e.update(rec.Key(), func(tx Tx) error {
		if idle != nil {
			if err := tx.PutSandbox(*idle); err != nil {
				return err
			}
		}
		return putState(tx, was, &rec)
	})
	if err != nil {
		return fmt.Errorf("record command %s: %w", rec.ID, err)
	}
	if rec.State.Ended() && !was.Ended() {
		e.ended.add(rec.State)
	}
	r.mu.Lock()
	r.rec = rec
	r.mu.Unlock()
	return nil
}

// intend records why a command is to be killed, before anything is done. The
// first reason stays.
func (e *Engine) intend(r *running, state api.State) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	rec := r.record()
	if rec.Ending != "" || rec.State.Ended() {
		return nil
	}
	rec.Ending = state
	err := e.cfg.Store.Update(func(tx Tx) error { return tx.PutCommand(rec) })
	if err != nil {
		return fmt.Errorf("record that command %s is to end: %w", rec.ID, err)
	}
	r.mu.Lock()
	r.rec = rec
	r.mu.Unlock()
	return nil
}

// endings are the causes that intend records.
var endings = map[api.State]error{api.StateCanceled: errCanceled, api.StateTimedOut: errTimedOut}

// putState writes a command that was in another state before, and with it the
// clock of its chat's turn.
func putState(tx Tx, was api.State, rec *CommandRecord) error {
	chat, err := tx.Chat(rec.Key())
	if err != nil {
		return err
	}
	switch {
	case rec.State == api.StateRunning && was != api.StateRunning:
		chat.work(1, *rec.StartedAt)
		rec.FilesLost, chat.FilesLost = chat.FilesLost, false
	case rec.State.Ended() && was == api.StateRunning:
		chat.work(-1, *rec.EndedAt)
	}
	return errors.Join(tx.PutChat(chat), tx.PutCommand(*rec), emit(tx, rec.Key(), commandEvent(*rec)))
}

// follow waits for the end of a command that is running in l.
func (e *Engine) follow(r *running, l *live) {
	rec := r.record()
	timer := time.AfterFunc(time.Until(rec.StartedAt.Add(seconds(rec.Timeout))), func() { r.cancel(errTimedOut) })
	defer timer.Stop()
	if rec.Ending != "" { // an earlier daemon did not come to it
		r.cancel(endings[rec.Ending])
	}
	p := *r.process.Load()
	select {
	case <-p.Done():
	case <-r.ctx.Done():
		if e.ctx.Err() != nil {
			return // the daemon ends; a later one takes the command up
		}
		e.killCommand(r, l, p)
	}
	if e.ctx.Err() != nil && errors.Is(p.Status().Err, errLetGo) {
		return
	}
	if st := p.Status(); !rec.Keep || st.Left == 0 {
		l.finished(rec.ID, now())
	}
	if broken := p.Status().Broken; len(broken) > 0 {
		if err := errors.Join(e.breakOff(l, broken, beingWritten), e.sealBroken(l)); err != nil {
			e.log.Error("note what a command's background was writing", "command", rec.ID, "error", err)
		}
	}
	e.end(r, l, e.judge(r, l, p.Status()))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// killCommand ends a command; when the guest does not do it, its sandbox ends.
func (e *Engine) killCommand(r *running, l *live, p sandbox.Process) {
	if errors.Is(context.Cause(r.ctx), errTimedOut) {
		if err := e.intend(r, api.StateTimedOut); err != nil {
			e.log.Error("end a command", "error", err)
		}
	}
	patient, cancel := context.WithTimeout(e.ctx, notePatience)
	defer cancel()
	err := errors.Join(e.noteBroken(patient, l), p.Kill())
	if err == nil {
		select {
		case <-p.Done():
			if err := e.sealBroken(l); err != nil {
				e.log.Error("look at what a killed command was writing", "command", r.rec.ID, "error", err)
			}
			return
		case <-time.After(killTimeout):
			err = fmt.Errorf("the guest did not end it within %s", killTimeout)
		}
	}
	e.log.Warn("kill a command", "command", r.rec.ID, "error", err)
	// A guest that does not answer would not tell which outputs are finished
	// either; once it has ended, the journal does.
	err = e.cfg.Runtime.Remove(e.ctx, l.record.Spec.ID)
	if err := errors.Join(err, e.endSandbox(e.ctx, l, "it did not end a command that was to be killed")); err != nil {
		e.log.Error("end a sandbox", "sandbox", l.record.Spec.ID, "error", err)
	}
	<-p.Done()
}

// end records how a command ended, after its outputs are safe. l is nil when
// it never ran.
func (e *Engine) end(r *running, l *live, v verdict) {
	rec := r.record()
	for _, log := range []*outlog.Log{r.out, r.err} {
		if err := log.End(); err != nil {
			e.log.Error("end an output log", "command", rec.ID, "error", err)
		}
	}
	rec.Stdout, rec.Stderr = r.sizes()
	r.progress.end()
	if l != nil {
		rec.Skipped = e.collect(l, rec.ID)
	}
	rec.ExitCode, rec.Signal, rec.Reason, rec.Background = v.code, v.signal, v.reason, v.left
	if len(rec.Stdin) > maxKeptStdin {
		rec.Stdin = nil
	}
	var idle *SandboxRecord
	if l != nil {
		idle = l.exit(rec.ID, e.cfg.IdleLife)
	}
	err := move(&rec, v.state, now())
	if err == nil {
		err = e.save(r, rec, idle)
	}
	if err != nil {
		e.log.Error("end a command", "command", rec.ID, "error", err)
	}
	if p := r.process.Load(); p != nil {
		_ = (*p).Forget() // a sandbox that is gone has forgotten already
	}
	e.mu.Lock()
	delete(e.commands, rec.ID)
	e.mu.Unlock()
	r.cancel(errLeft)
	close(r.done)
	if err := r.release(); err != nil {
		e.log.Error("close an output log", "command", rec.ID, "error", err)
	}
}
