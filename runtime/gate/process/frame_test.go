package process

import (
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"log/slog"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"mediasandbox/runtime/gate/internal/handover"
	"mediasandbox/runtime/gate/policy"
	"mediasandbox/runtime/sandbox"
)

// frameTo returns an Ethernet frame from the guest with an IPv4 packet in it.
func frameTo(dst string, proto tcpip.TransportProtocolNumber, l4 []byte) []byte {
	b := make([]byte, header.EthernetMinimumSize+header.IPv4MinimumSize+len(l4))
	header.Ethernet(b).Encode(&header.EthernetFields{
		SrcAddr: tcpip.LinkAddress(handover.GuestMAC), DstAddr: tcpip.LinkAddress(handover.GateMAC), Type: header.IPv4ProtocolNumber,
	})
	header.IPv4(b[14:]).Encode(&header.IPv4Fields{
		TotalLength: uint16(len(b) - 14), TTL: 64, Protocol: uint8(proto), SrcAddr: guestIP,
		DstAddr: tcpip.AddrFrom4(netip.MustParseAddr(dst).As4()),
	})
	copy(b[34:], l4)
	return fixed(b)
}

// fixed puts the IPv4 checksum right.
func fixed(frame []byte) []byte {
	ip := header.IPv4(frame[14:])
	ip.SetChecksum(0)
	ip.SetChecksum(^ip.CalculateChecksum())
	return frame
}

func change(frame []byte, f func(b []byte)) []byte {
	f(frame)
	return fixed(frame)
}

func tcpSegment(port uint16, flags header.TCPFlags, payload string) []byte {
	b := make([]byte, header.TCPMinimumSize+len(payload))
	header.TCP(b).Encode(&header.TCPFields{
		SrcPort: 40000, DstPort: port, SeqNum: 1000, AckNum: 77, DataOffset: header.TCPMinimumSize, Flags: flags, WindowSize: 65535,
	})
	copy(b[header.TCPMinimumSize:], payload)
	return b
}

func datagram(port uint16, payload string) []byte {
	b := make([]byte, header.UDPMinimumSize+len(payload))
	header.UDP(b).Encode(&header.UDPFields{SrcPort: 40000, DstPort: port, Length: uint16(len(b))})
	copy(b[header.UDPMinimumSize:], payload)
	return b
}

func echoRequest() []byte { return []byte{8, 0, 0xf7, 0xfd, 0, 1, 0, 1} }

func arpRequest(sender, target netip.Addr) []byte {
	b := make([]byte, header.EthernetMinimumSize+header.ARPSize)
	header.Ethernet(b).Encode(&header.EthernetFields{
		SrcAddr: tcpip.LinkAddress(handover.GuestMAC), DstAddr: header.EthernetBroadcastAddress, Type: header.ARPProtocolNumber,
	})
	a := header.ARP(b[14:])
	a.SetIPv4OverEthernet()
	a.SetOp(header.ARPRequest)
	copy(a.HardwareAddressSender(), handover.GuestMAC)
	copy(a.ProtocolAddressSender(), sender.AsSlice())
	copy(a.ProtocolAddressTarget(), target.AsSlice())
	return b
}

const (
	syn = header.TCPFlagSyn
	ack = header.TCPFlagAck
)

