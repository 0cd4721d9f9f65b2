package gate

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"mediasandbox/runtime/gate/internal/handover"
	"mediasandbox/runtime/sandbox"
)

// atOnce is how soon a refusal has to come. It is far below any timeout and
// far above a busy machine's hiccups.
const atOnce = time.Second

// TestInsideIsClosed tries everything a sandbox must not reach, and looks at
// the listeners.
func TestInsideIsClosed(t *testing.T) {
	w := newWorld(t)
	w.listenTCP(w.outer, publicAddr+":80", echo)
	targets := append([]string{uplinkAddr, uplinkOther}, inside...)
	for _, ip := range targets {
		ns := w.outer
		if ip == uplinkAddr || ip == uplinkOther {
			ns = w.uplink
		}
		w.listenTCP(ns, ip+":80", echo)
		w.listenUDP(ns, ip+":80")
	}
	w.listenTCP(w.outer, publicAddr+":25", echo)
	// The targets are there: the host itself reaches them.
	for _, ip := range targets {
		w.in(w.uplink, func() error {
			c, err := net.Dial("tcp4", ip+":80")
			if err == nil {
				err = c.Close()
			}
			return err
		})
	}
	w.eventually("the listeners are seen to work", func() bool { return len(w.arrivals()) == len(targets) })
	a := w.attach(w.manager(nil), "inside")
	for _, ip := range append(slices.Clone(targets), "0.0.0.1", "192.0.2.255", "240.0.0.1", "198.18.0.2") {
		_, took, err := w.guestDial(a, "tcp4", ip+":80")
		if !isErrno(err, syscall.ECONNREFUSED) || took > atOnce {
			t.Errorf("tcp %s: %v after %v", ip, err, took)
		}
		if err := w.sendTo(a, ip+":80"); !isErrno(err, syscall.ECONNREFUSED) {
			t.Errorf("udp %s: %v", ip, err)
		}
	}
	if _, took, err := w.guestDial(a, "tcp4", publicAddr+":25"); !isErrno(err, syscall.ECONNREFUSED) || took > atOnce {
		t.Errorf("smtp: %v after %v", err, took)
	}
	// And the way is open where it should be.
	c, _, err := w.guestDial(a, "tcp4", publicAddr+":80")
	w.must(err)
	w.must(c.Close())
	w.eventually("the allowed connection arrives", func() bool { return len(w.arrivals()) > len(targets) })
	if got := w.arrivals()[len(targets):]; len(got) != 1 || got[0] != "tcp "+publicAddr+":80" {
		t.Errorf("arrived: %v", got)
	}
	w.refusals(t, "inside", map[string]string{
		"10.1.2.3": "private", "169.254.169.254": "metadata", "100.64.1.1": "cgnat", uplinkAddr: "host", uplinkOther: "host",
		"192.0.2.255": "host", "169.254.10.10": "link-local", publicAddr: "smtp", "198.18.0.2": "gate", "168.63.129.16": "metadata",
	})
}

