package pid1

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mediasandbox/runtime/guest"
	"mediasandbox/runtime/sandbox"
)

// table holds every process that the host has not told to forget.
type table struct {
	// cgroup holds the commands' own; it is set before the first.
	cgroup commandsGroup
	host   *Init

	// mu guards the maps. It is held across fork, so that the reaper knows
	// every child it reaps.
	mu    sync.Mutex
	procs map[string]*process
	pids  map[int]*process
	// adopted is set once there are children that no command owns.
	adopted bool
	warm    warmer
	// kits holds the one that was made ahead.
	kits chan *kit
	// born is signalled when a child exists for the reaper to wait for.
	born *sync.Cond
}

func newTable(host *Init) *table {
	t := &table{host: host, procs: make(map[string]*process), pids: make(map[int]*process), kits: make(chan *kit, 1)}
	t.born = sync.NewCond(&t.mu)
	return t
}

func (t *table) ids() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids := make([]string, 0, len(t.procs))
	for id := range t.procs {
		ids = append(ids, id)
	}
	return ids
}

func (t *table) get(id string) *process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.procs[id]
}

// reap waits for every child, adopted ones too, as PID 1 must.
func (t *table) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.ECHILD):
			t.awaitChild()
			continue
		}
		t.mu.Lock()
		p := t.pids[pid]
		delete(t.pids, pid)
		if p == nil {
			t.warm.died(pid)
		}
		t.mu.Unlock()
		if p != nil {
			p.ended(status)
		}
	}
}

func (t *table) awaitChild() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.pids) == 0 && !t.adopted {
		t.born.Wait()
	}
	t.adopted = false // until the next one is told of
}

// start begins a process. A repeated start of the same id is the host asking
// again after it lost the connection.
func (t *table) start(req guest.Start) {
	if t.get(req.Proc) != nil {
		t.resume(guest.Resume{Proc: req.Proc})
		return
	}
	p := newProcess(req.Proc, t.host)
	p.keep = req.Keep
	t.mu.Lock()
	t.procs[req.Proc] = p
	t.mu.Unlock()
	if err := t.spawn(p, req); err != nil {
		p.refuse(err)
	}
}

// startError is an exit code in the shell's convention: 127 when there is no
// such program, 126 when it can't be run.
type startError struct {
	code int
	err  error
}

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// spawn forks the main process into a cgroup of its own.
func (t *table) spawn(p *process, req guest.Start) error {
	for _, f := range req.Files {
		if err := writeFile(f); err != nil {
			return &startError{126, err}
		}
	}
	path, err := lookPath(req.Argv, req.Env, req.Dir)
	if err != nil {
		return &startError{refusal(err), err}
	}
	k, err := t.takeKit()
	if err != nil {
		return &startError{126, err}
	}
	p.cgroup = k.group
	files, err := p.descriptors(req, k)
	if err != nil {
		k.dir.Close()
		return &startError{126, err}
	}
	if coming := t.warm.late(); coming != nil && warmable(req) {
		// Frames are read meanwhile, those for this process too.
		go func() {
			select {
			case <-coming:
			case <-time.After(warmPatience):
			}
			if err := t.begin(p, path, req, k.dir, files); err != nil {
				p.refuse(err)
			}
		}()
		return nil
	}
	return t.begin(p, path, req, k.dir, files)
}

// begin makes the main process, and lets go of the descriptors it starts with.
func (t *table) begin(p *process, path string, req guest.Start, group *os.File, files []*os.File) error {
	defer group.Close()
	defer closeAll(files)
	started, err := t.startWarm(p, req, files)
	if err == nil && !started {
		err = t.fork(p, path, req, group, files)
	}
	if err != nil {
		return &startError{126, err}
	}
	p.follow(req.GraceMillis)
	return nil
}

// warmable tells whether the warm Python's child may become a command. It can't
// where its directory would fail it.
func warmable(req guest.Start) bool {
	return req.Warm && req.TTY == nil && executableDir(req.Dir) == nil
}

// fork starts the program as a new process.
func (t *table) fork(p *process, path string, req guest.Start, group *os.File, files []*os.File) error {
	attr := &syscall.ProcAttr{
		Dir:   req.Dir,
		Env:   req.Env,
		Files: []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: int(group.Fd()), Setctty: req.TTY != nil},
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	pid, err := syscall.ForkExec(path, req.Argv, attr)
	if err != nil {
		return fmt.Errorf("start %s in %s: %w", path, req.Dir, err)
	}
	p.began(pid)
	t.pids[pid] = p
	t.born.Signal()
	return nil
}

// startWarm lets the warm Python's child become the command. It reports false
// when there is none.
func (t *table) startWarm(p *process, req guest.Start, files []*os.File) (bool, error) {
	if !warmable(req) {
		return false, nil
	}
	t.mu.Lock()
	child := t.warm.take()
	if child == nil {
		t.mu.Unlock()
		return false, nil
	}
	t.pids[child.pid] = p
	t.mu.Unlock()
	if err := p.cgroup.move(child.pid); err != nil {
		return false, fmt.Errorf("move python to the command's cgroup: %w", err)
	}
	err := child.become(req, files)
	p.began(child.pid)
	return true, err
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func writeFile(f sandbox.File) error {
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", f.Path, err)
	}
	if err := os.WriteFile(f.Path, f.Data, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", f.Path, err)
	}
	return nil
}

func (t *table) resume(req guest.Resume) {
	p := t.get(req.Proc)
	if p == nil {
		// Not from this goroutine, which must go on reading.
		go func() { _ = t.host.sendJSON(guest.KindExited, guest.Exited{Proc: req.Proc, Unknown: true}) }()
		return
	}
	p.stdout.resume(req.Stdout)
	p.stderr.resume(req.Stderr)
	p.resumed()
}

func (t *table) pauseAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.procs {
		p.pause()
	}
}

func (t *table) signal(req guest.Signal) {
	if p := t.get(req.Proc); p != nil {
		p.signal(unix.Signal(req.Signal))
	}
}

func (t *table) resize(req guest.Resize) {
	if p := t.get(req.Proc); p != nil {
		p.resize(req.TTY)
	}
}

func (t *table) kill(req guest.ProcRef) {
	if p := t.get(req.Proc); p != nil {
		p.killAll()
	}
}

func (t *table) forget(req guest.ProcRef) {
	t.mu.Lock()
	p := t.procs[req.Proc]
	delete(t.procs, req.Proc)
	t.mu.Unlock()
	if p != nil {
		p.discard()
	}
}

func (t *table) ack(c guest.Chunk) {
	if p := t.get(c.Proc); p != nil {
		if s := p.stream(c.Stream); s != nil {
			s.ack(c.Offset)
		}
	}
}

func (t *table) stdin(c guest.Chunk) {
	if p := t.get(c.Proc); p != nil {
		p.input(c.Data)
	}
}
