package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/outlog"
	"mediasandbox/runtime/sandbox"
	"mediasandbox/uploader"
)

// recover takes up what an earlier engine left: sandboxes that live go on with
// their commands, what has ended is told truthfully, and what nobody owns is
// removed. It returns at once: a sandbox that does not answer holds up its own
// chat and nobody else.
func (e *Engine) recover(ctx context.Context) error {
	var sandboxes []SandboxRecord
	var commands []CommandRecord
	err := e.cfg.Store.View(func(tx Tx) (err error) {
		if sandboxes, err = tx.Sandboxes(); err != nil {
			return err
		}
		commands, err = tx.ActiveCommands()
		return err
	})
	if err != nil {
		return err
	}
	// Listed before anything new is made.
	orphans, err := e.orphans(ctx, sandboxes)
	if err != nil {
		return err
	}
	started, err := e.reopen(commands)
	if err != nil {
		return err
	}
	for _, rec := range sandboxes {
		own := started[rec.Spec.ID]
		delete(started, rec.Spec.ID)
		e.seats.take(rec.Chat.Account)
		taken := make(chan struct{})
		e.mu.Lock()
		e.recovering[rec.Chat] = taken
		e.mu.Unlock()
		e.work.Go(func() {
			if err := e.recoverSandbox(rec, own, taken); err != nil && e.ctx.Err() == nil {
				e.log.Error("take up a sandbox", "sandbox", rec.Spec.ID, "error", err)
			}
		})
	}
	for _, own := range started {
		e.loseAll(own)
	}
	e.work.Go(func() { e.removeOrphans(orphans) })
	return nil
}

// reopen makes the commands known that ran when the earlier engine ended, by
// their sandboxes. Those that waited begin later.
func (e *Engine) reopen(commands []CommandRecord) (map[string][]*running, error) {
	started := make(map[string][]*running)
	for _, rec := range commands {
		if rec.State == api.StateQueued {
			continue
		}
		out, errs, err := e.openLogs(rec.ID)
		if err != nil {
			e.log.Warn("a command's output is lost, and the command with it", "command", rec.ID, "error", err)
			if err := e.loseRecord(rec); err != nil {
				return nil, fmt.Errorf("command %s: %w", rec.ID, err)
			}
			continue
		}
		r := e.makeRunning(rec, out, errs)
		e.mu.Lock()
		e.commands[rec.ID] = r
		e.mu.Unlock()
		e.takeLanes(rec)
		started[rec.Sandbox] = append(started[rec.Sandbox], r)
	}
	return started, nil
}

// settled returns the chat's live sandbox; one that is being taken up is waited
// for.
func (e *Engine) settled(k ChatKey) *live {
	e.mu.Lock()
	taken := e.recovering[k]
	e.mu.Unlock()
	if taken != nil {
		<-taken
	}
	return e.liveOf(k)
}

// allSettled waits for all sandboxes that are being taken up.
func (e *Engine) allSettled() {
	e.mu.Lock()
	taken := slices.Collect(maps.Values(e.recovering))
	e.mu.Unlock()
	for _, t := range taken {
		<-t
	}
}

// resumeQueued begins the commands that waited when an earlier engine ended,
// in the order in which they were asked for.
func (e *Engine) resumeQueued() error {
	var commands []CommandRecord
	err := e.cfg.Store.View(func(tx Tx) (err error) {
		commands, err = tx.ActiveCommands()
		return err
	})
	if err != nil {
		return err
	}
	for _, rec := range commands {
		if rec.State != api.StateQueued {
			continue
		}
		out, errs, err := e.openLogs(rec.ID)
		if err != nil {
			return fmt.Errorf("command %s: %w", rec.ID, err)
		}
		r := e.makeRunning(rec, out, errs)
		if rec.Ending != "" {
			r.cancel(endings[rec.Ending])
		}
		e.launch(r, e.queueUp(rec), nil)
	}
	return nil
}

// openLogs opens what a command has printed, to go on.
func (e *Engine) openLogs(command string) (out, errs *outlog.Log, err error) {
	out, err = outlog.Open(filepath.Join(e.outputDir(command), "stdout"))
	if err != nil {
		return nil, nil, err
	}
	errs, err = outlog.Open(filepath.Join(e.outputDir(command), "stderr"))
	if err != nil {
		return nil, nil, errors.Join(err, out.Close())
	}
	return out, errs, nil
}