// sendTo sends a datagram and returns what the guest learns of it.
func (w *world) sendTo(a sandbox.Attachment, addr string) error {
	c, _, err := w.guestDial(a, "udp4", addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	w.must(c.SetDeadline(time.Now().Add(5 * time.Second)))
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

// refusals holds the refusal log of a network against address and rule.
func (w *world) refusals(t *testing.T, id string, want map[string]string) {
	t.Helper()
	m := &Manager{cfg: Config{RunDir: filepath.Join(w.dir, "run")}}
	list, err := m.Refusals(id, time.Time{})
	w.must(err)
	for addr, rule := range want {
		if !slices.ContainsFunc(list, func(r sandbox.NetworkRefusal) bool { return r.Addr.String() == addr && r.Rule == rule }) {
			t.Errorf("the log has no refusal of %s by rule %s", addr, rule)
		}
	}
	if t.Failed() {
		t.Logf("refusals: %+v", list)
	}
}

// TestHostAddressAppears gives the host an address while the gate runs.
func TestHostAddressAppears(t *testing.T) {
	w := newWorld(t)
	const late = "203.0.113.99"
	w.listenTCP(w.outer, public2Addr+":80", echo)
	a := w.attach(w.manager(nil), "late")
	w.in(w.uplink, func() error { return addrs("up", late+"/32") })
	w.listenTCP(w.uplink, late+":80", echo)
	w.eventually("the new address is refused", func() bool {
		c, _, err := w.guestDial(a, "tcp4", late+":80")
		if err == nil {
			w.must(c.Close())
		}
		return isErrno(err, syscall.ECONNREFUSED)
	})
	w.in(w.uplink, func() error {
		l, err := netlink.LinkByName("up")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(public2Addr + "/32")
		return errors.Join(err, netlink.AddrAdd(l, addr))
	})
	w.eventually("an address that was a neighbour's is refused", func() bool {
		c, _, err := w.guestDial(a, "tcp4", public2Addr+":80")
		if err == nil {
			w.must(c.Close())
		}
		return isErrno(err, syscall.ECONNREFUSED)
	})
}

func (w *world) query(a sandbox.Attachment, network, name string, qtype uint16) (m *dns.Msg) {
	w.t.Helper()
	w.in(a.Namespace, func() (err error) {
		c := dns.Client{Net: network, Timeout: 5 * time.Second}
		m, _, err = c.Exchange(new(dns.Msg).SetQuestion(name, qtype), a.Resolver.String()+":53")
		return err
	})
	return m
}

func TestResolver(t *testing.T) {
	w := newWorld(t)
	w.resolver(zone(t))
	a := w.attach(w.manager(nil), "dns")
	for _, c := range []struct {
		name  string
		qtype uint16
		want  string
		rcode int
	}{
		{"public.test.", dns.TypeA, publicAddr, 0},
		{"PUBLIC.test.", dns.TypeA, publicAddr, 0},
		{"alias.test.", dns.TypeA, "public.test. " + publicAddr, 0},
		{"public.test.", dns.TypeAAAA, "", 0},
		{"public.test.", dns.TypeTXT, "hello", 0},
		{"public.test.", dns.TypeMX, "10", 0},
		{"_http._tcp.test.", dns.TypeSRV, "0", 0},
		{"10.100.51.198.in-addr.arpa.", dns.TypePTR, "public.test.", 0},
		{"public.test.", dns.TypeHTTPS, "", 0},
		{"mixed.test.", dns.TypeA, publicAddr, 0},
		{"rebind.test.", dns.TypeA, "", dns.RcodeNameError},
		{"rebind-alias.test.", dns.TypeA, "", dns.RcodeNameError},
		{"metadata.test.", dns.TypeA, "", dns.RcodeNameError},
		{"host.test.", dns.TypeA, "", dns.RcodeNameError},
		{"3.2.1.10.in-addr.arpa.", dns.TypePTR, "", dns.RcodeNameError},
		{"nothing.test.", dns.TypeA, "", dns.RcodeNameError},
	} {
		for _, network := range []string{"udp", "tcp"} {
			m := w.query(a, network, c.name, c.qtype)
			var got []string
			for _, rr := range m.Answer {
				got = append(got, dns.Field(rr, 1))
			}
			if strings.Join(got, " ") != c.want || m.Rcode != c.rcode {
				t.Errorf("%s %s over %s: %q code %d, want %q code %d", c.name, dns.TypeToString[c.qtype], network, got, m.Rcode, c.want, c.rcode)
			}
		}
	}
	if m := w.query(a, "udp", "big.test.", dns.TypeA); !m.Truncated {
		t.Errorf("60 addresses in 512 bytes: %d and not truncated", len(m.Answer))
	}
	if m := w.query(a, "tcp", "big.test.", dns.TypeA); len(m.Answer) != 60 {
		t.Errorf("over tcp: %d addresses, want 60", len(m.Answer))
	}
	for _, s := range w.arrivals() {
		if strings.Contains(s, "3.2.1.10") {
			t.Errorf("the resolver was asked for a private reverse name: %s", s)
		}
	}
	w.refusals(t, "dns", map[string]string{"10.1.2.3": "private", "169.254.169.254": "metadata", uplinkAddr: "host"})
}

// TestSpoofed sends frames straight onto the TAP, as a guest does whose kernel
// was taken over.
func TestSpoofed(t *testing.T) {
	w := newWorld(t)
	w.listenUDP(w.outer, publicAddr+":80")
	a := w.attach(w.manager(nil), "spoofed")
	var fd, index int
	w.in(a.Namespace, func() (err error) {
		link, err := net.InterfaceByName(handover.TAPName)
		if err != nil {
			return err
		}
		index = link.Index
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	defer func() { w.must(unix.Close(fd)) }()
	send := func(src, dst [4]byte, change func([]byte)) {
		b := udpFrame(src, dst, 80, "spoof")
		if change != nil {
			change(b)
		}
		w.must(unix.Sendto(fd, b, 0, &unix.SockaddrLinklayer{Ifindex: index}))
	}
	guest, public := handover.GuestAddr.As4(), [4]byte{198, 51, 100, 10}
	for _, src := range [][4]byte{{1, 2, 3, 4}, {198, 18, 0, 2}, {127, 0, 0, 1}, {192, 0, 2, 2}, {0, 0, 0, 0}, {255, 255, 255, 255}} {
		send(src, public, nil)
	}
	send(guest, public, func(b []byte) { b[0] ^= 4 })                 // to a foreign station
	send(guest, public, func(b []byte) { b[14] = 0x46 })              // with options
	send(guest, public, func(b []byte) { b[24] ^= 1 })                // with a wrong checksum
	send(guest, public, func(b []byte) { b[12], b[13] = 0x86, 0xdd }) // as IPv6
	if got := w.arrivals(); len(got) != 0 {
		t.Errorf("arrived: %v", got)
	}
	// The last one is in order, and shows that the others were seen before it.
	send(guest, public, nil)
	w.eventually("the frame that is in order arrives", func() bool { return len(w.arrivals()) > 0 })
	if got := w.arrivals(); len(got) != 1 {
		t.Errorf("arrived: %v, want one datagram", got)
	}
}

// udpFrame returns a whole frame from the guest's station to the gate's.
func udpFrame(src, dst [4]byte, port uint16, payload string) []byte {
	b := slices.Concat(handover.GateMAC, handover.GuestMAC, []byte{8, 0})
	size := 28 + len(payload)
	ip := []byte{0x45, 0, byte(size >> 8), byte(size), 0, 0, 0, 0, 64, 17, 0, 0}
	ip = append(append(ip, src[:]...), dst[:]...)
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(ip[i])<<8 | uint32(ip[i+1])
	}
	sum = sum>>16 + sum&0xffff
	sum += sum >> 16
	ip[10], ip[11] = byte(^sum>>8), byte(^sum)
	udp := []byte{0x9c, 0x40, byte(port >> 8), byte(port), 0, byte(8 + len(payload)), 0, 0}
	return slices.Concat(b, ip, udp, []byte(payload))
}

func TestModeNone(t *testing.T) {
	w := newWorld(t)
	w.listenTCP(w.outer, publicAddr+":80", echo)
	m := w.manager(nil)
	a, err := m.Attach(t.Context(), "none", sandbox.NetworkPolicy{Mode: sandbox.NetworkNone})
	w.must(err)
	if a.Resolver.IsValid() || len(gatePIDs(t)) != 0 {
		t.Errorf("mode none has a resolver (%v) or a gate (%v)", a.Resolver, gatePIDs(t))
	}
	w.in(a.Namespace, func() error {
		links, err := net.Interfaces()
		if err != nil || len(links) != 1 || links[0].Flags&net.FlagUp == 0 {
			t.Errorf("interfaces: %v, %v", links, err)
		}
		return nil
	})
	if _, took, err := w.guestDial(a, "tcp4", publicAddr+":80"); !isErrno(err, syscall.ENETUNREACH) || took > atOnce {
		t.Errorf("dial: %v after %v", err, took)
	}
	w.must(m.Detach(context.Background(), "none"))
	if l := w.count(m.cfg.RunDir); l != (leftovers{}) {
		t.Errorf("left: %+v", l)
	}
	if _, err := os.Stat(a.Namespace); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the namespace: %v", err)
	}
}
