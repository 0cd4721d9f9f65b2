package gate

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
		const all = unix.ETH_P_IP<<8 | unix.ETH_P_IP>>8&0xff
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all&0xffff)
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

// TestHostileGuest lets a guest that is root in its sandbox, with rights that
// the product does not even give, do its worst. What counts is what arrives.
func TestHostileGuest(t *testing.T) {
	f := newFortress(t)
	before := gatePIDs(t)
	t.Run("connect and sendto", f.everyAddress)
	t.Run("names", f.everyName)
	t.Run("raw frames", f.rawFrames)
	t.Run("fragments", f.fragments)
	t.Run("neighbours", f.neighbours)
	t.Run("garbage", f.garbage)
	t.Run("floods", f.floods)
	t.Run("slow flows", f.slowFlows)
	t.Run("from outside", f.fromOutside)
	t.Run("own configuration", f.reconfigures)
	if now := gatePIDs(t); !slices.Contains(now, before[0]) {
		t.Errorf("the gate was %v and is not among %v: it did not live through it", before, now)
	}
}

// everyAddress tries each forbidden address in each notation a socket has.
func (f *fortress) everyAddress(t *testing.T) {
	for _, addr := range append(slices.Clone(forbidden), "127.0.0.2", "0.0.0.0", "255.255.255.255", "224.0.0.1", "240.0.0.1", "192.0.2.255", "198.18.0.2", "198.19.0.1") {
		loopback := addr == "127.0.0.2" || addr == "0.0.0.0" // the guest's own
		for _, port := range []string{":22", ":53", ":80"} {
			if addr == "198.18.0.2" && port == ":53" {
				continue // the resolver
			}
			for _, do := range []string{"tcp", "mapped", "sendto"} {
				r := f.guest.do(ask{Do: do, Addr: addr + port, Send: "x"})
				if do != "sendto" && r.Err == "" {
					t.Errorf("%s %s%s: no error", do, addr, port)
				}
				if do != "sendto" && !loopback && r.Millis > 1000 {
					t.Errorf("%s %s%s: refused after %.0f ms", do, addr, port, r.Millis)
				}
			}
		}
	}
	for _, addr := range []string{"[::1]:80", "[::ffff:10.1.2.3]:80", "[64:ff9b::a01:203]:80", "[2002:a01:203::1]:80", "[fe80::1%eth0]:80", "[fd00:ec2::254]:80"} {
		if r := f.guest.do(ask{Do: "tcp", Addr: addr, Send: "x"}); r.Err == "" {
			t.Errorf("%s: no error", addr)
		}
	}
	f.holds("every address")
}

