package pid1

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mediasandbox/runtime/guest"
)

// process is one command: its main process and, through the cgroup, all its
// descendants.
type process struct {
	id             string
	host           *Init
	cgroup         commandGroup
	stdout, stderr *stream
	outR, errR     *os.File

	// main is closed when the main process has been reaped into status.
	main   chan struct{}
	status syscall.WaitStatus

	// tty is the host's end of the command's terminal, if it has one.
	tty *os.File

	// stdin is nil when the command has none.
	stdin *input

	// keep lets what the main process leaves behind go on.
	keep bool

	// mu guards the fields below.
	mu     sync.Mutex
	pid    int           // of the main process; 0 before it is there
	early  []unix.Signal // that came before it was there
	exited *guest.Exited
}

func newProcess(id string, host *Init) *process {
	return &process{
		id: id, host: host, main: make(chan struct{}),
		stdout: newStream(id, 1, host), stderr: newStream(id, 2, host),
	}
}

func (p *process) stream(id uint8) *stream {
	switch id {
	case 1:
		return p.stdout
	case 2:
		return p.stderr
	}
	return nil
}

// descriptors makes those that the child starts with, out of the kit or in
// place of what is in it.
func (p *process) descriptors(req guest.Start, k *kit) ([]*os.File, error) {
	if req.TTY != nil {
		k.closeReaders()
		closeAll(k.child)
		return p.terminal(*req.TTY)
	}
	if req.Stdin {
		r, w, err := os.Pipe()
		if err != nil {
			k.closeReaders()
			closeAll(k.child)
			return nil, fmt.Errorf("make stdin: %w", err)
		}
		k.child[0].Close()
		k.child[0], p.stdin = r, newInput(p.id, w, p.host)
	}
	p.outR, p.errR = k.outR, k.errR
	return k.child, nil
}

// follow carries the output and reports the end.
func (p *process) follow(graceMillis int64) {
	var filled sync.WaitGroup
	filled.Go(func() { p.stdout.fill(p.outR) })
	if p.errR != nil {
		filled.Go(func() { p.stderr.fill(p.errR) })
	} else {
		p.stderr.finish()
	}
	go p.stdout.send()
	go p.stderr.send()
	drained := make(chan struct{})
	go func() { filled.Wait(); close(drained) }()
	go p.finish(drained, time.Duration(graceMillis)*time.Millisecond)
}

// finish waits for the main process, gives what it left behind the grace time,
// ends that unless it is to be kept, and reports.
func (p *process) finish(drained <-chan struct{}, grace time.Duration) {
	<-p.main
	select {
	case <-drained:
	case <-time.After(grace):
	}
	e := guest.Exited{Proc: p.id, Code: p.status.ExitStatus(), Left: p.leftBehind(), PIDsRefused: p.cgroup.refused()}
	if p.keep && e.Left > 0 {
		p.letGo()
	} else {
		if e.Left > 0 {
			e.Broken = p.cgroup.writing(p.host.cfg.Outputs)
			p.killAll()
		}
		p.drain(drained, grace)
		p.closeOutput()
		defer p.cgroup.remove()
	}
	if p.status.Signaled() {
		e.Code, e.Signal = -1, int(p.status.Signal())
	}
	p.report(e)
	p.host.table.refill()
}

// leaving is how long processes that end with the main one may take to go
// before they count as left behind.
const leaving = 50 * time.Millisecond

// leftBehind counts the processes that the main one did not take along.
func (p *process) leftBehind() int {
	for end := time.Now().Add(leaving); ; time.Sleep(leaving / 10) {
		if n := p.cgroup.processes(); n == 0 || time.Now().After(end) {
			return n
		}
	}
}

// letGo ends the command's streams while processes that it left behind go on:
// they live as long as the sandbox.
func (p *process) letGo() {
	p.stdout.cut(p.outR)
	if p.errR != nil {
		p.stderr.cut(p.errR)
	}
}

// drain waits until the pipes are empty. Everything that could write is dead by
// now, unless it left the cgroup: such a process must not hold the command
// open. A host that is slow or away is waited for, so that no byte is lost.
func (p *process) drain(drained <-chan struct{}, grace time.Duration) {
	for {
		select {
		case <-drained:
			return
		case <-time.After(max(grace, 100*time.Millisecond)):
		}
		if !p.stdout.full() && !p.stderr.full() {
			p.closeOutput()
			<-drained
			return
		}
	}
}

func (p *process) closeOutput() {
	p.outR.Close()
	if p.errR != nil {
		p.errR.Close()
	}
}

// refuse reports a command that could not be started, as a shell would.
func (p *process) refuse(err error) {
	code := 126
	var se *startError
	if errors.As(err, &se) {
		code = se.code
	}
	refused := p.cgroup.refused()
	p.cgroup.remove()
	p.stderr.note("sandbox: " + err.Error() + "\n")
	p.stdout.finish()
	p.stderr.finish()
	go p.stdout.send()
	go p.stderr.send()
	go p.report(guest.Exited{Proc: p.id, Code: code, PIDsRefused: refused})
}

// report tells the host the end, after all output has arrived there.
func (p *process) report(e guest.Exited) {
	e.Stdout, e.Stderr = p.stdout.wait(), p.stderr.wait()
	p.mu.Lock()
	p.exited = &e
	p.mu.Unlock()
	p.tell(e)
}

// tell reports the end; what a lost connection swallows, resumed tells again.
func (p *process) tell(e guest.Exited) { _ = p.host.sendJSON(guest.KindExited, e) }

// resumed tells the end again to a host that may have missed it.
func (p *process) resumed() {
	p.mu.Lock()
	e := p.exited
	p.mu.Unlock()
	if e != nil {
		go p.tell(*e)
	}
}

func (p *process) ended(status syscall.WaitStatus) {
	p.status = status
	close(p.main)
}

func (p *process) pause() {
	p.stdout.pause()
	p.stderr.pause()
}

// discard frees what nobody will ask for again.
func (p *process) discard() {
	p.stdout.drop()
	p.stderr.drop()
	if p.stdin != nil {
		p.stdin.close()
	}
}

// began notes the main process, and passes on what came for it before.
func (p *process) began(pid int) {
	p.mu.Lock()
	p.pid = pid
	early := p.early
	p.early = nil
	p.mu.Unlock()
	for _, sig := range early {
		p.signal(sig)
	}
}

// maxEarly bounds the signals to a process that is not there yet: with more, the
// earlier ones are forgotten.
const maxEarly = 16

func (p *process) signal(sig unix.Signal) {
	select {
	case <-p.main:
		return
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 {
		if sig == unix.SIGKILL || len(p.early) == maxEarly {
			p.early = nil
		}
		p.early = append(p.early, sig)
		return
	}
	_ = unix.Kill(-p.pid, sig) // it may be ending this moment
}

// killAll ends every process of the command's cgroup. The guest may have removed
// that, or the main process is not there yet; then its process group is what is
// left to end.
func (p *process) killAll() {
	err := p.cgroup.kill()
	p.mu.Lock()
	begun := p.pid != 0
	p.mu.Unlock()
	if err != nil || !begun {
		p.signal(unix.SIGKILL)
	}
}

func (p *process) input(data []byte) {
	if p.stdin != nil {
		p.stdin.write(data)
	}
}
