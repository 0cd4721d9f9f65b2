package gate

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"mediasandbox/runtime/gate/internal/handover"
)

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
	t.Run("IPv6", f.overIPv6)
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
