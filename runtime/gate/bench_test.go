package gate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"mediasandbox/runtime/sandbox"
)

// The benchmarks compare a guest behind the gate with the plain way to the same
// listener: BenchmarkSandbox with runsc over a veth, the others, in which the
// kernel plays the guest, with a process of the host.

// endless writes until the peer goes.
func endless(c *net.TCPConn) {
	b := make([]byte, 256<<10)
	for {
		if _, err := c.Write(b); err != nil {
			_ = c.Close()
			return
		}
	}
}

func sink(c *net.TCPConn) {
	// The benchmark's end is this connection's.
	_, _ = io.Copy(io.Discard, c)
	_ = c.Close()
}

// sides runs a benchmark over the gate and without it.
func sides(b *testing.B, run func(b *testing.B, dial func(addr string) (net.Conn, error))) {
	w := newWorld(b)
	w.listenTCP(w.outer, publicAddr+":80", endless)
	w.listenTCP(w.outer, publicAddr+":81", sink)
	w.listenTCP(w.outer, publicAddr+":82", func(c *net.TCPConn) { _ = c.Close() })
	m := w.manager(nil)
	a := w.attach(m, "bench")
	from := func(ns string) func(string) (net.Conn, error) {
		return func(addr string) (c net.Conn, err error) {
			err = inNamespace(ns, func() error {
				c, err = net.Dial("tcp4", addr)
				return err
			})
			return c, err
		}
	}
	b.Run("gate", func(b *testing.B) { run(b, from(a.Namespace)) })
	b.Run("veth", func(b *testing.B) { run(b, from(w.uplink)) })
}

const benchChunk = 1 << 20

func BenchmarkDownload(b *testing.B) {
	sides(b, func(b *testing.B, dial func(string) (net.Conn, error)) {
		c, err := dial(publicAddr + ":80")
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		buf := make([]byte, benchChunk)
		b.SetBytes(benchChunk)
		for b.Loop() {
			if _, err := io.ReadFull(c, buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkUpload(b *testing.B) {
	sides(b, func(b *testing.B, dial func(string) (net.Conn, error)) {
		c, err := dial(publicAddr + ":81")
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		buf := make([]byte, benchChunk)
		b.SetBytes(benchChunk)
		for b.Loop() {
			if _, err := c.Write(buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkConnect(b *testing.B) {
	sides(b, func(b *testing.B, dial func(string) (net.Conn, error)) {
		for b.Loop() {
			c, err := dial(publicAddr + ":82")
			if err != nil {
				b.Fatal(err)
			}
			_ = c.Close()
		}
	})
}

// vethGuest makes a namespace for a sandbox that is wired to the outside
// without a gate.
func (w *world) vethGuest() sandbox.Attachment {
	w.t.Helper()
	path := filepath.Join(w.dir, "wired")
	w.must(ignoreMade(inNewNamespace(path, loopbackUp)))
	w.t.Cleanup(func() { w.must(unix.Unmount(path, unix.MNT_DETACH)) })
	outer, err := os.Open(w.outer)
	w.must(err)
	defer func() { _ = outer.Close() }()
	w.in(path, func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "wired", PeerNamespace: netlink.NsFd(int(outer.Fd()))}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		return errors.Join(addrs("eth0", "192.0.3.2/24"), netlink.LinkSetUp(veth))
	})
	w.in(w.outer, func() error { return addrs("wired", "192.0.3.1/24") })
	w.in(path, func() error { return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("192.0.3.1")}) })
	return sandbox.Attachment{Namespace: path}
}

func BenchmarkSandbox(b *testing.B) {
	w := newWorld(b)
	w.listenTCP(w.outer, publicAddr+":80", endless)
	w.listenTCP(w.outer, publicAddr+":81", sink)
	w.listenTCP(w.outer, publicAddr+":82", func(c *net.TCPConn) { _ = c.Close() })
	m := w.manager(nil)
	guests := map[string]*guest{"gate": w.boot(w.attach(m, "bench")), "veth": w.boot(w.vethGuest())}
	for _, c := range []struct {
		name, do, addr string
		each           int64
	}{{"fetch", "fetch", ":80", 1 << 20}, {"push", "push", ":81", 1 << 20}, {"connect", "connect", ":82", 0}} {
		for _, side := range []string{"gate", "veth", "gate", "veth"} {
			b.Run(c.name+"/"+side, func(b *testing.B) {
				b.SetBytes(c.each)
				count := int64(b.N)
				if c.each > 0 {
					count *= c.each
				}
				before := cpuTime(b, gatePIDs(b)[0])
				if r := guests[side].do(ask{Do: c.do, Addr: publicAddr + c.addr, Count: count}); r.Err != "" {
					b.Fatal(r.Err)
				}
				if side == "gate" && c.each > 0 {
					used := cpuTime(b, gatePIDs(b)[0]) - before
					b.ReportMetric(used.Seconds()/(float64(count)/(1<<30)), "gate-CPU-s/GiB")
				}
			})
		}
	}
}

// cpuTime is what a process has used, in user and kernel mode.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	// After the name in parentheses, the 12th and 13th field, in ticks.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		b.Fatal(err)
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 everywhere
	return time.Duration(user+system) * tick
}

// BenchmarkAttach makes and removes a network, and reports a fresh gate's
// resident memory.
func BenchmarkAttach(b *testing.B) {
	w := newWorld(b)
	m := w.manager(nil)
	var kb int
	for b.Loop() {
		_, err := m.Attach(b.Context(), "bench", publicMode)
		w.must(err)
		b.StopTimer()
		_, err = fmt.Sscan(status(b, gatePIDs(b)[0], "VmRSS"), &kb)
		w.must(err)
		b.StartTimer()
		w.must(m.Detach(b.Context(), "bench"))
	}
	b.ReportMetric(float64(kb)/1024, "MB-RSS")
}