// everyName asks for names that lead inside, in every form that a question has.
func (f *fortress) everyName(t *testing.T) {
	resolver := f.a.Resolver.String() + ":53"
	for _, name := range []string{
		"rebind.test", "REBIND.test", "rebind.test.", "rebind-alias.test", "metadata.test", "host.test", strings.Repeat("a", 64) + ".test", "a..test",
		"xn--bcher-kva.rebind.test", "localhost", "10.1.2.3", "0x0a010203",
	} {
		r := f.guest.do(ask{Do: "lookup", Addr: resolver, Send: name})
		for _, addr := range forbidden {
			if strings.Contains(r.Got, addr) && name != "10.1.2.3" {
				t.Errorf("%s leads to %s", name, r.Got)
			}
		}
	}
	// Resolvers that are not the gate's.
	for _, other := range []string{resolverAddr, uplinkAddr, "10.1.2.3"} {
		if r := f.guest.do(ask{Do: "lookup", Addr: other + ":53", Send: "public.test"}); r.Err == "" {
			t.Errorf("the resolver at %s answers: %+v", other, r)
		}
	}
	f.holds("names")
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

// rawFrames goes past the guest's own kernel.
func (f *fortress) rawFrames(t *testing.T) {
	guest, gate := handover.GuestAddr.String(), handover.GateAddr.String()
	var frames [][]byte
	for _, dst := range forbidden {
		frames = append(frames, ip4(guest, dst, 17, udp4(80, "x"), nil), ip4(guest, dst, 6, syn4(dst, 41000, 80), nil))
		for _, proto := range []byte{1, 2, 4, 41, 47, 50, 58, 89, 132, 255} {
			frames = append(frames, ip4(guest, dst, proto, make([]byte, 40), nil))
		}
		// IPv4 in IPv4, and behind loose and strict source routes by way of a
		// public address.
		inner := ip4(guest, dst, 17, udp4(80, "x"), nil)[14:]
		frames = append(frames, ip4(guest, publicAddr, 4, inner, nil))
		for _, kind := range []byte{0x83, 0x89} {
			routed := slices.Concat([]byte{kind, 7, 4}, netip.MustParseAddr(dst).AsSlice(), []byte{0}, udp4(80, "x"))
			frames = append(frames, ip4(guest, publicAddr, 17, routed, func(ip []byte) { ip[0] = 0x47 }))
		}
	}
	for _, src := range append(slices.Clone(forbidden), "127.0.0.1", "0.0.0.0", "255.255.255.255", "224.0.0.1", gate, publicAddr) {
		frames = append(frames, ip4(src, publicAddr, 17, udp4(443, "spoofed"), nil), ip4(src, "10.1.2.3", 17, udp4(80, "x"), nil))
	}
	r := f.guest.do(ask{Do: "frames", Frames: frames})
	if r.Err != "" {
		t.Fatalf("send: %+v", r)
	}
	seen := len(f.arrivals())
	f.holds("raw frames")
	// Those that pretended to come from elsewhere went nowhere at all.
	for _, s := range f.arrivals()[:seen] {
		if strings.HasPrefix(s, "udp "+publicAddr) {
			t.Errorf("a spoofed datagram arrived: %s", s)
		}
	}
}

// fragments hides ports and addresses in pieces.
func (f *fortress) fragments(t *testing.T) {
	guest := handover.GuestAddr.String()
	id := uint16(0)
	pieces := func(dst string, payload []byte, cuts ...int) (out [][]byte) {
		id++
		own := id
		for i, at := range cuts {
			end, more := len(payload), false
			if i+1 < len(cuts) {
				end, more = cuts[i+1], true
			}
			out = append(out, ip4(guest, dst, 17, payload[at:end], func(ip []byte) {
				binary.BigEndian.PutUint16(ip[4:], own)
				flags := uint16(at / 8)
				if more {
					flags |= 0x2000
				}
				binary.BigEndian.PutUint16(ip[6:], flags)
			}))
		}
		return out
	}
	long := udp4(80, strings.Repeat("x", 64))
	var frames [][]byte
	for _, dst := range forbidden {
		frames = append(frames, pieces(dst, long, 0, 8, 16, 64)...)
		twisted := pieces(dst, long, 0, 8, 16)
		slices.Reverse(twisted)
		frames = append(frames, twisted...)
	}
	// Pieces that overlap, that never come to an end, and that end beyond the
	// longest datagram.
	for range 500 {
		p := pieces("10.1.2.3", long, 0, 8, 16)
		frames = append(frames, p[0], p[1], p[1], p[0])
	}
	frames = append(frames, ip4(guest, publicAddr, 17, long, func(ip []byte) { binary.BigEndian.PutUint16(ip[6:], 0x1fff) }))
	if r := f.guest.do(ask{Do: "frames", Frames: frames}); r.Err != "" {
		t.Fatalf("send: %+v", r)
	}
	f.holds("fragments")
}

// neighbours lies about who is where.
func (f *fortress) neighbours(t *testing.T) {
	arp := func(op byte, mac net.HardwareAddr, ip string, target string) []byte {
		return slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac, []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, op},
			mac, netip.MustParseAddr(ip).AsSlice(), make([]byte, 6), netip.MustParseAddr(target).AsSlice())
	}
	evil := net.HardwareAddr{2, 0, 0, 0, 0, 0x66}
	var frames [][]byte
	for _, op := range []byte{1, 2, 3, 8} {
		for _, ip := range append(slices.Clone(forbidden), handover.GateAddr.String(), handover.GuestAddr.String(), publicAddr) {
			frames = append(frames, arp(op, evil, ip, handover.GateAddr.String()), arp(op, handover.GuestMAC, ip, ip), arp(op, handover.GuestMAC, ip, "10.1.2.3"))
		}
	}
	// Router advertisements, neighbour solicitations and redirects of IPv6, and
	// a redirect of IPv4.
	for _, kind := range []byte{133, 134, 135, 136, 137} {
		v6 := slices.Concat([]byte{0x33, 0x33, 0, 0, 0, 1}, handover.GuestMAC, []byte{0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255},
			netip.MustParseAddr("fe80::66").AsSlice(), netip.MustParseAddr("ff02::1").AsSlice(), []byte{kind, 0, 0, 0}, make([]byte, 28))
		frames = append(frames, v6)
	}
	redirect := slices.Concat([]byte{5, 1, 0, 0}, netip.MustParseAddr("10.1.2.3").AsSlice(), make([]byte, 28))
	binary.BigEndian.PutUint16(redirect[2:], ^sum16(redirect))
	frames = append(frames, ip4(handover.GuestAddr.String(), handover.GateAddr.String(), 1, redirect, nil))
	if r := f.guest.do(ask{Do: "frames", Frames: frames}); r.Err != "" {
		t.Fatalf("send: %+v", r)
	}
	f.holds("lies about neighbours")
}

