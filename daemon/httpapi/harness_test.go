package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
)

// caller speaks plain HTTP with a daemon's socket.
type caller struct {
	t      *testing.T
	client *http.Client
	header http.Header
}

// callerAs returns a caller that connects as the uid and gid, and root for 0.
func callerAs(t *testing.T, d *daemontest.Daemon, id int) *caller {
	t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		if id == 0 {
			return (&net.Dialer{}).DialContext(ctx, "unix", d.Socket())
		}
		return dialAs(id, d.Socket())
	}
	transport := &http.Transport{DialContext: dial}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{t: t, client: &http.Client{Transport: transport}, header: http.Header{}}
}

// dialAs connects with other credentials, which the kernel takes from the
// thread. The thread ends with its goroutine.
func dialAs(id int, socket string) (net.Conn, error) {
	var conn net.Conn
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		for _, call := range []struct{ nr, a, b, c uintptr }{
			{unix.SYS_SETGROUPS, 0, 0, 0},
			{unix.SYS_SETRESGID, uintptr(id), uintptr(id), uintptr(id)},
			{unix.SYS_SETRESUID, uintptr(id), uintptr(id), uintptr(id)},
		} {
			if _, _, errno := syscall.RawSyscall(call.nr, call.a, call.b, call.c); errno != 0 {
				err = errno
				return
			}
		}
		conn, err = net.Dial("unix", socket)
	}()
	<-done
	return conn, err
}

// answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   string
}

// do makes a request; path and query are sent as they are.
func (c *caller) do(method, target, body string, header ...string) answer {
	c.t.Helper()
	req, err := http.NewRequest(method, "http://daemon"+target, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header = c.header.Clone()
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := c.client.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(text)}
}

// refusal checks that an answer is the one error envelope and returns it.
func (a answer) refusal(t *testing.T) api.Error {
	t.Helper()
	if ct := a.header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("the error's type is %q", ct)
	}
	d := json.NewDecoder(strings.NewReader(a.body))
	d.DisallowUnknownFields()
	var envelope api.ErrorBody
	if err := d.Decode(&envelope); err != nil || envelope.Error == nil {
		t.Fatalf("the error is no envelope (%v): %s", err, a.body)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		t.Errorf("more follows the envelope: %s", a.body)
	}
	e := *envelope.Error
	if e.Code == "" || e.Message == "" || e.RequestID == "" || strings.ContainsRune(e.Message, '\n') {
		t.Errorf("the envelope lacks something: %s", a.body)
	}
	return e
}
