package process

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"mediasandbox/runtime/gate/internal/handover"
)

// Sizes of the views that a frame is read into. The head is small so that the
// stack's pull-ups of headers copy little; a body below copyBelow moves to a
// view of its own size, so that a queue of small segments does not pin a
// 64 KB chunk for each.
const (
	bodySize  = 64 << 10
	copyBelow = 16 << 10
)

// gsoMax is the longest packet that the kernel is handed at once, in bytes.
const gsoMax = 65535

// tapEndpoint is the stack's end of the TAP. gVisor's own fdbased endpoint
// does segmentation offload on sockets only, and ends its read loop at the
// first frame with a foreign unicast address.
type tapEndpoint struct {
	file *os.File
	// sift decides about a frame and returns what is to be answered.
	sift func(packet) (ok bool, answer []byte)

	reading sync.WaitGroup

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher
	mtu        uint32
}

var (
	_ stack.LinkEndpoint = (*tapEndpoint)(nil)
	_ stack.GSOEndpoint  = (*tapEndpoint)(nil)
)

func newTapEndpoint(file *os.File, sift func(packet) (bool, []byte)) *tapEndpoint {
	return &tapEndpoint{file: file, sift: sift, mtu: handover.MTU}
}

// run reads frames until the TAP fails or the file is closed.
func (e *tapEndpoint) run() error {
	raw, err := e.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("read the TAP: %w", err)
	}
	var vnet [handover.VnetHdrLen]byte
	var head, body *buffer.View
	defer func() {
		for _, v := range []*buffer.View{head, body} {
			if v != nil {
				v.Release()
			}
		}
	}()
	for {
		if head == nil {
			head = buffer.NewViewSize(headSize)
		}
		if body == nil {
			body = buffer.NewViewSize(bodySize)
		}
		var n int
		var errno error
		err := raw.Read(func(fd uintptr) bool {
			n, errno = rawReadv(fd, vnet[:], head.AsSlice(), body.AsSlice())
			return errno != unix.EAGAIN
		})
		switch {
		case errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("read the TAP: %w", err)
		case errno != nil:
			return fmt.Errorf("read the TAP: %w", errno)
		}
		if n -= handover.VnetHdrLen; n <= 0 {
			continue
		}
		head, body = e.take(head, body, n)
	}
}

// take deals with one frame of n bytes in head and body. It returns the views
// that it did not keep.
func (e *tapEndpoint) take(head, body *buffer.View, n int) (h, b *buffer.View) {
	p := inspect(head.AsSlice()[:min(n, headSize)], n)
	ok, answer := e.sift(p)
	if answer != nil {
		e.writeFrame(answer)
	}
	if !ok {
		return head, body
	}
	var payload buffer.Buffer
	head.CapLength(min(p.size, headSize))
	rest := p.size - headSize
	// The views change hands here: Append keeps what it is given.
	if err := payload.Append(head); err != nil {
		return nil, body
	}
	switch {
	case rest <= 0:
	case rest < copyBelow:
		if err := payload.Append(buffer.NewViewWithData(body.AsSlice()[:rest])); err != nil {
			payload.Release()
			return nil, body
		}
	default:
		body.CapLength(rest)
		if err := payload.Append(body); err != nil {
			payload.Release()
			return nil, nil
		}
		body = nil
	}
	e.deliver(p, payload)
	return nil, body
}

func (e *tapEndpoint) deliver(p packet, payload buffer.Buffer) {
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: payload})
	defer pkt.DecRef()
	if !e.ParseHeader(pkt) {
		return
	}
	e.mu.RLock()
	d := e.dispatcher
	e.mu.RUnlock()
	if d != nil {
		d.DeliverNetworkPacket(pkt.NetworkProtocolNumber, pkt)
	}
}

// writeFrame sends a frame that is complete, checksums and all.
func (e *tapEndpoint) writeFrame(frame []byte) {
	var vnet [handover.VnetHdrLen]byte
	// A frame the kernel does not take is a frame lost on a wire.
	_ = e.writev([][]byte{vnet[:], frame})
}

func (e *tapEndpoint) writev(iov [][]byte) tcpip.Error {
	raw, err := e.file.SyscallConn()
	if err != nil {
		return &tcpip.ErrClosedForSend{}
	}
	var errno error
	// Control and not Write: a TAP takes a frame at once or never, and many
	// senders must not queue for one descriptor's write lock.
	if err := raw.Control(func(fd uintptr) { _, errno = rawWritev(fd, iov) }); err != nil {
		return &tcpip.ErrClosedForSend{}
	}
	if en, ok := errno.(syscall.Errno); ok && en != 0 {
		return tcpip.TranslateErrno(en)
	}
	return nil
}

