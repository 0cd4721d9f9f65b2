package daemon_test

import (
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/uploader/s3/s3test"
)

// onS3 keeps a daemon's cells on the server, reached at endpoint.
func onS3(t *testing.T, server *s3test.Server, endpoint string) daemontest.Option {
	t.Helper()
	secrets := t.TempDir()
	key, secret := filepath.Join(secrets, "key"), filepath.Join(secrets, "secret")
	for path, text := range map[string]string{key: server.AccessKeyID, secret: server.SecretAccessKey} {
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return func(c *config.Config) {
		c.Store.Kind = "s3"
		c.Store.S3 = config.S3{
			Bucket: server.Bucket, Region: "us-east-1", Endpoint: endpoint, PathStyle: true, Prefix: "cells",
			PresignExpiry: config.Duration(time.Hour), AccessKeyFile: key, SecretKeyFile: secret,
		}
	}
}

// flaky stands before an S3 server, on the loopback address, and does to its
// traffic what bad networks and busy services do.
type flaky struct {
	*httptest.Server
	proxy *httputil.ReverseProxy
	// seen counts the requests.
	seen atomic.Int64
	// arrived gets a word of each request, when somebody waits for it.
	arrived chan struct{}

	// mu guards the rest.
	mu     sync.Mutex
	r      *rand.Rand
	calm   bool
	faults map[string]int
}

// faultShare is how many of a hundred requests meet a fault.
const faultShare = 25

func newFlaky(t *testing.T, endpoint string, seed uint64) *flaky {
	t.Helper()
	to, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	f := &flaky{r: rand.New(rand.NewPCG(seed, 3)), faults: map[string]int{}, arrived: make(chan struct{}, 1)}
	f.proxy = &httputil.ReverseProxy{
		// The Host header stays, since it is signed.
		Rewrite:      func(p *httputil.ProxyRequest) { p.Out.URL.Scheme, p.Out.URL.Host = to.Scheme, to.Host },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0), // each fault would be a line
	}
	f.Server = httptest.NewUnstartedServer(f)
	f.Server.Config.ErrorLog = f.proxy.ErrorLog
	f.Server.Start()
	t.Cleanup(f.Server.Close)
	return f
}

// calmDown ends the faults.
func (f *flaky) calmDown() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calm = true
}

// draw chooses what happens to a request, and how long it stalls.
func (f *flaky) draw() (fault string, stall time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calm || f.r.IntN(100) >= faultShare {
		return "", 0
	}
	kinds := []string{"500", "503", "500 afterwards", "drop", "drop the answer", "stall", "stall and drop", "truncate the request", "truncate the answer"}
	fault = kinds[f.r.IntN(len(kinds))]
	f.faults[fault]++
	return fault, time.Duration(f.r.IntN(1500)) * time.Millisecond
}

// ServeHTTP implements http.Handler.
func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.seen.Add(1)
	select {
	case f.arrived <- struct{}{}:
	default:
	}
	fault, stall := f.draw()
	switch fault {
	case "500", "503":
		refuse(w, fault)
	case "500 afterwards":
		f.proxy.ServeHTTP(httptest.NewRecorder(), r)
		refuse(w, "500")
	case "drop the answer":
		f.proxy.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case "drop":
		panic(http.ErrAbortHandler)
	case "stall", "stall and drop":
		select {
		case <-time.After(stall):
		case <-r.Context().Done():
		}
		if fault != "stall" {
			panic(http.ErrAbortHandler)
		}
		f.proxy.ServeHTTP(w, r)
	case "truncate the request":
		r.Body = io.NopCloser(io.MultiReader(io.LimitReader(r.Body, r.ContentLength/2), broken{}))
		f.proxy.ServeHTTP(w, r)
	case "truncate the answer":
		f.proxy.ServeHTTP(&cut{ResponseWriter: w}, r)
	default:
		f.proxy.ServeHTTP(w, r)
	}
}

func refuse(w http.ResponseWriter, fault string) {
	status, code := http.StatusInternalServerError, "InternalError"
	if fault == "503" {
		status, code = http.StatusServiceUnavailable, "SlowDown"
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `<?xml version="1.0"?><Error><Code>`+code+`</Code><Message>a fault of the test</Message></Error>`) // the daemon may be dead
}

// broken is the end of a connection in the middle of a body.
type broken struct{}

// Read implements io.Reader.
func (broken) Read([]byte) (int, error) { return 0, errors.New("cut by the test") }

// cut sends the head of an answer, half of the first piece of its body, and
// drops the connection.
type cut struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter. It promises more than will come.
func (c *cut) WriteHeader(status int) {
	if status == http.StatusOK {
		c.Header().Set("Content-Length", "100000")
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (c *cut) Write(p []byte) (int, error) {
	_, _ = c.ResponseWriter.Write(p[:len(p)/2])
	panic(http.ErrAbortHandler)
}
