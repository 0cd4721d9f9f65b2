package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/cleanup"

	"mediasandbox/daemon/api"
	"mediasandbox/runtime/sandbox"
	"mediasandbox/uploader"
)

// diskTimeout bounds the wait for the last user of a disk.
const diskTimeout = 20 * time.Second

// errClosing refuses a sandbox to an engine that ends.
var errClosing = api.Errorf(api.CodeUnavailable, "the daemon is ending").CanRetry()

// live is a chat's sandbox and what follows it.
type live struct {
	handle  sandbox.Handle
	watcher *uploader.Watcher
	// factsSlots bounds how many probes run in the sandbox at a time.
	factsSlots, previewSlots chan struct{}
	// ctx ends when the sandbox is about to.
	ctx    context.Context
	cancel context.CancelFunc

	// refusals are told by one goroutine.
	refusals refusals

	// mu guards everything below.
	mu      sync.Mutex
	record  SandboxRecord
	running map[string]bool
	// spans are the times of its commands.
	spans []span
	// puts are the times of files that the host wrote below /outputs.
	puts  map[string]time.Time
	idle  *time.Timer
	ended bool
	facts sync.WaitGroup
	// keeping are copies of inputs and small pictures being made.
	keeping sync.WaitGroup
	skips   skips
	// broken are outputs that killed commands were writing; see writers.go.
	broken map[string]FileState
}

// errLetGo is the status error of processes whose sandbox was let go.
var errLetGo = errors.New("the daemon let go of the sandbox")

func (e *Engine) liveOf(k ChatKey) *live {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.live[k]
}

// claim returns the chat's live sandbox with the command noted in it, and
// boots one when there is none.
func (e *Engine) claim(ctx context.Context, k ChatKey, command string) (*live, error) {
	unlock := e.keyLocks.lock(k.String())
	defer unlock()
	if l := e.settled(k); l != nil && l.enter(command) {
		return l, nil
	}
	chat, err := e.chatRecord(k)
	if err != nil {
		return nil, err
	}
	if err := e.seats.enter(ctx, k.Account, command); err != nil {
		return nil, err
	}
	l, err := e.bootFor(ctx, chat)
	if err != nil {
		e.seats.leave(k.Account)
		return nil, err
	}
	if !l.enter(command) {
		return nil, fmt.Errorf("the new sandbox ended at once: %s", l.handle.Exit().Reason)
	}
	return l, nil
}

// bootFor gives the chat a sandbox from the pool, or a new one.
func (e *Engine) bootFor(ctx context.Context, chat ChatRecord) (*live, error) {
	spec, h, err := e.pool.take(ctx, e.cfg.Network.policy(chat))
	if err != nil {
		return nil, err
	}
	rec := SandboxRecord{
		Spec: spec, Chat: chat.Key(), Image: e.cfg.ImageDigest, CreatedAt: now(), IdleSince: now(),
	}
	err = e.update(rec.Chat, func(tx Tx) error {
		c, err := tx.Chat(rec.Chat)
		if err != nil {
			return err
		}
		c.FilesLost, c.HadSandbox = c.HadSandbox, true
		if err := tx.PutChat(c); err != nil {
			return err
		}
		if err := tx.PutSandbox(rec); err != nil {
			return err
		}
		return emit(tx, rec.Chat, api.Event{Type: api.EventSandboxStarted, Message: spec.ID})
	})
	if err != nil {
		return nil, errors.Join(err, h.Detach(), e.removeSandbox(ctx, spec.ID))
	}
	if err := e.laySkills(spec.Disk, chat); err != nil {
		return nil, errors.Join(err, h.Detach(), e.forgetSandbox(ctx, rec, "its skills could not be laid out"))
	}
	l, err := e.attach(rec, h, nil, nil)
	if err != nil {
		return nil, errors.Join(err, h.Detach(), e.forgetSandbox(ctx, rec, "it could not be watched"))
	}
	// It may have waited in the pool with another policy, and the chat's may
	// have changed meanwhile.
	if err := e.applyNetwork(ctx, l); err != nil {
		return nil, errors.Join(err, e.endSandbox(ctx, l, "its network policy could not be put in force"))
	}
	return l, nil
}

