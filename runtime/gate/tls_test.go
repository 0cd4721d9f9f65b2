package gate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"mediasandbox/runtime/sandbox"
)

// startTLS serves TLS on the host's loopback, with HTTP/2 if that is wanted,
// and returns its address and the authority that a client must trust. It
// answers a body with its digest, and /big with size bytes.
func (w *world) startTLS(http2 bool, size int) (addr string, trust *x509.CertPool) {
	w.t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/big" {
			_, _ = io.CopyN(rw, rand.NewChaCha8([32]byte{1}), int64(size))
			return
		}
		sum := sha256.New()
		n, err := io.Copy(sum, r.Body)
		_, _ = fmt.Fprintf(rw, "%s %d %x %v", r.Proto, n, sum.Sum(nil), err)
	}))
	w.must(server.Listener.Close())
	w.in(w.uplink, func() (err error) {
		server.Listener, err = net.Listen("tcp4", "127.0.0.1:0")
		return err
	})
	server.EnableHTTP2 = http2
	server.StartTLS()
	w.t.Cleanup(server.Close)
	trust = x509.NewCertPool()
	trust.AddCert(server.Certificate())
	return server.Listener.Addr().String(), trust
}

// TestTLS speaks HTTP/1.1 and HTTP/2 over TLS with a server that is mapped by
// name: many requests at once, a large upload and a large download.
func TestTLS(t *testing.T) {
	const size, requests = 32 << 20, 200
	for proto, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(proto[:6], func(t *testing.T) {
			w := newWorld(t)
			addr, trust := w.startTLS(http2, size)
			service, err := sandbox.ParseNetworkService("index.internal:443 = " + addr)
			w.must(err)
			a := w.attachWith(w.manager(nil), "tls", sandbox.NetworkPolicy{
				Mode: sandbox.NetworkAllowlist, Rules: rulesOf(t, "allow tcp index.internal:443"),
				Operator: sandbox.NetworkOperator{Services: []sandbox.NetworkService{service}},
			})
			standIn := w.lookup(a, "index.internal.")
			client := &http.Client{Transport: &http.Transport{
				ForceAttemptHTTP2: http2,
				// The name on the test server's certificate.
				TLSClientConfig: &tls.Config{RootCAs: trust, ServerName: "example.com"},
				DialContext: func(context.Context, string, string) (net.Conn, error) {
					c, _, err := w.guestDial(a, "tcp4", standIn+":443")
					return c, err
				},
			}}
			defer client.CloseIdleConnections()
			var all sync.WaitGroup
			for i := range requests {
				all.Go(func() {
					body := bytes.Repeat([]byte{byte(i)}, 1000+i)
					want := fmt.Sprintf("%s %d %x <nil>", proto, len(body), sha256.Sum256(body))
					if got, err := post(client, bytes.NewReader(body)); err != nil || got != want {
						t.Errorf("request %d: %q, %v, want %q", i, got, err, want)
					}
				})
			}
			all.Wait()
			sum := sha256.New()
			got, err := post(client, io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{2}), size), sum))
			if want := fmt.Sprintf("%s %d %x <nil>", proto, size, sum.Sum(nil)); err != nil || got != want {
				t.Errorf("the upload: %q, %v, want %q", got, err, want)
			}
			res, err := client.Get("https://index.internal/big")
			w.must(err)
			down, want := sha256.New(), sha256.New()
			n, err := io.Copy(down, res.Body)
			w.must(res.Body.Close())
			_, werr := io.CopyN(want, rand.NewChaCha8([32]byte{1}), size)
			w.must(werr)
			if err != nil || n != size || !bytes.Equal(down.Sum(nil), want.Sum(nil)) {
				t.Errorf("the download: %d bytes, %v", n, err)
			}
		})
	}
}

func post(client *http.Client, body io.Reader) (string, error) {
	res, err := client.Post("https://index.internal/", "application/octet-stream", body)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(res.Body)
	if cerr := res.Body.Close(); err == nil {
		err = cerr
	}
	return string(text), err
}
