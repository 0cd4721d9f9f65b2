package process

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"mediasandbox/runtime/gate/policy"
)

// How long a UDP flow may be silent. One that was answered gets longer, as a
// conversation; a question to a DNS server is over soon.
const (
	udpIdle         = 30 * time.Second
	udpIdleAnswered = 120 * time.Second
	udpIdleDNS      = 10 * time.Second
)

const dnsPort = 53

// handleUDP deals with the first datagram of a flow. False makes the stack
// answer that the port is unreachable. It runs in the reader of the TAP, and
// so must not wait: connecting a UDP socket doesn't, and a name whose
// addresses no longer hold is resolved behind its back.
func (g *gate) handleUDP(r *udp.ForwarderRequest) bool {
	id := r.ID()
	f := flowOf(policy.UDP, id)
	if b, ok := g.book.find(f.Addr); ok && !b.fresh() {
		g.goWork(func() { g.refresh(g.ctx, b) })
	}
	targets, denied, rule := g.aim(nil, f)
	if len(targets) == 0 {
		g.refuse(denied, rule)
		return false
	}
	_, release, rule := g.take(policy.UDP)
	if rule != "" {
		g.refuse(targets[0].goal, rule)
		return false
	}
	conn, to, err := g.dialAny("udp", targets)
	if err != nil {
		release()
		return false
	}
	u := &udpFlow{
		gate: g, conn: conn.(*net.UDPConn), guestPort: id.RemotePort,
		remote: netip.AddrPortFrom(f.Addr, f.Port), gone: make(chan struct{}),
	}
	ep, terr := r.CreateEndpoint(&u.wq)
	if terr != nil {
		// The flow was not begun, so nothing is lost by closing its socket.
		_ = conn.Close()
		release()
		return false
	}
	u.ep = ep
	var ok bool
	if u.flow, ok = g.begin(to, u.abort); !ok {
		release()
		return true
	}
	g.goWork(func() {
		defer release()
		defer g.flows.remove(u.flow)
		u.run()
	})
	return true
}

// udpFlow joins the datagrams of one guest port to one far end.
type udpFlow struct {
	*flow
	gate      *gate
	ep        tcpip.Endpoint
	wq        waiter.Queue
	conn      *net.UDPConn
	guestPort uint16
	// remote is the far end as the guest calls it.
	remote netip.AddrPort

	// used is set by every datagram and cleared by the watch.
	used     atomic.Bool
	answered atomic.Bool

	once sync.Once
	gone chan struct{}
}

func (u *udpFlow) idle() time.Duration {
	switch {
	case u.remote.Port() == dnsPort:
		return udpIdleDNS
	case u.answered.Load():
		return udpIdleAnswered
	}
	return udpIdle
}

// run copies both ways until the flow has been silent for long enough.
func (u *udpFlow) run() {
	var both sync.WaitGroup
	both.Go(u.guestToHost)
	both.Go(u.hostToGuest)
	watchIdle(u.gone, &u.used, u.idle)
	u.abort()
	both.Wait()
	u.ep.Close()
}

// watchIdle returns when a whole period of idle went by in which used was not
// set, or when gone is closed. The period is asked for anew each time.
func watchIdle(gone <-chan struct{}, used *atomic.Bool, idle func() time.Duration) {
	timer := time.NewTimer(idle())
	defer timer.Stop()
	for {
		select {
		case <-gone:
			return
		case <-timer.C:
		}
		if !used.Swap(false) {
			return
		}
		timer.Reset(idle())
	}
}

func (u *udpFlow) abort() {
	u.once.Do(func() {
		close(u.gone)
		// Nobody is told when a UDP socket closes.
		_ = u.conn.Close()
	})
}

func (u *udpFlow) guestToHost() {
	defer u.abort()
	entry, ready := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventHUp | waiter.EventErr)
	u.wq.EventRegister(&entry)
	defer u.wq.EventUnregister(&entry)
	for {
		switch err := u.moveToHost(); err.(type) {
		case nil:
		case *tcpip.ErrWouldBlock:
			select {
			case <-ready:
			case <-u.gone:
				return
			}
		default:
			return
		}
	}
}

// moveToHost sends one datagram of the guest's on.
func (u *udpFlow) moveToHost() tcpip.Error {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	w := tcpip.SliceWriter(*buf)
	res, terr := u.ep.Read(&w, tcpip.ReadOptions{})
	if terr != nil {
		return terr
	}
	u.used.Store(true)
	if !u.gate.payNow(&u.sent, &u.gate.meter.sent, res.Count) {
		return nil // lost
	}
	_, err := u.conn.Write((*buf)[:res.Count])
	return u.hostError(err)
}

// hostToGuest hands the far end's datagrams to the guest.
func (u *udpFlow) hostToGuest() {
	defer u.abort()
	raw, err := u.conn.SyscallConn()
	if err != nil {
		return
	}
	for {
		buf, n, err := u.receive(raw)
		if err == nil {
			u.used.Store(true)
			u.answered.Store(true)
			u.toGuest((*buf)[:n])
		}
		if buf != nil {
			copyBuffers.Put(buf)
		}
		if u.hostError(err) != nil {
			return
		}
	}
}

// toGuest hands a datagram over. One that the guest has no room for is lost, as
// on a wire.
func (u *udpFlow) toGuest(b []byte) {
	if !u.gate.payNow(&u.received, &u.gate.meter.received, len(b)) {
		return
	}
	var r bytes.Reader
	r.Reset(b)
	_, _ = u.ep.Write(&r, tcpip.WriteOptions{})
}

// receive waits for a datagram, which may be empty, and takes a buffer only
// when there is one.
func (u *udpFlow) receive(raw syscall.RawConn) (buf *[]byte, n int, err error) {
	var errno error
	err = raw.Read(func(fd uintptr) bool {
		buf = copyBuffers.Get().(*[]byte)
		if n, errno = rawRead(fd, *buf); errno != unix.EAGAIN {
			return true
		}
		copyBuffers.Put(buf)
		buf = nil
		return false
	})
	return buf, n, errors.Join(err, errno)
}

// hostError passes on to the guest what the host's kernel learned about the
// far end. It returns nil when the flow can go on.
func (u *udpFlow) hostError(err error) tcpip.Error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ECONNREFUSED):
		u.gate.link.writeFrame(portUnreachable(u.guestPort, u.remote))
		return nil
	case errors.Is(err, unix.EMSGSIZE), errors.Is(err, unix.ENOBUFS),
		errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EPERM):
		return nil
	}
	return &tcpip.ErrAborted{}
}
