package gate

import (
	"io"
	"net"
	"testing"
)

// The benchmarks compare a guest behind the gate with a process of the host,
// on the way to the same listener. The kernel plays the guest: what runsc's own
// stack costs is not in the figures.

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