// boot starts a sandbox without a chat.
func (e *Engine) boot(ctx context.Context, network sandbox.NetworkPolicy) (sandbox.Spec, sandbox.Handle, error) {
	id := newID("s-")
	spec := sandbox.Spec{ID: id, Image: e.cfg.Image, Limits: e.cfg.Limits, Network: network}
	disk, err := e.cfg.Disks.Make(ctx, id)
	if err != nil {
		return spec, nil, err
	}
	spec.Disk, spec.Overlay = disk.Data, disk.Overlay
	if e.cfg.WarmPython {
		spec.WarmEnv = environ(e.cfg.Env)
	}
	undo := cleanup.Make(func() {
		if err := e.cfg.Disks.Remove(context.WithoutCancel(ctx), id); err != nil {
			e.log.Error("remove the disk of a sandbox that did not start", "sandbox", id, "error", err)
		}
	})
	defer undo.Clean()
	skillsDir := filepath.Join(spec.Disk, "skills")
	if err := os.MkdirAll(skillsDir, 0o755); err != nil {
		return spec, nil, fmt.Errorf("make a sandbox's disk: %w", err)
	}
	if err := e.cfg.Skills.Lay(skillsDir, "", nil); err != nil {
		return spec, nil, err
	}
	h, err := e.cfg.Runtime.Start(ctx, spec)
	if err != nil {
		return spec, nil, err
	}
	undo.Release()
	return spec, h, nil
}

// attach begins to follow a sandbox.
func (e *Engine) attach(rec SandboxRecord, h sandbox.Handle, known []uploader.Known, spans []span) (*live, error) {
	l := &live{
		handle: h, record: rec, running: make(map[string]bool), broken: brokenIn(rec), spans: spans,
		factsSlots: make(chan struct{}, 1), previewSlots: make(chan struct{}, 1),
	}
	l.ctx, l.cancel = context.WithCancel(e.ctx)
	w, err := e.watch(e.watchConfig(l, known))
	if err != nil {
		return nil, err
	}
	l.watcher = w
	e.mu.Lock()
	closing := e.closing
	if !closing {
		e.live[rec.Chat] = l
		e.gates.join(rec.Spec.ID, rec.CreatedAt.Before(e.started))
	}
	e.mu.Unlock()
	if closing {
		return nil, errors.Join(errClosing, w.Close())
	}
	e.work.Go(func() { forwardHints(l) })
	e.work.Go(func() { e.watchEnd(l) })
	l.mu.Lock()
	l.idle = time.AfterFunc(time.Until(rec.IdleSince.Add(e.cfg.IdleLife)), func() { e.idleOut(l) })
	l.mu.Unlock()
	return l, nil
}

// brokenIn is what an earlier daemon recorded.
func brokenIn(rec SandboxRecord) map[string]FileState {
	broken := maps.Clone(rec.Broken)
	if broken == nil {
		broken = make(map[string]FileState)
	}
	return broken
}

func forwardHints(l *live) {
	for path := range l.handle.Hints() {
		l.watcher.Hint(path)
	}
}

// gone tells whether the sandbox has ended, also if nobody has seen to it yet.
func (l *live) gone() bool {
	select {
	case <-l.handle.Done():
		return true
	default:
		return false
	}
}

// busy tells whether a command runs in the sandbox.
func (l *live) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.running) > 0
}

// enter notes a command in the sandbox, unless it is ending.
func (l *live) enter(command string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.gone() {
		return false
	}
	l.running[command] = true
	if l.idle != nil {
		l.idle.Stop()
	}
	return true
}

// exit takes a command out of its sandbox. With the last one the idle clock
// starts, and the record that says so is returned, to be stored.
func (l *live) exit(command string, life time.Duration) *SandboxRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.running, command)
	if len(l.running) > 0 || l.ended {
		return nil
	}
	l.record.IdleSince = now()
	l.idle.Reset(life)
	rec := l.record
	return &rec
}

