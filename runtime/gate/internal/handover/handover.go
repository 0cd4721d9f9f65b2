// Package handover holds what the two halves of the gate must agree on: the
// addresses of the link between guest and gate, the descriptors that a gate
// process finds when it starts, and the file that tells it its policy.
//
// It exists so that the daemon's half (package gate) and the process's half
// (package process) need not import each other: the daemon must not link a
// TCP/IP stack, and the process needs nothing that makes namespaces.
package handover

import (
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"mediasandbox/runtime/sandbox"
)

// The link. Every sandbox has a namespace of its own, so all of them use the
// same addresses; a restored sandbox therefore finds its sockets and its
// resolver valid wherever it wakes up. The pair is a /31 (RFC 3021) out of the
// benchmarking range of RFC 2544, which no public host may have.
var (
	GateAddr  = netip.AddrFrom4([4]byte{198, 18, 0, 2})
	GuestAddr = netip.AddrFrom4([4]byte{198, 18, 0, 3})
	Link      = netip.PrefixFrom(GateAddr, 31)
	GateMAC   = net.HardwareAddr{0x02, 0x6d, 0x73, 0x00, 0x00, 0x02}
	GuestMAC  = net.HardwareAddr{0x02, 0x6d, 0x73, 0x00, 0x00, 0x03}
)

const (
	// TAPName is the device's name in the sandbox's namespace.
	TAPName = "eth0"
	// TAPFlags are the flags the TAP is made and opened with.
	TAPFlags = unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR
	// VnetHdrLen is the length in bytes of the virtio header that precedes
	// every frame on the TAP.
	VnetHdrLen = 10
	// MTU is the largest that a TAP takes: 65535 less the Ethernet header.
	MTU = 65521
)

// The descriptors of a gate process beyond the standard three. Passing
// descriptors rather than paths lets a run directory stay closed to the
// gate's uid.
const (
	FDTap    = 3 + iota // the TAP, non-blocking
	FDLock              // the file whose record lock says 'I am the gate'
	FDReady             // a pipe: one line, "ready" or what went wrong
	FDFlow0             // the refusal log, first half
	FDFlow1             // the refusal log, second half
	FDCount0            // the account, by turns with
	FDCount1            // this one
	FDDir               // the directory that ConfigName is in
	FDsInUse            // the number of descriptors, standard ones included
)

// Names in a network's directory.
const (
	ConfigName = "config.json"
	LockName   = "lock"
	LogName    = "gate.log"
)

// FlowNames are the two halves of the refusal log. The gate fills one, then
// empties the other and fills that, so that the newest half is always whole.
var FlowNames = [2]string{"refusals.0.jsonl", "refusals.1.jsonl"}

// TimeFormat is how the refusal log writes times: RFC 3339 with all its
// nanoseconds, so that they sort as text.
const TimeFormat = "2006-01-02T15:04:05.000000000Z07:00"

// CountNames are the two files of a gate's account (sandbox.NetworkTraffic as
// JSON). It writes them by turns, so that one is always whole, and tells with
// a rising sequence which is newer.
var CountNames = [2]string{"count.0.json", "count.1.json"}

// Ready is the line a gate writes when it is hardened and answers packets.
const Ready = "ready"

// Config is the content of ConfigName. The daemon writes it by rename; the
// gate reads it when it starts and again on SIGHUP. On SIGUSR1 it gives an
// account.
type Config struct {
	// Generation rises with each change. The gate's account says which one
	// is in force.
	Generation uint64 `json:"generation"`
	// Bare says that the network was made without a TAP, and has no gate.
	Bare   bool                  `json:"bare,omitempty"`
	Policy sandbox.NetworkPolicy `json:"policy"`
	// Resolvers are the host's, in the order they are asked. The guest can
	// not reach them; the gate asks them on its behalf.
	Resolvers []netip.AddrPort `json:"resolvers"`
	Limits    Limits           `json:"limits"`
}

// Limits bound what one gate may use.
type Limits struct {
	// TCPFlows and UDPFlows bound the flows open at once.
	TCPFlows int `json:"tcp_flows"`
	UDPFlows int `json:"udp_flows"`
	// Dialing bounds the TCP flows that are not yet established.
	Dialing int `json:"dialing"`
	// Queries bounds the DNS queries under way at once.
	Queries int `json:"queries"`
	// DataBytes is RLIMIT_DATA of the process; beyond it the gate dies and
	// is started again. The soft limit of its collector is half of it.
	DataBytes uint64 `json:"data_bytes"`
}

// DefaultLimits are generous for a media job and small for a host.
func DefaultLimits() Limits {
	return Limits{TCPFlows: 2048, UDPFlows: 512, Dialing: 1024, Queries: 128, DataBytes: 512 << 20}
}

// Synthetic is where the addresses are that stand for names; Link is outside
// of it. It is a part of the benchmarking range too.
var Synthetic = netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, 0, 0}), 16)
