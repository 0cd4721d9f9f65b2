package process

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"mediasandbox/runtime/gate/policy"
)

// copySize is the buffer of one direction of a busy TCP flow. An idle flow
// holds none.
const copySize = 2 * fullFrame

// fullFrame is how much the stack puts into one frame, in bytes: the longest
// that the link takes, less what the stack keeps free for headers. Pieces of
// other sizes would leave a small frame behind the large ones.
const fullFrame = gsoMax - header.TCPTotalHeaderMaximumSize - 1

var copyBuffers = sync.Pool{New: func() any { b := make([]byte, copySize); return &b }}

// errReset ends a flow that either end cut off.
var errReset = errors.New("connection reset")

func flowOf(proto policy.Protocol, id stack.TransportEndpointID) policy.Flow {
	return policy.Flow{Protocol: proto, Addr: netip.AddrFrom4(id.LocalAddress.As4()), Port: id.LocalPort}
}

// handleTCP deals with one SYN of the guest, in a goroutine of its own. The far
// end is dialled before the guest is answered, so that the guest learns of a
// refusal from its own connect and not from a connection that dies.
func (g *gate) handleTCP(r *tcp.ForwarderRequest) {
	f := flowOf(policy.TCP, r.ID())
	targets, denied, rule := g.aim(g.ctx, f)
	if len(targets) == 0 {
		g.refuse(denied, rule)
		r.Complete(true)
		return
	}
	others, release, rule := g.take(policy.TCP)
	if rule != "" {
		g.refuse(targets[0].goal, rule)
		r.Complete(true)
		return
	}
	defer release()
	conn, to, err := g.dialAny("tcp", targets)
	if err != nil {
		// Silence where the far end was silent: the guest's own timeout, and
		// its own retransmissions, mean what they mean on a host.
		r.Complete(!isTimeout(err))
		return
	}
	t := &tcpFlow{gate: g, conn: conn.(*net.TCPConn), size: bufferFor(others)}
	ep, terr := r.CreateEndpoint(&t.wq)
	r.Complete(terr != nil)
	if terr != nil {
		abortConn(t.conn)
		return
	}
	t.ep = ep
	t.ctx, t.end = context.WithCancel(g.ctx)
	var ok bool
	if t.flow, ok = g.begin(to, t.abort); !ok {
		return
	}
	defer g.flows.remove(t.flow)
	t.run()
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, unix.ETIMEDOUT) || errors.As(err, &ne) && ne.Timeout()
}

// tcpFlow joins the guest's connection, which ends in the stack, and the
// host's.
type tcpFlow struct {
	*flow
	gate *gate
	ep   tcpip.Endpoint
	wq   waiter.Queue
	conn *net.TCPConn
	size int

	once sync.Once
	ctx  context.Context
	end  context.CancelFunc
}

// Keep-alives find far ends that vanished without a word. Neither a guest nor
// a person notices the traffic.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 2 * time.Minute, Interval: 30 * time.Second, Count: 4}

// run copies both ways until both ends are done, or one is cut off.
func (t *tcpFlow) run() {
	defer t.end()
	so := t.ep.SocketOptions()
	so.SetReceiveBufferSize(int64(t.size), true)
	so.SetSendBufferSize(int64(t.size), true)
	so.SetDelayOption(false)
	if err := t.conn.SetKeepAliveConfig(keepAlive); err != nil {
		t.abort()
		return
	}
	done := make(chan error, 2)
	go func() { done <- t.guestToHost() }()
	go func() { done <- t.hostToGuest() }()
	for range 2 {
		if err := <-done; err != nil {
			t.abort()
		}
	}
	t.ep.Close()
	// Both directions were shut down, or the connection was aborted: closing
	// frees the descriptor and can tell nobody anything.
	_ = t.conn.Close()
}

// abort resets both ends.
func (t *tcpFlow) abort() {
	t.once.Do(func() {
		t.end()
		abortConn(t.conn)
		t.ep.Abort()
	})
}

// abortConn closes so that the far end sees a reset.
func abortConn(c *net.TCPConn) {
	// Either call fails only on a connection that is closed already.
	_ = c.SetLinger(0)
	_ = c.Close()
}

// wait waits for the guest's end to change.
func (t *tcpFlow) wait(changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-t.ctx.Done():
		return errReset
	}
}