// leave is exit for a user of the sandbox that leaves no record of its own.
func (e *Engine) leave(l *live, user string) error {
	idle := l.exit(user, e.cfg.IdleLife)
	if idle == nil {
		return nil
	}
	return e.cfg.Store.Update(func(tx Tx) error { return tx.PutSandbox(*idle) })
}

// idleOut ends a sandbox that nobody has used for its idle life.
func (e *Engine) idleOut(l *live) {
	e.mu.Lock()
	closing := e.closing
	if !closing {
		e.work.Add(1) // Close waits for what is under way
	}
	e.mu.Unlock()
	if closing {
		return
	}
	defer e.work.Done()
	l.mu.Lock()
	busy := len(l.running) > 0 || l.ended
	l.mu.Unlock()
	if busy || e.ctx.Err() != nil {
		return
	}
	if err := e.endSandbox(e.ctx, l, fmt.Sprintf("it was idle for %s", e.cfg.IdleLife)); err != nil {
		e.log.Error("end an idle sandbox", "sandbox", l.record.Spec.ID, "error", err)
	}
}

// watchEnd cleans up after a sandbox that ended by itself.
func (e *Engine) watchEnd(l *live) {
	select {
	case <-l.handle.Done():
	case <-e.ctx.Done():
		return
	}
	if err := e.endSandbox(e.ctx, l, l.handle.Exit().Reason); err != nil {
		e.log.Error("clean up after a sandbox", "sandbox", l.record.Spec.ID, "error", err)
	}
}

// endSandbox ends a sandbox once, after its finished outputs are recorded.
func (e *Engine) endSandbox(ctx context.Context, l *live, why string) error {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return nil
	}
	l.ended = true
	l.idle.Stop()
	l.mu.Unlock()
	e.mu.Lock()
	if e.live[l.record.Chat] == l { // else a command has a new one already
		delete(e.live, l.record.Chat)
	}
	e.mu.Unlock()
	flushCtx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	_, flushErr := l.watcher.Flush(flushCtx)
	l.facts.Wait()
	l.cancel()
	l.keeping.Wait()
	err := errors.Join(flushErr, l.watcher.Close(), e.forgetSandbox(ctx, l.record, why))
	e.seats.leave(l.record.Chat.Account)
	return err
}

// forgetSandbox removes a sandbox, its disk and its record.
func (e *Engine) forgetSandbox(ctx context.Context, rec SandboxRecord, why string) error {
	traffic := e.lastTraffic(ctx, rec.Spec.ID)
	if err := e.removeSandbox(ctx, rec.Spec.ID); err != nil {
		return err
	}
	err := e.update(rec.Chat, func(tx Tx) error {
		if err := countTraffic(tx, rec.Chat, traffic); err != nil {
			return err
		}
		if err := tx.DeleteSandbox(rec.Spec.ID); err != nil {
			return err
		}
		err := emit(tx, rec.Chat, api.Event{Type: api.EventSandboxEnded, Message: why})
		if errors.Is(err, ErrNotFound) {
			return nil // the chat was deleted
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("forget sandbox %s: %w", rec.Spec.ID, err)
	}
	e.gates.leave(rec.Spec.ID, traffic)
	return e.spend(ctx, rec.Chat, traffic)
}

func (e *Engine) removeSandbox(ctx context.Context, id string) error {
	if err := e.cfg.Runtime.Remove(context.WithoutCancel(ctx), id); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), diskTimeout)
	defer cancel()
	if err := e.cfg.Disks.Remove(ctx, id); err != nil {
		return fmt.Errorf("sandbox %s: %w", id, err)
	}
	return nil
}

// release lets go of a sandbox that goes on.
func (l *live) release() error {
	l.cancel()
	l.mu.Lock()
	l.ended = true
	l.idle.Stop()
	l.mu.Unlock()
	return errors.Join(l.watcher.Close(), l.handle.Detach())
}

func (l *live) dir(name string) string { return filepath.Join(l.record.Spec.Disk, name) }