// garbage sends what no network has, from a seed that is always the same.
func (f *fortress) garbage(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	guest := handover.GuestAddr.String()
	var frames [][]byte
	for range 2000 {
		b := ip4(guest, forbidden[r.IntN(len(forbidden))], []byte{6, 17}[r.IntN(2)], make([]byte, r.IntN(200)), nil)
		for range 1 + r.IntN(6) {
			b[12+r.IntN(len(b)-12)] = byte(r.Uint32())
		}
		frames = append(frames, b[:14+r.IntN(len(b)-13)])
	}
	for _, size := range []int{14, 15, 33, 60, 1514, 9014, 65535} {
		b := make([]byte, size)
		copy(b, ip4(guest, "10.1.2.3", 17, udp4(80, "x"), nil))
		frames = append(frames, b)
	}
	if r := f.guest.do(ask{Do: "frames", Frames: frames}); r.Err != "" {
		t.Fatalf("send: %+v", r)
	}
	f.holds("garbage")
}

// floods asks for more than there is: 10,000 half-open flows, echo requests,
// and datagrams from very many ports.
func (f *fortress) floods(t *testing.T) {
	guest := handover.GuestAddr.String()
	var half, datagrams [][]byte
	for port := range 10000 {
		half = append(half, ip4(guest, publicAddr, 6, syn4(publicAddr, uint16(20000+port), 81), nil))
		b := udp4(443, "x")
		binary.BigEndian.PutUint16(b, uint16(20000+port))
		datagrams = append(datagrams, ip4(guest, publicAddr, 17, b, nil))
	}
	echo := []byte{8, 0, 0xf7, 0xfd, 0, 1, 0, 1}
	for name, a := range map[string]ask{
		"half-open flows": {Frames: half}, "datagrams": {Frames: datagrams},
		"echo requests": {Frames: [][]byte{ip4(guest, handover.GateAddr.String(), 1, echo, nil), ip4(guest, publicAddr, 1, echo, nil)}, Count: 10000},
	} {
		a.Do = "frames"
		if r := f.guest.do(a); r.Err != "" {
			t.Fatalf("send: %+v", r)
		}
		f.eventually("allowed flows work again after "+name, func() bool {
			return f.guest.do(ask{Do: "tcp", Addr: publicAddr + ":80", Send: "x"}).Got == "x"
		})
		f.nothing(name)
		rss, err := strconv.Atoi(strings.Fields(status(t, gatePIDs(t)[0], "VmRSS"))[0])
		f.must(err)
		if limit := int(handover.DefaultLimits().DataBytes >> 10); rss > limit/2 {
			t.Errorf("after %s the gate holds %d KB, of %d", name, rss, limit)
		}
	}
}