// vnetHeader describes a packet's checksum and segmentation to the kernel
// (struct virtio_net_hdr, little-endian).
func vnetHeader(pkt *stack.PacketBuffer) (h [handover.VnetHdrLen]byte) {
	const needsCsum, gsoTCPv4 = 1, 1
	gso := &pkt.GSOOptions
	if gso.Type == stack.GSONone {
		return h
	}
	put := func(at int, v uint16) { h[at], h[at+1] = byte(v), byte(v>>8) }
	put(2, uint16(pkt.HeaderSize()))
	if gso.NeedsCsum {
		h[0] = needsCsum
		put(6, header.EthernetMinimumSize+gso.L3HdrLen)
		put(8, gso.CsumOffset)
	}
	if gso.Type == stack.GSOTCPv4 && pkt.Data().Size() > int(gso.MSS) {
		h[1] = gsoTCPv4
		put(4, gso.MSS)
	}
	return h
}

// WritePackets implements stack.LinkWriter.
func (e *tapEndpoint) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	n := 0
	for _, pkt := range pkts.AsSlice() {
		vnet := vnetHeader(pkt)
		var space [8][]byte
		iov := append(space[:0], vnet[:])
		iov = append(iov, pkt.AsSlices()...)
		if err := e.writev(iov); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// GSOMaxSize implements stack.GSOEndpoint.
func (e *tapEndpoint) GSOMaxSize() uint32 { return gsoMax }

// SupportedGSO implements stack.GSOEndpoint.
func (e *tapEndpoint) SupportedGSO() stack.SupportedGSO { return stack.HostGSOSupported }

// MTU implements stack.LinkEndpoint.
func (e *tapEndpoint) MTU() uint32 {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.mtu
}

// SetMTU implements stack.LinkEndpoint.
func (e *tapEndpoint) SetMTU(mtu uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mtu = mtu
}

// MaxHeaderLength implements stack.LinkEndpoint.
func (e *tapEndpoint) MaxHeaderLength() uint16 { return header.EthernetMinimumSize }

// LinkAddress implements stack.LinkEndpoint.
func (e *tapEndpoint) LinkAddress() tcpip.LinkAddress { return tcpip.LinkAddress(handover.GateMAC) }

// SetLinkAddress implements stack.LinkEndpoint. The address is fixed.
func (e *tapEndpoint) SetLinkAddress(tcpip.LinkAddress) {}

// Capabilities implements stack.LinkEndpoint. The TAP is memory, not a wire:
// checksums of what the kernel hands over need no second look.
func (e *tapEndpoint) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload | stack.CapabilityResolutionRequired
}

// Attach implements stack.LinkEndpoint.
func (e *tapEndpoint) Attach(d stack.NetworkDispatcher) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dispatcher = d
}

// IsAttached implements stack.LinkEndpoint.
func (e *tapEndpoint) IsAttached() bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.dispatcher != nil
}

// Wait implements stack.LinkEndpoint.
func (e *tapEndpoint) Wait() { e.reading.Wait() }

// ARPHardwareType implements stack.LinkEndpoint.
func (e *tapEndpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

// AddHeader implements stack.LinkEndpoint.
func (e *tapEndpoint) AddHeader(pkt *stack.PacketBuffer) {
	header.Ethernet(pkt.LinkHeader().Push(header.EthernetMinimumSize)).Encode(&header.EthernetFields{
		SrcAddr: tcpip.LinkAddress(handover.GateMAC),
		DstAddr: pkt.EgressRoute.RemoteLinkAddress,
		Type:    pkt.NetworkProtocolNumber,
	})
}

// ParseHeader implements stack.LinkEndpoint.
func (e *tapEndpoint) ParseHeader(pkt *stack.PacketBuffer) bool {
	b, ok := pkt.LinkHeader().Consume(header.EthernetMinimumSize)
	if !ok {
		return false
	}
	pkt.NetworkProtocolNumber = header.Ethernet(b).Type()
	return true
}

// Close implements stack.LinkEndpoint. The file belongs to whoever opened it.
func (e *tapEndpoint) Close() {}

// SetOnCloseAction implements stack.LinkEndpoint.
func (e *tapEndpoint) SetOnCloseAction(func()) {}
