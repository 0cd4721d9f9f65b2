// Command probe is the guest in tests: a static program that tries to reach
// addresses from inside a sandbox and says what came of it. It reads a request
// a line, as JSON, and answers each with a line.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// Request is what to try.
type Request struct {
	// Do is "tcp", "udp", "lookup", "ping", "send", "fetch", "push" or
	// "connect". TCP connections stay open under Keep, and "send" uses them.
	// "fetch" and "push" move Count bytes; "connect" connects Count times.
	// What else there is, hostile.go has.
	Do   string
	Net  string
	Addr string
	Send string
	Keep string

	Count int64
	// Frames are what "frames" sends.
	Frames [][]byte
}

// Reply is what came of it.
type Reply struct {
	Got   string
	Err   string
	Errno string
	// Millis is how long it took.
	Millis float64
}

const patience = 5 * time.Second

var kept = map[string]net.Conn{}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 32<<20)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var req Request
		if err := json.Unmarshal(in.Bytes(), &req); err != nil {
			fmt.Fprintln(os.Stderr, "probe:", err)
			os.Exit(1)
		}
		start := time.Now()
		got, err := do(req)
		rep := Reply{Got: got, Millis: float64(time.Since(start).Microseconds()) / 1000}
		if err != nil {
			rep.Err = err.Error()
			var errno syscall.Errno
			if errors.As(err, &errno) {
				rep.Errno = errnoNames[errno]
			}
		}
		if err := out.Encode(rep); err != nil {
			fmt.Fprintln(os.Stderr, "probe:", err)
			os.Exit(1)
		}
	}
}

var errnoNames = map[syscall.Errno]string{
	syscall.ECONNREFUSED: "ECONNREFUSED", syscall.ECONNRESET: "ECONNRESET", syscall.ENETUNREACH: "ENETUNREACH",
	syscall.EHOSTUNREACH: "EHOSTUNREACH", syscall.ETIMEDOUT: "ETIMEDOUT", syscall.EPIPE: "EPIPE", syscall.EACCES: "EACCES",
}

func do(req Request) (string, error) {
	switch req.Do {
	case "tcp", "udp":
		c, err := net.DialTimeout(req.Do+req.Net, req.Addr, patience)
		if err != nil {
			return "", err
		}
		if req.Keep != "" {
			kept[req.Keep] = c
		} else {
			defer func() { _ = c.Close() }()
		}
		return roundTrip(c, req.Send)
	case "send":
		return roundTrip(kept[req.Keep], req.Send)
	case "lookup":
		return lookup(req)
	case "ping":
		return ping(req.Addr)
	case "fetch", "push":
		return "", move(req)
	case "connect":
		for range req.Count {
			c, err := net.Dial("tcp4", req.Addr)
			if err != nil {
				return "", err
			}
			if err := c.Close(); err != nil {
				return "", err
			}
		}
		return "", nil
	}
	if got, ok, err := hostile(req); ok {
		return got, err
	}
	return "", fmt.Errorf("unknown request %q", req.Do)
}

// roundTrip sends and waits for as many bytes.
func roundTrip(c net.Conn, send string) (string, error) {
	if send == "" {
		return "", nil
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, send); err != nil {
		return "", err
	}
	b := make([]byte, len(send))
	n, err := io.ReadFull(c, b)
	return string(b[:n]), err
}

// move transfers Count bytes in big pieces.
func move(req Request) error {
	c, err := net.Dial("tcp4", req.Addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	b := make([]byte, 256<<10)
	for left := req.Count; left > 0; {
		n := 0
		if req.Do == "fetch" {
			n, err = c.Read(b)
		} else {
			n, err = c.Write(b[:min(left, int64(len(b)))])
		}
		if err != nil {
			return err
		}
		left -= int64(n)
	}
	return nil
}

func lookup(req Request) (string, error) {
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, req.Addr)
	}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	addrs, err := r.LookupHost(ctx, req.Send)
	return fmt.Sprint(addrs), err
}

// ping sends an echo request over a raw socket and returns the type and code
// of what comes back.
func ping(addr string) (string, error) {
	c, err := net.Dial("ip4:icmp", addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	listen, err := net.ListenPacket("ip4:icmp", "0.0.0.0")
	if err != nil {
		return "", err
	}
	defer func() { _ = listen.Close() }()
	if err := listen.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte{8, 0, 0xf7, 0xfd, 0, 1, 0, 1}); err != nil {
		return "", err
	}
	b := make([]byte, 1500)
	for {
		n, from, err := listen.ReadFrom(b)
		if err != nil {
			return "", err
		}
		if n >= 2 && b[0] != 8 {
			return fmt.Sprintf("type %d code %d from %s", b[0], b[1], from), nil
		}
	}
}