func TestInspect(t *testing.T) {
	const web = "1.1.1.1"
	gate := handover.GateAddr
	for _, c := range []struct {
		name  string
		frame []byte
		want  disposition
		fault string
	}{
		{"syn", frameTo(web, header.TCPProtocolNumber, tcpSegment(80, syn, "")), judge, ""},
		{"syn-ack", frameTo(web, header.TCPProtocolNumber, tcpSegment(80, syn|ack, "")), deliver, ""},
		{"data", frameTo(web, header.TCPProtocolNumber, tcpSegment(80, ack, "x")), deliver, ""},
		{"datagram", frameTo(web, header.UDPProtocolNumber, datagram(80, "x")), judge, ""},
		{"arp for the gate", arpRequest(handover.GuestAddr, gate), deliver, ""},
		{"ping the gate", frameTo(gate.String(), header.ICMPv4ProtocolNumber, echoRequest()), deliver, ""},
		{"padding", append(frameTo(web, header.UDPProtocolNumber, datagram(80, "x")), make([]byte, 20)...), judge, ""},
		{"first fragment", change(frameTo(web, header.UDPProtocolNumber, datagram(80, "x")), func(b []byte) { b[20] |= 0x20 }), deliver, ""},

		{"ping", frameTo(web, header.ICMPv4ProtocolNumber, echoRequest()), refuse, ""},
		{"gre", frameTo(web, 47, make([]byte, 8)), refuse, ""},
		{"syn to broadcast", frameTo("255.255.255.255", header.TCPProtocolNumber, tcpSegment(80, syn, "")), refuse, ""},
		{"data to multicast", frameTo("224.0.0.1", header.TCPProtocolNumber, tcpSegment(80, ack, "")), refuse, ""},
		{"datagram to loopback", frameTo("127.0.0.1", header.UDPProtocolNumber, datagram(80, "")), refuse, ""},
		{"datagram to itself", frameTo(handover.GuestAddr.String(), header.UDPProtocolNumber, datagram(80, "")), refuse, ""},
		{"port 0", frameTo(web, header.TCPProtocolNumber, tcpSegment(0, syn, "")), refuse, ""},

		{"nothing", nil, drop, "size"},
		{"half an Ethernet header", make([]byte, 13), drop, "size"},
		{"foreign address", change(frameTo(web, header.TCPProtocolNumber, tcpSegment(80, syn, "")), func(b []byte) { b[0] = 4 }), drop, "mac"},
		{"ipv6", change(frameTo(web, header.TCPProtocolNumber, tcpSegment(80, syn, "")), func(b []byte) { b[12], b[13] = 0x86, 0xdd }), drop, "ethertype"},
		{"vlan", change(frameTo(web, header.TCPProtocolNumber, tcpSegment(80, syn, "")), func(b []byte) { b[12], b[13] = 0x81, 0 }), drop, "ethertype"},
		{"arp for another", arpRequest(handover.GuestAddr, netip.MustParseAddr("10.0.0.1")), drop, "arp"},
		{"arp as another", arpRequest(netip.MustParseAddr("10.0.0.1"), gate), drop, "arp"},
		{"arp as the gate", arpRequest(gate, gate), drop, "arp"},
		{"arp cut off", arpRequest(handover.GuestAddr, gate)[:30], drop, "arp"},
		{"spoofed", change(frameTo(web, header.TCPProtocolNumber, tcpSegment(80, syn, "")), func(b []byte) { b[29] = 99 }), drop, "spoofed"},
		{"as the gate", change(frameTo(web, header.TCPProtocolNumber, tcpSegment(80, syn, "")), func(b []byte) { b[29] = 2 }), drop, "spoofed"},
		{"options", change(frameTo(web, header.TCPProtocolNumber, tcpSegment(80, syn, "")), func(b []byte) { b[14] = 0x46 }), drop, "ip-header"},
		{"version 6", change(frameTo(web, header.TCPProtocolNumber, tcpSegment(80, syn, "")), func(b []byte) { b[14] = 0x65 }), drop, "ip-header"},
		{"longer than the frame", change(frameTo(web, header.UDPProtocolNumber, datagram(80, "")), func(b []byte) { b[17]++ }), drop, "ip-header"},
		{"shorter than its header", change(frameTo(web, header.UDPProtocolNumber, datagram(80, "")), func(b []byte) { b[17] = 19 }), drop, "ip-header"},
		{"wrong checksum", func() []byte {
			b := frameTo(web, header.UDPProtocolNumber, datagram(80, ""))
			b[24]++
			return b
		}(), drop, "ip-header"},
		{"tcp cut off", frameTo(web, header.TCPProtocolNumber, tcpSegment(80, syn, "")[:19]), drop, "tcp-header"},
		{"tcp offset too far", change(frameTo(web, header.TCPProtocolNumber, tcpSegment(80, syn, "")), func(b []byte) { b[46] = 0xf0 }), drop, "tcp-header"},
		{"tcp offset too near", change(frameTo(web, header.TCPProtocolNumber, tcpSegment(80, syn, "")), func(b []byte) { b[46] = 0x40 }), drop, "tcp-header"},
		{"udp cut off", frameTo(web, header.UDPProtocolNumber, datagram(80, "")[:7]), drop, "udp-header"},
		{"udp too long", change(frameTo(web, header.UDPProtocolNumber, datagram(80, "")), func(b []byte) { b[39]++ }), drop, "udp-header"},
		{"fragment of icmp", change(frameTo(web, header.ICMPv4ProtocolNumber, echoRequest()), func(b []byte) { b[20] |= 0x20 }), drop, "fragment"},
		{"fragment past the end", change(frameTo(web, header.UDPProtocolNumber, datagram(80, "")), func(b []byte) { b[20], b[21] = 0x1f, 0xff }), drop, "fragment"},
		{"fragment to multicast", change(frameTo("224.0.0.1", header.UDPProtocolNumber, datagram(80, "")), func(b []byte) { b[20] |= 0x20 }), drop, "fragment"},
		{"icmp error", frameTo(web, header.ICMPv4ProtocolNumber, []byte{3, 3, 0, 0, 0, 0, 0, 0}), drop, "icmp"},
		{"icmp redirect to the gate", frameTo(gate.String(), header.ICMPv4ProtocolNumber, []byte{5, 0, 0, 0, 0, 0, 0, 0}), drop, "icmp"},
	} {
		p := inspect(c.frame[:min(len(c.frame), headSize)], len(c.frame))
		if p.what != c.want || p.fault != c.fault {
			t.Errorf("%s: %d %q, want %d %q", c.name, p.what, p.fault, c.want, c.fault)
		}
		if p.what != drop && p.size > len(c.frame) {
			t.Errorf("%s: size %d of a frame of %d", c.name, p.size, len(c.frame))
		}
	}
}

