package daemon_test

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
)

// TestReadersThatNeverRead: a flood whose followers do not read ends as it would
// alone; the follower that reads gets each byte, and the daemon keeps none for
// the others.
func TestReadersThatNeverRead(t *testing.T) {
	const flood = 64 << 20
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.Output = 2 * flood })
	succeeded(t, d, d.Shell("true"))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	cmd, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: fmt.Sprintf("sleep 0.5; head -c %d /dev/zero; echo complaint >&2", flood)})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		conn, err := net.Dial("unix", d.Config.Paths.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /v1/chats/default/commands/%s/output?follow=true HTTP/1.1\r\nHost: media-sandbox\r\n\r\n", cmd.ID)
	}
	var got int64
	ended, err := d.Output(t.Context(), api.DefaultChat, cmd.ID, true, func(c api.OutputChunk) error {
		if c.Stream == "stdout" {
			got += int64(len(c.Data))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	succeeded(t, d, ended)
	if got != flood {
		t.Errorf("%d bytes were read, want %d", got, flood)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
		t.Errorf("the daemon keeps %d MiB for readers that do not read", grown>>20)
	}
}

// TestAFloodStarvesNobody: while a command floods stdout, what it says on stderr
// and what another command of the chat prints come through.
func TestAFloodStarvesNobody(t *testing.T) {
	d := daemontest.Start(t)
	flood, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: "(while :; do echo complaint >&2; sleep 0.2; done) & exec cat /dev/zero"})
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(90 * time.Second); ; <-time.After(50 * time.Millisecond) {
		_, errs := d.Printed(flood)
		now, err := d.Command(t.Context(), api.DefaultChat, flood.ID)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(errs, "complaint\n") >= 3 && now.Stdout.Bytes > 32<<20 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes of stdout, stderr %q", now.Stdout.Bytes, errs)
		}
	}
	other := succeeded(t, d, d.Shell("echo beside it"))
	if out, _ := d.Printed(other); out != "beside it\n" {
		t.Errorf("the other command printed %q", out)
	}
	if err := d.Kill(t.Context(), api.DefaultChat, flood.ID, 0); err != nil {
		t.Fatal(err)
	}
	if ended, err := d.Wait(t.Context(), api.DefaultChat, flood.ID); err != nil || ended.State != api.StateCanceled {
		t.Errorf("it ended as %s, %v", ended.State, err)
	}
}

// TestFollowersOfWhatEndsJustNow ask for the output of short commands at every
// moment around their end: each gets the record of the end. The moment that it
// hunts is short: a fault there shows in some runs only.
func TestFollowersOfWhatEndsJustNow(t *testing.T) {
	d := daemontest.Start(t)
	succeeded(t, d, d.Shell("true"))
	for i := range 60 {
		cmd, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Argv: []string{"true"}})
		if err != nil {
			t.Fatal(err)
		}
		var followers sync.WaitGroup
		for k := range 8 {
			followers.Go(func() {
				<-time.After(time.Duration(i+60*k) * 150 * time.Microsecond)
				ended, err := d.Output(t.Context(), api.DefaultChat, cmd.ID, true, func(api.OutputChunk) error { return nil })
				if err != nil || ended.State != api.StateSucceeded {
					t.Errorf("command %d: %s, %v", i, ended.State, err)
				}
			})
		}
		followers.Wait()
	}
}
