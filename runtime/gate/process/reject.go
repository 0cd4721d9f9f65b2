package process

import (
	"encoding/binary"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"mediasandbox/runtime/gate/internal/handover"
	"mediasandbox/runtime/gate/policy"
)

// quoted is how much of a refused packet an ICMP error carries: its IPv4
// header and eight bytes, which hold the ports.
const quoted = header.IPv4MinimumSize + 8

var (
	gateIP  = tcpip.AddrFrom4(handover.GateAddr.As4())
	guestIP = tcpip.AddrFrom4(handover.GuestAddr.As4())
)

// refusalFor returns the frame that tells the guest that p was refused, or nil
// when p must not be answered.
func refusalFor(p packet) []byte {
	switch p.flow.Protocol {
	case policy.TCP:
		return resetFor(p)
	case policy.UDP:
		return unreachable(p.ip, header.ICMPv4PortUnreachable)
	case policy.ICMP:
		return unreachable(p.ip, header.ICMPv4HostProhibited)
	}
	return unreachable(p.ip, header.ICMPv4ProtoUnreachable)
}

// newFrame returns a frame to the guest with its Ethernet and IPv4 headers
// filled in, and the part after them.
func newFrame(src tcpip.Address, proto tcpip.TransportProtocolNumber, payload int) (frame, rest []byte) {
	frame = make([]byte, header.EthernetMinimumSize+header.IPv4MinimumSize+payload)
	header.Ethernet(frame).Encode(&header.EthernetFields{
		SrcAddr: tcpip.LinkAddress(handover.GateMAC),
		DstAddr: tcpip.LinkAddress(handover.GuestMAC),
		Type:    header.IPv4ProtocolNumber,
	})
	ip := header.IPv4(frame[header.EthernetMinimumSize:])
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(header.IPv4MinimumSize + payload),
		TTL:         64,
		Protocol:    uint8(proto),
		SrcAddr:     src,
		DstAddr:     guestIP,
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	return frame, frame[header.EthernetMinimumSize+header.IPv4MinimumSize:]
}

// resetFor answers a TCP segment as a closed port would (RFC 9293, 3.10.7.1).
// No stack takes a segment that says it comes from a broadcast address, so for
// what is no host's address the answer is an ICMP error, which ends a connect
// just as soon.
func resetFor(p packet) []byte {
	seg := header.TCP(p.ip[header.IPv4MinimumSize:])
	flags := seg.Flags()
	if flags.Contains(header.TCPFlagRst) {
		return nil
	}
	if !routable(p.flow.Addr) {
		return unreachable(p.ip, header.ICMPv4PortUnreachable)
	}
	fields := header.TCPFields{
		SrcPort:    seg.DestinationPort(),
		DstPort:    seg.SourcePort(),
		DataOffset: header.TCPMinimumSize,
		Flags:      header.TCPFlagRst,
	}
	if flags.Contains(header.TCPFlagAck) {
		fields.SeqNum = seg.AckNumber()
	} else {
		length := uint32(p.size - 14 - header.IPv4MinimumSize - int(seg.DataOffset()))
		if flags.Contains(header.TCPFlagSyn) {
			length++
		}
		if flags.Contains(header.TCPFlagFin) {
			length++
		}
		fields.AckNum = seg.SequenceNumber() + length
		fields.Flags |= header.TCPFlagAck
	}
	src := tcpip.AddrFrom4(p.flow.Addr.As4())
	frame, rest := newFrame(src, header.TCPProtocolNumber, header.TCPMinimumSize)
	tcp := header.TCP(rest)
	tcp.Encode(&fields)
	sum := header.PseudoHeaderChecksum(header.TCPProtocolNumber, src, guestIP, header.TCPMinimumSize)
	tcp.SetChecksum(^tcp.CalculateChecksum(sum))
	return frame
}

// unreachable returns an ICMP error from the gate about a packet of the
// guest's, of which ip is the beginning.
func unreachable(ip []byte, code header.ICMPv4Code) []byte {
	if len(ip) > quoted {
		ip = ip[:quoted]
	}
	frame, rest := newFrame(gateIP, header.ICMPv4ProtocolNumber, header.ICMPv4MinimumSize+len(ip))
	icmp := header.ICMPv4(rest)
	icmp.SetType(header.ICMPv4DstUnreachable)
	icmp.SetCode(code)
	copy(rest[header.ICMPv4MinimumSize:], ip)
	icmp.SetChecksum(^checksum.Checksum(rest, 0))
	return frame
}

// portUnreachable returns the ICMP error for a datagram that is gone already:
// its headers are made up from the flow's ports. It relays what the host's
// kernel learned about the flow's far end.
func portUnreachable(guestPort uint16, remote netip.AddrPort) []byte {
	var b [quoted]byte
	ip := header.IPv4(b[:])
	ip.Encode(&header.IPv4Fields{
		TotalLength: quoted,
		TTL:         64,
		Protocol:    uint8(header.UDPProtocolNumber),
		SrcAddr:     guestIP,
		DstAddr:     tcpip.AddrFrom4(remote.Addr().As4()),
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	binary.BigEndian.PutUint16(b[20:], guestPort)
	binary.BigEndian.PutUint16(b[22:], remote.Port())
	binary.BigEndian.PutUint16(b[24:], header.UDPMinimumSize)
	return unreachable(b[:], header.ICMPv4PortUnreachable)
}