// TestRefusals looks at the frames that say no.
func TestRefusals(t *testing.T) {
	look := func(frame []byte) (packet, header.IPv4) {
		p := inspect(frame, len(frame))
		answer := refusalFor(p)
		if answer == nil {
			return p, nil
		}
		ip := header.IPv4(answer[14:])
		if !ip.IsValid(len(answer)-14) || !ip.IsChecksumValid() || ip.DestinationAddress() != guestIP {
			t.Fatalf("the answer is no packet to the guest: %x", answer)
		}
		return p, ip
	}
	_, ip := look(frameTo("1.1.1.1", header.TCPProtocolNumber, tcpSegment(80, syn, "xyz")))
	seg := header.TCP(ip.Payload())
	if seg.Flags() != header.TCPFlagRst|ack || seg.AckNumber() != 1004 || seg.SequenceNumber() != 0 || seg.SourcePort() != 80 || seg.DestinationPort() != 40000 {
		t.Errorf("reset of a SYN: %+v", seg)
	}
	if !seg.IsChecksumValid(ip.SourceAddress(), guestIP, 0, 0) {
		t.Error("reset of a SYN: wrong checksum")
	}
	_, ip = look(frameTo("1.1.1.1", header.TCPProtocolNumber, tcpSegment(80, ack, "")))
	if seg := header.TCP(ip.Payload()); seg.Flags() != header.TCPFlagRst || seg.SequenceNumber() != 77 {
		t.Errorf("reset of an ACK: %+v", seg)
	}
	if _, ip = look(frameTo("1.1.1.1", header.TCPProtocolNumber, tcpSegment(80, header.TCPFlagRst, ""))); ip != nil {
		t.Error("a reset is answered")
	}
	for _, c := range []struct {
		name  string
		frame []byte
		code  header.ICMPv4Code
	}{
		{"datagram", frameTo("10.0.0.1", header.UDPProtocolNumber, datagram(80, "long enough to be cut")), header.ICMPv4PortUnreachable},
		{"syn to multicast", frameTo("224.0.0.1", header.TCPProtocolNumber, tcpSegment(80, syn, "")), header.ICMPv4PortUnreachable},
		{"ping", frameTo("10.0.0.1", header.ICMPv4ProtocolNumber, echoRequest()), header.ICMPv4HostProhibited},
		{"gre", frameTo("10.0.0.1", 47, make([]byte, 8)), header.ICMPv4ProtoUnreachable},
	} {
		p, ip := look(c.frame)
		icmp := header.ICMPv4(ip.Payload())
		if icmp.Type() != header.ICMPv4DstUnreachable || icmp.Code() != c.code || ip.SourceAddress() != gateIP {
			t.Errorf("%s: type %d code %d from %s", c.name, icmp.Type(), icmp.Code(), ip.SourceAddress())
		}
		if checksum.Checksum(icmp, 0) != 0xffff {
			t.Errorf("%s: wrong checksum", c.name)
		}
		if string(icmp.Payload()) != string(p.ip[:quoted]) {
			t.Errorf("%s: quotes %x", c.name, icmp.Payload())
		}
	}
}

