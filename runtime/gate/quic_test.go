package gate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/net/quic"

	"mediasandbox/runtime/sandbox"
)

// TestQUIC moves bytes both ways over QUIC, which public mode lets out.
func TestQUIC(t *testing.T) {
	const size = 4 << 20
	w := newWorld(t)
	pattern := httptest.NewTLSServer(nil) // for its certificate
	pattern.Close()
	trust := x509.NewCertPool()
	trust.AddCert(pattern.Certificate())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var server, client *quic.Endpoint
	w.in(w.outer, func() (err error) {
		server, err = quic.Listen("udp4", publicAddr+":443", &quic.Config{TLSConfig: &tls.Config{
			Certificates: pattern.TLS.Certificates, MinVersion: tls.VersionTLS13, NextProtos: []string{"echo"},
		}})
		return err
	})
	served := make(chan error, 1)
	go func() { served <- echoQUIC(ctx, server) }()
	m := w.manager(nil)
	a := w.attach(m, "quic")
	w.in(a.Namespace, func() (err error) {
		client, err = quic.Listen("udp4", "198.18.0.3:0", nil)
		return err
	})
	conn, err := client.Dial(ctx, "udp4", publicAddr+":443", &quic.Config{TLSConfig: &tls.Config{
		RootCAs: trust, ServerName: "example.com", MinVersion: tls.VersionTLS13, NextProtos: []string{"echo"},
	}})
	w.must(err)
	s, err := conn.NewStream(ctx)
	w.must(err)
	s.SetReadContext(ctx)
	s.SetWriteContext(ctx)
	want, got := sha256.New(), sha256.New()
	sent := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.MultiWriter(s, want), rand.NewChaCha8([32]byte{1}), size)
		sent <- errors.Join(err, s.CloseWrite())
	}()
	n, err := io.Copy(got, s)
	if serr := <-sent; err != nil || serr != nil || n != size || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Errorf("%d of %d bytes came back: %v, %v", n, size, err, serr)
	}
	traffic, err := m.Traffic(ctx, "quic")
	w.must(err)
	if traffic.OpenUDP != 1 || traffic.Sent < size || traffic.Received < size {
		t.Errorf("traffic: %+v", traffic)
	}
	// The chat takes it away, and what is under way goes nowhere.
	w.must(m.SetPolicy(ctx, "quic", sandbox.NetworkPolicy{Mode: sandbox.NetworkPublic, Rules: rulesOf(t, "deny udp *")}))
	if now, err := m.Traffic(ctx, "quic"); err != nil || now.OpenUDP != 0 || now.CutBy["chat"] != 1 {
		t.Errorf("traffic: %+v, %v", now, err)
	}
	conn.Abort(nil)
	w.must(client.Close(ctx))
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// echoQUIC sends back what comes on the first stream of the first connection,
// and closes the endpoint once ctx ends.
func echoQUIC(ctx context.Context, e *quic.Endpoint) error {
	conn, err := e.Accept(ctx)
	if err != nil {
		return errors.Join(err, e.Close(ctx))
	}
	s, err := conn.AcceptStream(ctx)
	if err == nil {
		s.SetReadContext(ctx)
		s.SetWriteContext(ctx)
		_, err = io.Copy(s, s)
		err = errors.Join(err, s.CloseWrite())
	}
	<-ctx.Done()
	conn.Abort(nil)
	end, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cancel() // it is not waited for: the other end is gone
	if cerr := e.Close(end); !errors.Is(cerr, context.Canceled) {
		err = errors.Join(err, cerr)
	}
	return err
}