// recoverSandbox adopts a sandbox with its commands, or cleans up after it. It
// closes taken once the chat has its sandbox, or none.
func (e *Engine) recoverSandbox(rec SandboxRecord, own []*running, taken chan struct{}) error {
	settle := sync.OnceFunc(func() { close(taken) })
	defer settle()
	var known []uploader.Known
	err := e.cfg.Store.View(func(tx Tx) (err error) {
		known, err = tx.Known(rec.Spec.ID)
		return err
	})
	if err != nil {
		e.loseAll(own)
		return err
	}
	h, err := e.cfg.Runtime.Adopt(e.ctx, rec.Spec)
	if e.ctx.Err() != nil { // a daemon that is told to end judges nobody
		return e.letGo(own, h)
	}
	if err != nil {
		if !errors.Is(err, sandbox.ErrGone) {
			e.log.Warn("a sandbox can't be taken up again", "sandbox", rec.Spec.ID, "error", err)
		}
		err := e.recoverGone(rec, known)
		if e.ctx.Err() != nil {
			return e.letGo(own, nil)
		}
		e.seats.leave(rec.Chat.Account)
		e.loseAll(own)
		return err
	}
	spans, err := e.spansIn(rec)
	if err != nil {
		return errors.Join(err, e.letGo(own, h))
	}
	l, err := e.attach(rec, h, known, spans)
	if err != nil {
		return errors.Join(err, e.letGo(own, h))
	}
	for _, r := range own {
		e.recoverCommand(l, r)
	}
	settle()
	// The operator's part may have changed. A sandbox that can't be held to it
	// must not go on.
	if err := e.applyNetwork(e.ctx, l); err != nil {
		return errors.Join(err, e.endSandbox(e.ctx, l, "its network policy could not be put in force"))
	}
	return nil
}

// letGo leaves a sandbox and its commands to a later daemon.
func (e *Engine) letGo(own []*running, h sandbox.Handle) error {
	var errs []error
	for _, r := range own {
		errs = append(errs, r.discard())
	}
	if h != nil {
		errs = append(errs, h.Detach())
	}
	return errors.Join(errs...)
}

// recoverCommand goes on following a command, from the byte its logs end at.
func (e *Engine) recoverCommand(l *live, r *running) {
	rec := r.record()
	if !l.enter(rec.ID) { // the sandbox ended this moment; watchEnd cleans up
		e.lose(r)
		return
	}
	var from sandbox.Offsets
	from.Stdout, _ = r.out.Size()
	from.Stderr, _ = r.err.Size()
	p, err := l.handle.Reattach(e.ctx, rec.ID, from, r)
	if err != nil {
		e.log.Error("take up a command", "command", rec.ID, "error", err)
		if err := e.leave(l, rec.ID); err != nil {
			e.log.Error("leave a sandbox", "command", rec.ID, "error", err)
		}
		e.lose(r)
		return
	}
	r.process.Store(&p)
	e.work.Go(func() {
		defer e.leaveLanes(rec)
		e.follow(r, l)
	})
}

// loseAll ends commands that nobody can tell anything of.
func (e *Engine) loseAll(own []*running) {
	for _, r := range own {
		e.lose(r)
	}
}

// endedAway is the reason of what ended while no daemon looked.
const endedAway = "its sandbox ended while the daemon was away"

func (e *Engine) lose(r *running) {
	defer e.leaveLanes(r.record())
	e.end(r, nil, verdict{state: api.StateLost, reason: endedAway})
}

// loseRecord ends a command of which only the record is left.
func (e *Engine) loseRecord(rec CommandRecord) error {
	was := rec.State
	rec.Reason = endedAway
	if err := move(&rec, api.StateLost, now()); err != nil {
		return err
	}
	if err := e.update(rec.Key(), func(tx Tx) error { return putState(tx, was, &rec) }); err != nil {
		return err
	}
	e.ended.add(rec.State)
	return nil
}

// recoverGone ends a sandbox that does not answer, if it still lives, records
// the outputs that were finished, and removes what is left of it.
func (e *Engine) recoverGone(rec SandboxRecord, known []uploader.Known) error {
	// First of all nobody may write any more. The disk stays.
	if err := e.cfg.Runtime.Remove(e.ctx, rec.Spec.ID); err != nil {
		return err
	}
	spans, err := e.spansIn(rec)
	if err != nil {
		return err
	}
	l := &live{record: rec, running: make(map[string]bool), broken: brokenIn(rec), spans: spans}
	_, err = e.cfg.Disks.Open(rec.Spec.ID)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(l.dir("outputs")); err == nil {
		w, err := uploader.Watch(e.watchConfig(l, known))
		if err != nil {
			return err
		}
		flushCtx, cancel := context.WithTimeout(e.ctx, flushTimeout)
		defer cancel()
		_, err = w.Flush(flushCtx)
		l.keeping.Wait()
		if err := errors.Join(err, w.Close()); err != nil {
			return err
		}
	}
	return e.forgetSandbox(e.ctx, rec, "it ended while the daemon was away")
}

// orphans are the sandboxes and disks that no record owns: half-made ones, and
// those that waited in the pool.
func (e *Engine) orphans(ctx context.Context, owned []SandboxRecord) ([]string, error) {
	ids, err := e.cfg.Runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	disks, err := e.cfg.Disks.List()
	if err != nil {
		return nil, err
	}
	ids = append(ids, disks...)
	slices.Sort(ids)
	return slices.DeleteFunc(slices.Compact(ids), func(id string) bool {
		return slices.ContainsFunc(owned, func(r SandboxRecord) bool { return r.Spec.ID == id })
	}), nil
}

// removeOrphans removes them. What can't be removed now is found again by the
// next daemon.
func (e *Engine) removeOrphans(ids []string) {
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			if err := e.removeSandbox(e.ctx, id); err != nil {
				e.log.Error("remove a sandbox that nobody owns", "sandbox", id, "error", err)
				return
			}
			e.log.Info("removed a sandbox that nobody owns", "sandbox", id)
		})
	}
	all.Wait()
}
