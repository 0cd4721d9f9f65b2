package process

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"mediasandbox/runtime/gate/internal/handover"
	"mediasandbox/runtime/gate/policy"
)

// headSize is how much of a frame is looked at: enough for Ethernet, IPv4
// without options, and the longest TCP header, with room to spare.
const headSize = 128

// disposition is what becomes of a frame.
type disposition uint8

const (
	// drop is for what no host on a real network would answer either:
	// malformed, spoofed, or not for us.
	drop disposition = iota
	// deliver hands the frame to the stack.
	deliver
	// judge hands the frame to the stack if the policy allows its flow, and
	// answers it with a refusal otherwise.
	judge
	// refuse answers the frame with a refusal, whatever the policy says: the
	// stack has no way to carry it.
	refuse
)

// packet is what is known of a frame that was looked at.
type packet struct {
	what disposition
	// fault says why it is dropped, for the counters.
	fault string
	// network is the Ethernet type.
	network uint16
	// size is the length in bytes of the frame without its padding.
	size int
	flow policy.Flow
	// ip is the frame's head from its IPv4 header on.
	ip []byte
}

func dropped(why string) packet { return packet{what: drop, fault: why} }

// inspect looks at a frame from the guest. head is its first bytes, at most
// headSize; size is the length of the whole frame. Nothing in it is trusted.
func inspect(head []byte, size int) packet {
	if size < header.EthernetMinimumSize || size > header.EthernetMinimumSize+handover.MTU || len(head) < min(size, headSize) {
		return dropped("size")
	}
	dst := head[0:6]
	if dst[0]&1 == 0 && !bytes.Equal(dst, handover.GateMAC) {
		return dropped("mac")
	}
	switch binary.BigEndian.Uint16(head[12:14]) {
	case uint16(header.ARPProtocolNumber):
		return inspectARP(head[14:], size)
	case uint16(header.IPv4ProtocolNumber):
		return inspectIPv4(head[14:], size-14)
	}
	return dropped("ethertype")
}

// inspectARP lets the guest ask for the gate's address and nothing else.
func inspectARP(b []byte, size int) packet {
	if len(b) < header.ARPSize {
		return dropped("arp")
	}
	arp := header.ARP(b[:header.ARPSize])
	if !arp.IsValid() || arp.Op() != header.ARPRequest ||
		!bytes.Equal(arp.HardwareAddressSender(), handover.GuestMAC) ||
		!bytes.Equal(arp.ProtocolAddressSender(), handover.GuestAddr.AsSlice()) ||
		!bytes.Equal(arp.ProtocolAddressTarget(), handover.GateAddr.AsSlice()) {
		return dropped("arp")
	}
	return packet{what: deliver, network: uint16(header.ARPProtocolNumber), size: min(size, 14+header.ARPSize)}
}

func inspectIPv4(b []byte, size int) packet {
	if len(b) < header.IPv4MinimumSize || b[0] != 0x45 {
		// Options are refused with the rest: source routes live there, and
		// nothing a media job runs sends them.
		return dropped("ip-header")
	}
	ip := header.IPv4(b)
	total := int(ip.TotalLength())
	if total < header.IPv4MinimumSize || total > size || !ip.IsChecksumValid() {
		return dropped("ip-header")
	}
	if ip.SourceAddress().As4() != handover.GuestAddr.As4() {
		return dropped("spoofed")
	}
	p := packet{
		what:    judge,
		network: uint16(header.IPv4ProtocolNumber),
		size:    14 + total,
		ip:      b[:min(len(b), total)],
		flow:    policy.Flow{Protocol: policy.IP, Addr: netip.AddrFrom4(ip.DestinationAddress().As4())},
	}
	if ip.More() || ip.FragmentOffset() != 0 {
		return inspectFragment(p, ip)
	}
	switch ip.TransportProtocol() {
	case header.TCPProtocolNumber:
		return inspectTCP(p, total-header.IPv4MinimumSize)
	case header.UDPProtocolNumber:
		return inspectUDP(p, total-header.IPv4MinimumSize)
	case header.ICMPv4ProtocolNumber:
		return inspectICMP(p)
	}
	p.what = refuse
	return p
}

// inspectFragment lets fragments of TCP and UDP through to be put together by
// the stack, whose forwarders ask the policy then. A fragment has no ports to
// judge, but its address can be wrong already.
func inspectFragment(p packet, ip header.IPv4) packet {
	if t := ip.TransportProtocol(); t != header.TCPProtocolNumber && t != header.UDPProtocolNumber {
		return dropped("fragment")
	}
	if int(ip.FragmentOffset())+int(ip.TotalLength())-header.IPv4MinimumSize > header.UDPMaximumSize {
		return dropped("fragment")
	}
	if !routable(p.flow.Addr) {
		return dropped("fragment")
	}
	p.what = deliver
	return p
}

func inspectTCP(p packet, size int) packet {
	seg := header.TCP(p.ip[header.IPv4MinimumSize:])
	if len(seg) < header.TCPMinimumSize {
		return dropped("tcp-header")
	}
	if off := int(seg.DataOffset()); off < header.TCPMinimumSize || off > size || off > len(seg) {
		return dropped("tcp-header")
	}
	p.flow.Protocol, p.flow.Port = policy.TCP, seg.DestinationPort()
	switch flags := seg.Flags(); {
	case !routable(p.flow.Addr) || p.flow.Port == 0:
		p.what = refuse
	case flags.Contains(header.TCPFlagSyn) && !flags.Contains(header.TCPFlagAck):
		p.what = judge
	default:
		// Belongs to a flow that was judged, or the stack answers with RST.
		p.what = deliver
	}
	return p
}

func inspectUDP(p packet, size int) packet {
	dgram := header.UDP(p.ip[header.IPv4MinimumSize:])
	if len(dgram) < header.UDPMinimumSize {
		return dropped("udp-header")
	}
	if l := int(dgram.Length()); l < header.UDPMinimumSize || l > size {
		return dropped("udp-header")
	}
	p.flow.Protocol, p.flow.Port = policy.UDP, dgram.DestinationPort()
	if !routable(p.flow.Addr) || p.flow.Port == 0 {
		p.what = refuse
	}
	return p
}

// inspectICMP lets the guest ping the gate. Other echo requests are refused;
// the rest is dropped, errors above all, since an error must never be
// answered with an error.
func inspectICMP(p packet) packet {
	p.flow.Protocol = policy.ICMP
	icmp := header.ICMPv4(p.ip[header.IPv4MinimumSize:])
	if len(icmp) < header.ICMPv4MinimumSize || icmp.Type() != header.ICMPv4Echo || icmp.Code() != 0 {
		return dropped("icmp")
	}
	p.what = refuse
	if p.flow.Addr == handover.GateAddr {
		p.what = deliver
	}
	return p
}

// routable says whether the stack would take a packet to addr at all. What it
// drops without a word has to be answered before it gets there.
func routable(addr netip.Addr) bool {
	b := addr.As4()
	return b[0] != 0 && b[0] != 127 && b[0] < 224 && addr != handover.GuestAddr
}
