package gate

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"mediasandbox/runtime/gate/internal/handover"
	"mediasandbox/runtime/sandbox"
)

// fortress is a world in which everything that must not be reached listens,
// and a sandbox with a hostile guest in it.
type fortress struct {
	*world
	m     *Manager
	a     sandbox.Attachment
	guest *guest
	// since is where the arrivals begin that count.
	since int
}

// forbidden are the addresses of the world that no guest may reach.
var forbidden = append([]string{uplinkAddr, uplinkOther}, inside...)

func newFortress(t *testing.T) *fortress {
	w := newWorld(t)
	w.resolver(zone(t))
	w.listenTCP(w.outer, publicAddr+":80", echo)
	w.listenUDP(w.outer, publicAddr+":443")
	for _, a := range inside {
		for _, port := range []string{":22", ":53", ":80"} {
			if a+port != resolverAddr+":53" {
				w.listenTCP(w.outer, a+port, echo)
				w.listenUDP(w.outer, a+port)
			}
		}
	}
	for _, a := range []string{uplinkAddr, uplinkOther, "127.0.0.1"} {
		for _, port := range []string{":22", ":53", ":80"} {
			w.listenTCP(w.uplink, a+port, echo)
			w.listenUDP(w.uplink, a+port)
		}
	}
	f := &fortress{world: w, m: w.manager(nil)}
	f.a = w.attach(f.m, "hostile")
	f.guest = w.boot(f.a)
	w.sniff()
	f.since = len(w.arrivals())
	return f
}

// sniff sees every packet that leaves the host for an address that must not be
// reached, whether or not somebody listens there.
func (w *world) sniff() {
	w.t.Helper()
	var fd int
	w.in(w.outer, func() (err error) {
		const ip4BigEndian = unix.ETH_P_IP >> 8
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, ip4BigEndian)
		return err
	})
	file := os.NewFile(uintptr(fd), "sniffer")
	w.t.Cleanup(func() { w.must(file.Close()) })
	go func() {
		b := make([]byte, 1<<17)
		for {
			n, err := file.Read(b)
			if err != nil {
				return
			}
			if n < 20 || netip.AddrFrom4([4]byte(b[12:16])).String() != uplinkAddr {
				continue // an answer
			}
			switch to := netip.AddrFrom4([4]byte(b[16:20])).String(); to {
			case publicAddr, public2Addr, resolverAddr:
			default:
				w.saw("packet of protocol %d to %s", b[9], to)
			}
		}
	}()
	// It does see them: the host itself sends one.
	w.in(w.uplink, func() error {
		c, err := net.Dial("udp4", "10.1.2.3:9")
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("x"))
		return errors.Join(err, c.Close())
	})
	w.eventually("the sniffer sees a packet", func() bool { return slices.Contains(w.arrivals(), "packet of protocol 17 to 10.1.2.3") })
}

// holds fails the test if anything arrived that should not have, and checks
// that the gate still lets out what it should.
func (f *fortress) holds(after string) {
	f.t.Helper()
	if r := f.guest.do(ask{Do: "tcp", Addr: publicAddr + ":80", Send: "still here"}); r.Got != "still here" {
		f.t.Errorf("after %s an allowed flow does not work: %+v", after, r)
	}
	f.nothing(after)
}

// nothing fails the test if anything arrived that should not have.
func (f *fortress) nothing(after string) {
	f.t.Helper()
	for _, s := range f.arrivals()[f.since:] {
		if s != "tcp "+publicAddr+":80" && s != "udp "+publicAddr+":443" && !strings.HasPrefix(s, "dns ") {
			f.t.Errorf("after %s this arrived: %s", after, s)
		}
	}
	f.since = len(f.arrivals())
}

// ip4 returns a frame from the guest's station with an IPv4 packet in it.
func ip4(src, dst string, proto byte, l4 []byte, change func(ip []byte)) []byte {
	ip := make([]byte, 20, 20+len(l4))
	ip[0], ip[8], ip[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(ip[2:], uint16(20+len(l4)))
	copy(ip[12:], netip.MustParseAddr(src).AsSlice())
	copy(ip[16:], netip.MustParseAddr(dst).AsSlice())
	ip = append(ip, l4...)
	if change != nil {
		change(ip)
	}
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^sum16(ip[:int(ip[0]&0xf)*4]))
	return slices.Concat(handover.GateMAC, handover.GuestMAC, []byte{8, 0}, ip)
}

func sum16(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

func udp4(port uint16, payload string) []byte {
	b := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(b[0:], 40001)
	binary.BigEndian.PutUint16(b[2:], port)
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(payload)))
	return append(b, payload...)
}

// syn4 is a SYN of the guest's to dst.
func syn4(dst string, from, port uint16) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b[0:], from)
	binary.BigEndian.PutUint16(b[2:], port)
	binary.BigEndian.PutUint32(b[4:], 1000)
	b[12], b[13] = 5<<4, 2
	binary.BigEndian.PutUint16(b[14:], 65535)
	guest := handover.GuestAddr.AsSlice()
	pseudo := slices.Concat(guest, netip.MustParseAddr(dst).AsSlice(), []byte{0, 6, 0, 20}, b)
	binary.BigEndian.PutUint16(b[16:], ^sum16(pseudo))
	return b
}
