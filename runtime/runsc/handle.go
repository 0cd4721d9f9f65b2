package runsc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"mediasandbox/runtime/guest"
	"mediasandbox/runtime/hostproc"
	"mediasandbox/runtime/sandbox"
)

// handle is a running sandbox.
type handle struct {
	runtime *Runtime
	spec    sandbox.Spec
	channel *guest.Host
	ref     hostproc.Ref
	pidfd   *os.File
	done    chan struct{}

	closeOnce sync.Once
	// exit is written before done is closed.
	exit     sandbox.Exit
	detached chan struct{}
}

// newHandle waits until the guest's PID 1 has said hello.
func (r *Runtime) newHandle(ctx context.Context, spec sandbox.Spec, channel *guest.Host, ref hostproc.Ref) (*handle, error) {
	pidfd, err := ref.Open()
	if errors.Is(err, hostproc.ErrGone) {
		return nil, fmt.Errorf("it ended at once: %w", sandbox.ErrGone)
	}
	if err != nil {
		return nil, err
	}
	h := &handle{
		runtime: r, spec: spec, channel: channel, ref: ref, pidfd: pidfd,
		done: make(chan struct{}), detached: make(chan struct{}),
	}
	go h.watch()
	select {
	case <-channel.Ready():
		return h, nil
	case <-h.done:
		return nil, fmt.Errorf("it ended while booting: %s: %w", h.exit.Reason, sandbox.ErrGone)
	case <-ctx.Done():
		cause := context.Cause(ctx)
		return nil, errors.Join(cause, h.Detach())
	}
}

// watch notices the end of the sandbox.
func (h *handle) watch() {
	err := hostproc.Wait(h.pidfd)
	select {
	case <-h.detached:
		return
	default:
	}
	h.exit = h.judge(err)
	h.channel.Close(sandbox.ErrGone)
	close(h.done)
}

// judge says how the sandbox ended. It must be asked before its cgroups are
// removed.
func (h *handle) judge(err error) sandbox.Exit {
	limits := h.spec.Limits
	switch {
	case err != nil:
		return sandbox.Exit{Reason: "it can't be watched: " + err.Error()}
	case h.runtime.cgroups.oomKilled(h.spec.ID):
		return sandbox.Exit{OOM: true, Reason: fmt.Sprintf("the sandbox exceeded its memory limit of %d MiB", limits.MemoryBytes>>20)}
	case h.runtime.cgroups.pidsRefused(h.spec.ID):
		return sandbox.Exit{Reason: fmt.Sprintf("the sandbox exceeded its limit of %d processes", limits.PIDs)}
	}
	return sandbox.Exit{Reason: "its first process ended, or gVisor did"}
}

// ID implements sandbox.Handle.
func (h *handle) ID() string { return h.spec.ID }

// Start implements sandbox.Handle.
func (h *handle) Start(ctx context.Context, id string, cmd sandbox.Command) (sandbox.Process, error) {
	p, err := h.channel.Start(ctx, id, cmd)
	if err != nil {
		return nil, err
	}
	return h.guard(p), nil
}

// Reattach implements sandbox.Handle.
func (h *handle) Reattach(ctx context.Context, id string, from sandbox.Offsets, sink sandbox.Sink) (sandbox.Process, error) {
	p, err := h.channel.Reattach(ctx, id, from, sink)
	if err != nil {
		return nil, err
	}
	return h.guard(p), nil
}

// guarded is a process whose SIGKILL may be the kernel's, for memory. Usually
// the kernel then kills the sentry; sometimes only what ran the process. The
// sandbox has lost its promise either way, and ends.
type guarded struct {
	sandbox.Process
	done   chan struct{}
	status sandbox.Status
}

func (h *handle) guard(p sandbox.Process) sandbox.Process {
	g := &guarded{Process: p, done: make(chan struct{})}
	go func() {
		defer close(g.done)
		<-p.Done()
		g.status = p.Status()
		if g.status.Signal != int(unix.SIGKILL) || !h.runtime.cgroups.oomKilled(h.spec.ID) {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
		defer cancel()
		if err := h.ref.Kill(ctx); err != nil {
			h.runtime.cfg.Log.Error("end a sandbox that ran out of memory", "sandbox", h.spec.ID, "error", err)
			return
		}
		<-h.done
		g.status = sandbox.Status{Code: -1, Err: sandbox.ErrGone}
	}()
	return g
}

// Done implements sandbox.Process.
func (g *guarded) Done() <-chan struct{} { return g.done }

// Status implements sandbox.Process.
func (g *guarded) Status() sandbox.Status {
	<-g.done
	return g.status
}

// OpenForWriting implements sandbox.Handle.
func (h *handle) OpenForWriting(ctx context.Context, dir string) ([]string, error) {
	return h.channel.OpenForWriting(ctx, dir)
}

// Hints implements sandbox.Handle.
func (h *handle) Hints() <-chan string { return h.channel.Hints() }

// Done implements sandbox.Handle.
func (h *handle) Done() <-chan struct{} { return h.done }

// Exit implements sandbox.Handle.
func (h *handle) Exit() sandbox.Exit { return h.exit }

// Detach implements sandbox.Handle.
func (h *handle) Detach() error {
	var err error
	h.closeOnce.Do(func() {
		close(h.detached)
		h.channel.Close(errors.New("the daemon let go of the sandbox"))
		err = h.pidfd.Close()
	})
	return err
}
