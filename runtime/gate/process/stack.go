package process

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"mediasandbox/runtime/gate/internal/handover"
)

// nicID is the stack's only interface.
const nicID tcpip.NICID = 1

// Buffers of the stack's end of a flow, in bytes. The first flows get large
// ones, which is what throughput needs; a guest that opens very many gets
// small ones, which bounds what it can make the gate hold. A window is half
// the buffer, and the smallest must still hold a segment of the link's MTU.
const (
	bigFlows, bigBuffer   = 8, 4 << 20
	someFlows, someBuffer = 64, 512 << 10
	minBuffer             = 136 << 10
)

// Bounds of what the stack sends of its own accord.
const (
	icmpPerSecond       = 5000
	icmpBurst           = 500
	synRetries    uint8 = 3
)

// bufferFor returns the buffer size of a flow that is opened beside open
// others.
func bufferFor(open int) int {
	switch {
	case open < bigFlows:
		return bigBuffer
	case open < someFlows:
		return someBuffer
	}
	return minBuffer
}

// newStack returns a stack that terminates every TCP and UDP flow of the guest,
// whatever address it is meant for.
func newStack(link stack.LinkEndpoint) (*stack.Stack, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	steps := []struct {
		what string
		do   func() tcpip.Error
	}{
		{"create the interface", func() tcpip.Error { return s.CreateNIC(nicID, link) }},
		{"answer for every address", func() tcpip.Error { return s.SetPromiscuousMode(nicID, true) }},
		{"speak for every address", func() tcpip.Error { return s.SetSpoofing(nicID, true) }},
		{"add the gate's address", func() tcpip.Error {
			return s.AddProtocolAddress(nicID, tcpip.ProtocolAddress{
				Protocol:          ipv4.ProtocolNumber,
				AddressWithPrefix: tcpip.AddressWithPrefix{Address: gateIP, PrefixLen: 32},
			}, stack.AddressProperties{})
		}},
		{"add the guest as a neighbour", func() tcpip.Error {
			return s.AddStaticNeighbor(nicID, ipv4.ProtocolNumber, guestIP, tcpip.LinkAddress(handover.GuestMAC))
		}},
		{"set the TCP options", func() tcpip.Error { return tcpOptions(s) }},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			s.Close()
			return nil, fmt.Errorf("set up the stack: %s: %s", step.what, err)
		}
	}
	// The guest is the only host there is.
	s.SetRouteTable([]tcpip.Route{{Destination: guestSubnet(), NIC: nicID}})
	s.SetICMPLimit(rate.Limit(icmpPerSecond))
	s.SetICMPBurst(icmpBurst)
	return s, nil
}

func guestSubnet() tcpip.Subnet {
	return tcpip.AddressWithPrefix{Address: guestIP, PrefixLen: 32}.Subnet()
}

func tcpOptions(s *stack.Stack) tcpip.Error {
	sack := tcpip.TCPSACKEnabled(true)
	// Sizes are set flow by flow, see bufferFor, which ends the moderation; it
	// is on so that the handshake announces a scale that fits the largest.
	moderate := tcpip.TCPModerateReceiveBufferOption(true)
	rcv := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: minBuffer, Max: bigBuffer}
	snd := tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: minBuffer, Max: bigBuffer}
	// A guest that reuses a port at once must not meet its own past.
	timeWait := tcpip.TCPTimeWaitTimeoutOption(20 * time.Millisecond)
	syn := tcpip.TCPSynRetriesOption(synRetries)
	for _, o := range []tcpip.SettableTransportProtocolOption{&sack, &moderate, &rcv, &snd, &timeWait, &syn} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return err
		}
	}
	return nil
}

// gatePort returns the gate's own address with a port.
func gatePort(port uint16) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nicID, Addr: gateIP, Port: port}
}