// testGate is a gate on a socket pair, which nothing leaves.
func testGate(t testing.TB, mode sandbox.NetworkMode) (*gate, *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	tap, guest := os.NewFile(uintptr(fds[0]), "tap"), os.NewFile(uintptr(fds[1]), "guest")
	var files [2]*os.File
	for i, name := range handover.FlowNames {
		if files[i], err = os.OpenFile(filepath.Join(t.TempDir(), name), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refusals, err := newRefusalLog(files)
	if err != nil {
		t.Fatal(err)
	}
	cfg := handover.Config{Policy: sandbox.NetworkPolicy{Mode: mode}, Limits: handover.DefaultLimits()}
	g, err := newGate(slog.New(slog.DiscardHandler), tap, refusals, cfg, policy.HostSet{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.Close()
		for _, f := range []*os.File{tap, guest, files[0], files[1]} {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return g, guest
}

// FuzzFrame feeds raw frames to the endpoint and the stack behind it. Mode none
// keeps every flow from leaving; the stack and the resolver see the rest.
func FuzzFrame(f *testing.F) {
	for _, b := range [][]byte{
		frameTo("1.1.1.1", header.TCPProtocolNumber, tcpSegment(80, syn, "")),
		frameTo("198.18.0.2", header.TCPProtocolNumber, tcpSegment(53, syn, "")),
		frameTo("198.18.0.2", header.TCPProtocolNumber, tcpSegment(53, ack, "\x00\x01x")),
		frameTo("198.18.0.2", header.UDPProtocolNumber, datagram(53, "\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01")),
		frameTo("198.18.0.2", header.ICMPv4ProtocolNumber, echoRequest()),
		change(frameTo("1.1.1.1", header.UDPProtocolNumber, datagram(80, "x")), func(b []byte) { b[20] |= 0x20 }),
		change(frameTo("1.1.1.1", header.UDPProtocolNumber, datagram(80, "0123456789")), func(b []byte) { b[21] = 1 }),
		arpRequest(handover.GuestAddr, handover.GateAddr),
		frameTo("1.1.1.1", header.UDPProtocolNumber, make([]byte, 60000)),
	} {
		f.Add(b, true)
		f.Add(b, false)
	}
	g, guest := testGate(f, sandbox.NetworkNone)
	var drained sync.WaitGroup
	drained.Go(func() { drain(guest) })
	f.Cleanup(func() {
		if err := unix.Shutdown(int(guest.Fd()), unix.SHUT_RDWR); err != nil {
			f.Error(err)
		}
		drained.Wait()
	})
	f.Fuzz(func(t *testing.T, frame []byte, repair bool) {
		if len(frame) > headSize+bodySize {
			return
		}
		if repair && len(frame) >= 34 {
			// Get past the first look, to what lies behind it.
			copy(frame[0:6], handover.GateMAC)
			binary.BigEndian.PutUint16(frame[12:], uint16(header.IPv4ProtocolNumber))
			frame[14] = 0x45
			binary.BigEndian.PutUint16(frame[16:], uint16(min(len(frame)-14, 65535)))
			copy(frame[26:30], handover.GuestAddr.AsSlice())
			frame = fixed(frame)
		}
		head, body := buffer.NewViewSize(headSize), buffer.NewViewSize(bodySize)
		copy(head.AsSlice(), frame)
		copy(body.AsSlice(), frame[min(len(frame), headSize):])
		head, body = g.link.take(head, body, len(frame))
		for _, v := range []*buffer.View{head, body} {
			if v != nil {
				v.Release()
			}
		}
		if n := g.flows.tcp.Load() + g.flows.udp.Load(); n != 0 {
			t.Fatalf("%d flows are open in mode none", n)
		}
	})
}

// drain reads what the gate sends until the socket is shut.
func drain(guest *os.File) {
	b := make([]byte, 1<<17)
	for {
		if n, err := guest.Read(b); err != nil || n == 0 {
			return
		}
	}
}