// guestToHost copies until the guest shuts its side down, and passes that on.
func (t *tcpFlow) guestToHost() error {
	raw, err := t.conn.SyscallConn()
	if err != nil {
		return err
	}
	entry, ready := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventHUp | waiter.EventErr)
	t.wq.EventRegister(&entry)
	defer t.wq.EventUnregister(&entry)
	for {
		if t.ep.Readiness(waiter.ReadableEvents|waiter.EventHUp|waiter.EventErr) == 0 {
			if err := t.wait(ready); err != nil {
				return err
			}
			continue
		}
		end, err := t.moveToHost(raw, ready)
		if err != nil {
			return err
		}
		if end {
			return t.conn.CloseWrite()
		}
	}
}

// moveToHost moves what can be had from the guest at once.
func (t *tcpFlow) moveToHost(raw syscall.RawConn, ready <-chan struct{}) (end bool, err error) {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	w := tcpip.SliceWriter(*buf)
	res, terr := t.ep.Read(&w, tcpip.ReadOptions{})
	switch terr.(type) {
	case nil:
	case *tcpip.ErrWouldBlock:
		return false, t.wait(ready)
	case *tcpip.ErrClosedForReceive:
		return true, nil
	default:
		return false, errReset
	}
	if err := t.gate.pay(t.ctx, &t.sent, &t.gate.meter.sent, res.Count); err != nil {
		return false, err
	}
	return false, writeAll(raw.Write, (*buf)[:res.Count])
}

// writeAll writes b, as there is room.
func writeAll(write func(func(uintptr) bool) error, b []byte) error {
	var errno error
	err := write(func(fd uintptr) bool {
		for len(b) > 0 {
			n, err := rawWrite(fd, b)
			if err == unix.EAGAIN {
				return false
			}
			if errno = err; err != nil {
				return true
			}
			b = b[n:]
		}
		return true
	})
	if err == nil && errno != nil {
		err = os.NewSyscallError("write", errno)
	}
	return err
}

// hostToGuest copies until the far end shuts its side down, and passes that on.
func (t *tcpFlow) hostToGuest() error {
	raw, err := t.conn.SyscallConn()
	if err != nil {
		return err
	}
	entry, writable := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventHUp | waiter.EventErr)
	t.wq.EventRegister(&entry)
	defer t.wq.EventUnregister(&entry)
	for {
		buf, n, err := readWhenReady(raw.Read)
		if err == nil && n > 0 {
			err = t.gate.pay(t.ctx, &t.received, &t.gate.meter.received, n)
		}
		if err == nil && n > 0 {
			err = t.writeToGuest((*buf)[:n], writable)
		}
		if buf != nil {
			copyBuffers.Put(buf)
		}
		switch {
		case errors.Is(err, io.EOF):
			if terr := t.ep.Shutdown(tcpip.ShutdownWrite); terr != nil {
				return errReset
			}
			return nil
		case err != nil:
			return err
		}
	}
}

// readWhenReady reads once there is something to read, and takes a buffer only
// then. The caller returns the buffer to copyBuffers.
func readWhenReady(read func(func(uintptr) bool) error) (buf *[]byte, n int, err error) {
	var errno error
	err = read(func(fd uintptr) bool {
		if buf == nil {
			buf = copyBuffers.Get().(*[]byte)
		}
		if n, errno = rawRead(fd, *buf); errno != unix.EAGAIN {
			return true
		}
		copyBuffers.Put(buf)
		buf = nil
		return false
	})
	switch {
	case err != nil:
		return buf, 0, err
	case errno != nil:
		return buf, 0, os.NewSyscallError("read", errno)
	case n == 0:
		return buf, 0, io.EOF
	}
	return buf, n, nil
}

func (t *tcpFlow) writeToGuest(b []byte, writable <-chan struct{}) error {
	var r bytes.Reader
	r.Reset(b)
	for r.Len() > 0 {
		_, terr := t.ep.Write(&r, tcpip.WriteOptions{})
		switch terr.(type) {
		case nil:
		case *tcpip.ErrWouldBlock:
			if err := t.wait(writable); err != nil {
				return err
			}
		default:
			return errReset
		}
	}
	return nil
}
