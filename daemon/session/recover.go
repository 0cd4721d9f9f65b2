package session

import (
	"context"
	"errors"
	"fmt"
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
// removed.
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
	followed, err := e.recoverSandboxes(ctx, sandboxes, commands)
	if err != nil {
		return err
	}
	for _, c := range commands {
		// Not those that are followed: some have ended since. Those that wait
		// begin later.
		if !followed[c.ID] && c.State != api.StateQueued {
			if err := e.recoverLost(c); err != nil {
				return fmt.Errorf("command %s: %w", c.ID, err)
			}
		}
	}
	return e.removeOrphans(ctx, sandboxes)
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
		e.launch(r, e.lanes.join(r.rec.Key().String(), r.rec.ID), nil)
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

// recoverSandboxes takes all sandboxes up at the same time, so that one that
// does not answer delays no other. It returns the commands that it goes on
// following.
func (e *Engine) recoverSandboxes(ctx context.Context, sandboxes []SandboxRecord, commands []CommandRecord) (map[string]bool, error) {
	errs := make([]error, len(sandboxes))
	ids := make([][]string, len(sandboxes))
	var all sync.WaitGroup
	for i, rec := range sandboxes {
		own := slices.DeleteFunc(slices.Clone(commands), func(c CommandRecord) bool { return c.Sandbox != rec.Spec.ID })
		all.Go(func() {
			var err error
			if ids[i], err = e.recoverSandbox(ctx, rec, own); err != nil {
				errs[i] = fmt.Errorf("sandbox %s: %w", rec.Spec.ID, err)
			}
		})
	}
	all.Wait()
	followed := make(map[string]bool)
	for _, id := range slices.Concat(ids...) {
		followed[id] = true
	}
	return followed, errors.Join(errs...)
}

// recoverSandbox adopts a sandbox with its commands, or cleans up after it. It
// returns the commands that it goes on following.
func (e *Engine) recoverSandbox(ctx context.Context, rec SandboxRecord, commands []CommandRecord) (followed []string, err error) {
	var known []uploader.Known
	err = e.cfg.Store.View(func(tx Tx) (err error) {
		known, err = tx.Known(rec.Spec.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	h, err := e.cfg.Runtime.Adopt(ctx, rec.Spec)
	if ctx.Err() != nil {
		return nil, ctx.Err() // a daemon that is told to end judges nobody
	}
	if err != nil {
		if !errors.Is(err, sandbox.ErrGone) {
			e.log.Warn("a sandbox can't be taken up again", "sandbox", rec.Spec.ID, "error", err)
		}
		return nil, e.recoverGone(ctx, rec, known, commands)
	}
	e.seats.take(rec.Chat.Account)
	l, err := e.attach(rec, h, known)
	if err != nil {
		return nil, errors.Join(err, h.Detach())
	}
	// The operator's part may have changed. A sandbox that can't be held to it
	// must not go on.
	if err := e.applyNetwork(ctx, l); err != nil {
		e.log.Error("put the network policy in force", "sandbox", rec.Spec.ID, "error", err)
		e.work.Go(func() {
			if err := e.endSandbox(e.ctx, l, "its network policy could not be put in force"); err != nil {
				e.log.Error("end a sandbox", "sandbox", rec.Spec.ID, "error", err)
			}
		})
	}
	for _, c := range commands {
		if !l.enter(c.ID) {
			continue // the sandbox ended this moment; watchEnd cleans up
		}
		if err := e.recoverCommand(ctx, l, c); err != nil {
			return followed, errors.Join(fmt.Errorf("command %s: %w", c.ID, err), e.leave(l, c.ID))
		}
		followed = append(followed, c.ID)
	}
	return followed, nil
}

// recoverCommand goes on following a command, from the byte its logs end at.
func (e *Engine) recoverCommand(ctx context.Context, l *live, rec CommandRecord) error {
	out, errs, err := e.openLogs(rec.ID)
	if err != nil {
		return err
	}
	r := e.makeRunning(rec, out, errs)
	l.putDownTo(rec)
	var from sandbox.Offsets
	from.Stdout, _ = out.Size()
	from.Stderr, _ = errs.Size()
	p, err := l.handle.Reattach(ctx, rec.ID, from, r)
	if err != nil {
		return errors.Join(err, r.discard())
	}
	r.process.Store(&p)
	e.mu.Lock()
	e.commands[rec.ID] = r
	e.mu.Unlock()
	e.lanes.take(rec.Key().String())
	e.work.Go(func() {
		defer e.lanes.leave(rec.Key().String())
		e.follow(r, l)
	})
	return nil
}

// recoverGone records the finished outputs of a sandbox that ended while no
// daemon was there, and removes what is left of it.
func (e *Engine) recoverGone(ctx context.Context, rec SandboxRecord, known []uploader.Known, commands []CommandRecord) error {
	l := &live{record: rec, running: make(map[string]bool)}
	if len(commands) > 0 {
		l.putDownTo(commands[len(commands)-1])
	}
	_, err := e.cfg.Disks.Open(rec.Spec.ID)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(l.dir("outputs")); err == nil {
		w, err := uploader.Watch(e.watchConfig(l, known))
		if err != nil {
			return err
		}
		flushCtx, cancel := context.WithTimeout(ctx, flushTimeout)
		defer cancel()
		_, err = w.Flush(flushCtx)
		if err := errors.Join(err, w.Close()); err != nil {
			return err
		}
	}
	return e.forgetSandbox(ctx, rec, "it ended while the daemon was away")
}

// recoverLost ends a command that nobody can tell anything of.
func (e *Engine) recoverLost(rec CommandRecord) error {
	rec.Reason = "its sandbox ended while the daemon was away"
	for name, size := range map[string]*api.Output{"stdout": &rec.Stdout, "stderr": &rec.Stderr} {
		log, err := outlog.Open(filepath.Join(e.outputDir(rec.ID), name))
		if err != nil {
			e.log.Warn("an output log is lost", "command", rec.ID, "error", err)
			continue
		}
		*size = outputOf(log)
		if err := errors.Join(log.End(), log.Close()); err != nil {
			return err
		}
	}
	was := rec.State
	if err := move(&rec, api.StateLost, now()); err != nil {
		return err
	}
	return e.update(rec.Key(), func(tx Tx) error { return putState(tx, was, &rec) })
}

// removeOrphans removes sandboxes and disks that no record owns: half-made
// ones, and those that waited in the pool.
func (e *Engine) removeOrphans(ctx context.Context, owned []SandboxRecord) error {
	ids, err := e.cfg.Runtime.List(ctx)
	if err != nil {
		return err
	}
	disks, err := e.cfg.Disks.List()
	if err != nil {
		return err
	}
	ids = append(ids, disks...)
	slices.Sort(ids)
	ids = slices.DeleteFunc(slices.Compact(ids), func(id string) bool {
		return slices.ContainsFunc(owned, func(r SandboxRecord) bool { return r.Spec.ID == id })
	})
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			// What can't be removed now is found again by the next daemon; it
			// must not keep this one from serving.
			if err := e.removeSandbox(ctx, id); err != nil {
				e.log.Error("remove a sandbox that nobody owns", "sandbox", id, "error", err)
				return
			}
			e.log.Info("removed a sandbox that nobody owns", "sandbox", id)
		})
	}
	all.Wait()
	return nil
}
