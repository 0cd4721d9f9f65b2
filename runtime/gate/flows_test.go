package gate

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestTransfer moves more than fits any buffer, both ways at once, and ends
// one side before the other.
func TestTransfer(t *testing.T) {
	w := newWorld(t)
	w.listenTCP(w.outer, publicAddr+":80", echo)
	a := w.attach(w.manager(nil), "transfer")
	c, _, err := w.guestDial(a, "tcp4", publicAddr+":80")
	w.must(err)
	defer func() { _ = c.Close() }()
	const size = 64 << 20
	sent, got := sha256.New(), sha256.New()
	var sender sync.WaitGroup
	sender.Go(func() {
		r := rand.NewChaCha8([32]byte{1})
		if _, err := io.CopyN(io.MultiWriter(c, sent), r, size); err != nil {
			t.Errorf("send: %v", err)
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Errorf("close one side: %v", err)
		}
	})
	// The echo ends when it has seen our end, so this ends only if both
	// half-closes got through.
	n, err := io.Copy(got, c)
	sender.Wait()
	if err != nil || n != size || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Errorf("%d of %d bytes came back, %v", n, size, err)
	}
}

// TestResets holds that a reset by either end reaches the other as one.
func TestResets(t *testing.T) {
	w := newWorld(t)
	reset := make(chan error, 1)
	w.listenTCP(w.outer, publicAddr+":80", func(c *net.TCPConn) {
		_, err := c.Read(make([]byte, 1))
		if err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		reset <- err
	})
	w.listenTCP(w.outer, publicAddr+":81", func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.SetLinger(0)
		_ = c.Close()
	})
	a := w.attach(w.manager(nil), "resets")
	c, _, err := w.guestDial(a, "tcp4", publicAddr+":80")
	w.must(err)
	_, err = c.Write([]byte("x"))
	w.must(err)
	w.must(c.(*net.TCPConn).SetLinger(0))
	w.must(c.Close())
	select {
	case err := <-reset:
		if !isErrno(err, syscall.ECONNRESET) {
			t.Errorf("the far end saw %v, want a reset", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the far end saw nothing of a reset")
	}
	c, _, err = w.guestDial(a, "tcp4", publicAddr+":81")
	w.must(err)
	_, err = c.Write([]byte("x"))
	w.must(err)
	w.must(c.SetDeadline(time.Now().Add(5 * time.Second)))
	if _, err := c.Read(make([]byte, 1)); !isErrno(err, syscall.ECONNRESET) {
		t.Errorf("the guest saw %v, want a reset", err)
	}
	w.must(c.Close())
}

// TestThousandFlows opens a thousand connections and uses all of them.
func TestThousandFlows(t *testing.T) {
	w := newWorld(t)
	w.listenTCP(w.outer, publicAddr+":80", echo)
	m := w.manager(nil)
	a := w.attach(m, "thousand")
	before := gatePIDs(t)
	const n = 1000
	conns := make([]net.Conn, n)
	w.in(a.Namespace, func() error {
		for i := range conns {
			c, err := net.DialTimeout("tcp4", publicAddr+":80", 10*time.Second)
			if err != nil {
				return fmt.Errorf("connection %d: %w", i, err)
			}
			conns[i] = c
		}
		return nil
	})
	var all sync.WaitGroup
	for i, c := range conns {
		all.Go(func() {
			defer func() { _ = c.Close() }()
			msg := bytes.Repeat([]byte{byte(i)}, 10000)
			if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Error(err)
			}
			if _, err := c.Write(msg); err != nil {
				t.Errorf("connection %d: %v", i, err)
				return
			}
			got := make([]byte, len(msg))
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, msg) {
				t.Errorf("connection %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if now := gatePIDs(t); !slices.Equal(now, before) {
		t.Errorf("the gate was %v and is %v: it did not live through it", before, now)
	}
}
