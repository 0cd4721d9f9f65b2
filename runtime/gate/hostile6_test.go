package gate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"mediasandbox/runtime/gate/internal/handover"
)

// The world's IPv6: the host has a way to all of these, and somebody answers at
// each.
const (
	uplink6 = "2001:db8:5::2"
	outer6  = "2001:db8:5::1"
)

var inside6 = []string{
	"2001:db8::1",      // what would be public
	"fd00:ec2::254",    // a metadata service, and unique-local
	"64:ff9b::a01:203", // 10.1.2.3 through NAT64
	"2002:a01:203::1",  // 10.1.2.3 through 6to4
	"2001:0:1::1",      // Teredo
	"fec0::1",          // site-local
	outer6,
}

// add6 gives the world IPv6, and a sniffer that sees all of it that leaves the
// host, neighbour discovery aside.
func (w *world) add6() {
	w.t.Helper()
	on := func(link string, list ...string) error {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/"+link+"/disable_ipv6", []byte("0"), 0)
		for i := range list { // at once, not after a search for duplicates
			list[i] += "/64"
		}
		return errors.Join(err, os.WriteFile("/proc/sys/net/ipv6/conf/"+link+"/accept_dad", []byte("0"), 0), addrs(link, list...))
	}
	// Each of them is on the link, so that the host needs no routes but those
	// of the prefixes.
	var host []string
	for i, a := range inside6 {
		b := netip.MustParseAddr(a).As16()
		b[15] ^= byte(0x40 + i)
		host = append(host, netip.AddrFrom16(b).String())
	}
	w.in(w.outer, func() error { return on("down", slices.Clone(inside6)...) })
	w.in(w.uplink, func() error { return on("up", append(host, uplink6)...) })
	for _, a := range inside6 {
		w.listenTCP(w.outer, "["+a+"]:80", echo)
		w.listenUDP(w.outer, "["+a+"]:80")
	}
	w.listenTCP(w.uplink, "["+uplink6+"]:80", echo)
	w.sniff6()
}

func (w *world) sniff6() {
	w.t.Helper()
	var fd int
	w.in(w.outer, func() (err error) {
		const ip6BigEndian = unix.ETH_P_IPV6>>8 | unix.ETH_P_IPV6&0xff<<8
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, ip6BigEndian)
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
			const icmp6 = 58
			if n >= 40 && b[6] != icmp6 && b[6] != 0 { // 0 holds the host's own reports of groups
				w.saw("IPv6 packet of protocol %d to %s", b[6], netip.AddrFrom16([16]byte(b[24:40])))
			}
		}
	}()
	// It does see them: the host reaches every address.
	for _, a := range inside6 {
		w.in(w.uplink, func() error {
			c, err := net.Dial("udp6", "["+a+"]:80")
			if err != nil {
				return err
			}
			_, err = c.Write([]byte("x"))
			return errors.Join(err, c.Close())
		})
		w.eventually("a datagram of the host's arrives", func() bool {
			seen := w.arrivals()
			return slices.Contains(seen, "IPv6 packet of protocol 17 to "+a) && slices.Contains(seen, "udp ["+a+"]:80")
		})
	}
}

// ip6 returns a frame from the guest's station with an IPv6 packet in it.
func ip6(src, dst string, next byte, payload []byte) []byte {
	ip := make([]byte, 40, 40+len(payload))
	ip[0], ip[6], ip[7] = 0x60, next, 64
	binary.BigEndian.PutUint16(ip[4:], uint16(len(payload)))
	copy(ip[8:], netip.MustParseAddr(src).AsSlice())
	copy(ip[24:], netip.MustParseAddr(dst).AsSlice())
	return slices.Concat(handover.GateMAC, handover.GuestMAC, []byte{0x86, 0xdd}, ip, payload)
}

// udp6 is a datagram with its checksum, which IPv6 wants.
func udp6(src, dst string) []byte {
	b := udp4(80, "x")
	pseudo := slices.Concat(netip.MustParseAddr(src).AsSlice(), netip.MustParseAddr(dst).AsSlice(), []byte{0, 0, 0, byte(len(b)), 0, 0, 0, 17}, b, []byte{0})
	binary.BigEndian.PutUint16(b[6:], ^sum16(pseudo))
	return b
}

// overIPv6 tries to get out by the protocol that the sandbox has not.
func (f *fortress) overIPv6(t *testing.T) {
	f.add6()
	f.since = len(f.arrivals())
	const own = "2001:db8:5::66"
	var frames [][]byte
	for _, dst := range append(slices.Clone(inside6), uplink6, "::1", "::ffff:10.1.2.3", "::10.1.2.3", "fe80::1", "ff02::1") {
		for _, src := range []string{own, "fe80::6dff:fe00:3", "::", dst, "::ffff:198.18.0.3"} {
			d := udp6(src, dst)
			syn := make([]byte, 20)
			binary.BigEndian.PutUint16(syn[2:], 80)
			syn[12], syn[13] = 5<<4, 2
			frames = append(frames, ip6(src, dst, 17, d), ip6(src, dst, 6, syn), ip6(src, dst, 4, ip4("198.18.0.3", "10.1.2.3", 17, udp4(80, "x"), nil)[14:]),
				ip6(src, dst, 0, append([]byte{17, 0, 1, 4, 0, 0, 0, 0}, d...)),  // after options
				ip6(src, dst, 44, append([]byte{17, 0, 0, 0, 0, 0, 0, 1}, d...)), // as a fragment
				// By a source route over the gate, the header that was abolished.
				ip6(src, own, 43, slices.Concat([]byte{17, 2, 0, 1, 0, 0, 0, 0}, netip.MustParseAddr(dst).AsSlice(), d)),
				// Within IPv4, where a tunnel's end would unpack it.
				ip4("198.18.0.3", publicAddr, 41, ip6(src, dst, 17, d)[14:], nil))
		}
	}
	// A router that has a prefix for everybody, and the words of neighbours.
	prefix := slices.Concat([]byte{3, 4, 64, 0xc0, 0, 0, 255, 255, 0, 0, 255, 255, 0, 0, 0, 0}, netip.MustParseAddr("2001:db8:5::").AsSlice())
	advert := slices.Concat([]byte{134, 0, 0, 0, 64, 0, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0}, prefix)
	for _, to := range []string{"ff02::1", "fe80::1", outer6} {
		frames = append(frames, ip6("fe80::66", to, 58, advert))
		for _, kind := range []byte{133, 135, 136, 137} {
			frames = append(frames, ip6("fe80::66", to, 58, slices.Concat([]byte{kind, 0, 0, 0, 0xe0, 0, 0, 0}, netip.MustParseAddr(outer6).AsSlice())))
		}
	}
	if r := f.guest.do(ask{Do: "frames", Frames: frames}); r.Err != "" {
		t.Fatalf("send: %+v", r)
	}
	f.holds("frames of IPv6")
	// Its own kernel is told that there is a way.
	for _, a := range []ask{{Do: "address", Addr: own + "/64"}, {Do: "route", Addr: "::/0"}} {
		if r := f.guest.do(a); r.Err != "" {
			t.Logf("the guest's kernel refuses %s %s: %s", a.Do, a.Addr, r.Err)
		}
	}
	for _, dst := range inside6[:2] {
		if r := f.guest.do(ask{Do: "tcp", Net: "6", Addr: fmt.Sprintf("[%s]:80", dst), Send: "x"}); r.Got != "" || r.Err == "" {
			t.Errorf("tcp to %s: %+v", dst, r)
		}
	}
	f.holds("IPv6 of its own")
}