// slowFlows holds connections open that never say anything more.
func (f *fortress) slowFlows(t *testing.T) {
	if r := f.guest.do(ask{Do: "hold", Addr: publicAddr + ":80", Count: 500}); r.Got != "500" {
		t.Errorf("hold connections: %+v", r)
	}
	// And the resolver's, over TCP, without a question.
	if r := f.guest.do(ask{Do: "hold", Addr: f.a.Resolver.String() + ":53", Count: 200}); r.Err != "" {
		t.Errorf("hold the resolver's connections: %+v", r)
	}
	if r := f.guest.do(ask{Do: "lookup", Addr: f.a.Resolver.String() + ":53", Send: "public.test"}); r.Got != "["+publicAddr+"]" {
		t.Errorf("a lookup beside them: %+v", r)
	}
	f.holds("slow flows")
}

// fromOutside tries to reach what the guest listens on, from the host, from
// beyond it, and from another sandbox.
func (f *fortress) fromOutside(t *testing.T) {
	if r := f.guest.do(ask{Do: "listen", Addr: "0.0.0.0:8080"}); r.Err != "" {
		t.Fatalf("listen: %+v", r)
	}
	other := f.attach(f.m, "other")
	neighbour := f.boot(other)
	addrs := append(slices.Clone(forbidden), handover.GuestAddr.String(), handover.GateAddr.String(), "198.19.0.1", publicAddr, "255.255.255.255", "224.0.0.1")
	for _, addr := range addrs {
		for _, do := range []string{"tcp", "sendto"} {
			neighbour.do(ask{Do: do, Addr: addr + ":8080", Send: "x"})
		}
		// A namespace has no way to most of them; each attempt ends at once.
		for _, ns := range []string{f.uplink, f.outer} {
			f.in(ns, func() error {
				d := net.Dialer{Timeout: 50 * time.Millisecond}
				for _, network := range []string{"tcp4", "udp4"} {
					if c, err := d.Dial(network, addr+":8080"); err == nil {
						_, _ = c.Write([]byte("x"))
						_ = c.Close()
					}
				}
				return nil
			})
		}
	}
	if r := f.guest.do(ask{Do: "heard"}); r.Got != "0" {
		t.Errorf("%s connections and datagrams reached the guest's listener", r.Got)
	}
	// It does listen: the guest itself reaches it.
	f.guest.do(ask{Do: "tcp", Addr: "127.0.0.1:8080", Send: ""})
	f.eventually("the guest hears itself", func() bool { return f.guest.do(ask{Do: "heard"}).Got == "1" })
	f.since = len(f.arrivals()) // the host's own attempts are no news
}

// reconfigures changes the guest's filter, addresses, routes and MTU.
func (f *fortress) reconfigures(t *testing.T) {
	tryAll := func(after string) {
		for _, addr := range forbidden {
			f.guest.do(ask{Do: "sendto", Addr: addr + ":80", Send: "x"})
		}
		// Where its own changes lead nowhere a guest waits for its own kernel.
		for _, addr := range []string{"10.1.2.3", "169.254.169.254"} {
			if r := f.guest.do(ask{Do: "tcp", Addr: addr + ":80", Send: "x"}); r.Got != "" {
				t.Errorf("after %s, %s: %+v", after, addr, r)
			}
		}
		f.nothing(after)
	}
	changes := 0
	try := func(a ask) {
		if r := f.guest.do(a); r.Err == "" {
			changes++
		} else {
			t.Logf("the guest's kernel refuses %s %s: %s", a.Do, a.Addr, r.Err)
		}
	}
	try(ask{Do: "flush"})
	try(ask{Do: "mtu", Count: 1280})
	try(ask{Do: "route", Addr: "10.0.0.0/8"})
	tryAll("a new route, MTU and filter")
	try(ask{Do: "address", Addr: "10.1.2.99/8"})
	try(ask{Do: "address", Addr: "192.0.2.99/24"})
	tryAll("new addresses")
	if changes == 0 {
		t.Error("the guest could change nothing: this tests nothing")
	}
}
