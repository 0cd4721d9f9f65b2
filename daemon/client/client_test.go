package client_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/internal/testenv"
)

// badLine passes connections on to a daemon's socket and breaks each after a
// random number of bytes, as a daemon that is killed again and again does.
func badLine(t *testing.T, socket string, most int) (path string, breaks *atomic.Int64) {
	t.Helper()
	path = filepath.Join(testenv.Dir(t), "bad.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	breaks = new(atomic.Int64)
	random := rand.New(rand.NewPCG(1, 2))
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return // the test is over
			}
			limit := 1 + random.Int64N(int64(most))
			go func() {
				defer near.Close()
				far, err := net.Dial("unix", socket)
				if err != nil {
					t.Error(err)
					return
				}
				defer far.Close()
				go func() { _, _ = io.Copy(far, near) }() // ends with either side
				if n, _ := io.CopyN(near, far, limit); n == limit {
					breaks.Add(1)
				}
			}()
		}
	}()
	return path, breaks
}

func TestOutputIsWholeOverABadLine(t *testing.T) {
	d := daemontest.Start(t)
	cmd, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Python: `
import hashlib, os, random
sums = {1: hashlib.sha256(), 2: hashlib.sha256()}
r = random.Random(3)
for i in range(200):
    fd = 1 + i % 2
    data = r.randbytes(10000)
    sums[fd].update(data)
    while data: data = data[os.write(fd, data):]
print(sums[1].hexdigest(), sums[2].hexdigest(), file=open("/outputs/sums.txt", "w"))
`})
	if err != nil {
		t.Fatal(err)
	}
	path, breaks := badLine(t, d.Socket(), 200_000)
	sums := map[string]hash.Hash{"stdout": sha256.New(), "stderr": sha256.New()}
	ended, err := client.New(path, "").Output(t.Context(), api.DefaultChat, cmd.ID, true, func(c api.OutputChunk) error {
		_, err := sums[c.Stream].Write(c.Data)
		return err
	})
	if err != nil || ended.State != api.StateSucceeded {
		t.Fatalf("%s, %v", ended.State, err)
	}
	r, _, err := d.OpenCell(t.Context(), api.DefaultChat, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	want, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x %x", sums["stdout"].Sum(nil), sums["stderr"].Sum(nil)); got != strings.TrimSpace(string(want)) {
		t.Errorf("got %s, want %s", got, want)
	}
	if breaks.Load() < 5 {
		t.Errorf("the line broke %d times: it tests nothing", breaks.Load())
	}
}

func TestEventsAreWholeOverABadLine(t *testing.T) {
	d := daemontest.Start(t)
	go func() {
		for range 10 {
			cmd, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: "true"})
			if err == nil {
				_, err = d.Wait(t.Context(), api.DefaultChat, cmd.ID)
			}
			if err != nil && t.Context().Err() == nil {
				t.Error(err)
			}
		}
	}()
	path, breaks := badLine(t, d.Socket(), 4000)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last uint64
	ended := 0
	err := client.New(path, "").Events(ctx, api.DefaultChat, 0, func(ev api.Event) error {
		if ev.ID != last+1 {
			t.Errorf("event %d follows %d", ev.ID, last)
		}
		last = ev.ID
		if ev.Command != nil && ev.Command.State.Ended() {
			if ended++; ended == 10 {
				cancel()
			}
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if breaks.Load() < 3 {
		t.Errorf("the line broke %d times: it tests nothing", breaks.Load())
	}
}

func TestErrorsAreTyped(t *testing.T) {
	d := daemontest.Start(t)
	var known *api.Error
	if _, err := d.Cell(t.Context(), api.DefaultChat, 7); !errors.As(err, &known) || known.Code != api.CodeCellNotFound || known.RequestID == "" {
		t.Errorf("an unknown cell: %v", err)
	}
	for _, bad := range []string{"", ".", ".."} {
		if _, err := d.Chat(t.Context(), bad); !errors.As(err, &known) || known.Code != api.CodeInvalid {
			t.Errorf("chat %q: %v", bad, err)
		}
	}
	for _, odd := range []string{"a/b", "a%2Fb", "a?b", "a#b", "ü", "a b", "...", "\x00"} {
		if _, err := d.Chat(t.Context(), odd); !errors.As(err, &known) || known.Code != api.CodeChatNotFound {
			t.Errorf("chat %q: %v", odd, err)
		}
	}
	var away *client.Unreachable
	if _, err := client.New("/nowhere/api.sock", "").Info(t.Context()); !errors.As(err, &away) || away.Socket != "/nowhere/api.sock" {
		t.Errorf("no daemon: %v", err)
	}
	if err := client.New("/nowhere/api.sock", "").Events(t.Context(), "default", 0, nil); !errors.As(err, &away) {
		t.Errorf("events of no daemon: %v", err)
	}
}
