package daemon_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/internal/testenv"
	"mediasandbox/runtime/sandbox"
)

// fetch is Python that fetches a path of the test's service.
const fetch = `
import sys, urllib.request
with urllib.request.urlopen("http://index.internal" + sys.argv[1], timeout=20) as r:
    for line in r:
        print(line.decode().strip(), flush=True)
`

// startService serves on loopback what sandboxes know as index.internal: a
// short page, and a stream that ends when its reader does.
func startService(t *testing.T) sandbox.NetworkService {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "a page") })
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		for i := 0; ; i++ {
			if _, err := fmt.Fprintln(w, "line", i); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	s, err := sandbox.ParseNetworkService("index.internal:80 = " + server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func withService(s sandbox.NetworkService) daemontest.Option {
	return func(c *config.Config) { c.Network.Services = []sandbox.NetworkService{s} }
}

// eventOf waits for an event of a type in the default chat.
func eventOf(t *testing.T, d *daemontest.Daemon, want api.EventType) (found api.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := d.Events(ctx, api.DefaultChat, 0, func(ev api.Event) error {
		if ev.Type == want {
			found = ev
			cancel()
		}
		return nil
	})
	if found.Type != want {
		t.Fatalf("no event %s: %v", want, err)
	}
	return found
}

func setMode(t *testing.T, d *daemontest.Daemon, mode string) {
	t.Helper()
	if _, err := d.SetNetwork(t.Context(), api.DefaultChat, api.NetworkSettings{Mode: &mode}); err != nil {
		t.Fatal(err)
	}
}

// TestNetworkChangesLive cuts off what runs, in a sandbox that waited in the
// pool, and counts over the life of several.
func TestNetworkChangesLive(t *testing.T) {
	d := daemontest.Start(t, withService(startService(t)), func(c *config.Config) { c.Limits.Pool = 1 })
	ctx := t.Context()
	// Narrowed before the sandbox from the pool is the chat's.
	deny := []string{"deny *.internal"}
	if _, err := d.SetNetwork(ctx, api.DefaultChat, api.NetworkSettings{Rules: &deny}); err != nil {
		t.Fatal(err)
	}
	if cmd := d.Finish(api.NewCommand{Python: fetch, Args: []string{"/page"}}); cmd.State != api.StateFailed {
		t.Errorf("a service that the chat denies itself: %s", cmd.State)
	}
	if ev := eventOf(t, d, api.EventNetworkRefused); ev.Refusal == nil || ev.Refusal.Name != "index.internal" || ev.Refusal.Rule != "chat: deny *.internal" {
		t.Errorf("the event is %+v", ev)
	}
	if _, err := d.SetNetwork(ctx, api.DefaultChat, api.NetworkSettings{Rules: &[]string{}}); err != nil {
		t.Fatal(err)
	}
	cmd, err := d.Client.Start(ctx, api.DefaultChat, api.NewCommand{Python: fetch, Args: []string{"/stream"}})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, d, cmd, "line 2")
	flows, err := d.Flows(ctx, api.DefaultChat)
	if err != nil || len(flows.Open) != 1 || flows.Open[0].Name != "index.internal" || flows.Open[0].Rule != "service" || flows.Open[0].Received == 0 {
		t.Errorf("flows: %+v, %v", flows, err)
	}
	setMode(t, d, "none")
	if cmd, err = d.Wait(ctx, api.DefaultChat, cmd.ID); err != nil || cmd.State != api.StateFailed {
		t.Errorf("a stream whose network is taken away: %s, %v", cmd.State, err)
	}
	if _, errs := d.Printed(cmd); !strings.Contains(errs, "Connection reset by peer") {
		t.Errorf("it says %s", errs)
	}
	setMode(t, d, "public")
	succeeded(t, d, d.Finish(api.NewCommand{Python: fetch, Args: []string{"/page"}}))
	before, err := d.Network(ctx, api.DefaultChat)
	if err != nil || before.Traffic.Received == 0 || before.Traffic.Flows < 2 || before.Traffic.Refused == 0 || before.Traffic.Queries == 0 {
		t.Errorf("traffic: %+v, %v", before.Traffic, err)
	}
	d.Shell("kill -9 1; sleep 10") // the sandbox goes, and what it moved stays counted
	eventOf(t, d, api.EventSandboxEnded)
	after, err := d.Network(ctx, api.DefaultChat)
	if err != nil || after.Traffic.Received < before.Traffic.Received || after.Traffic.Flows < before.Traffic.Flows {
		t.Errorf("traffic of a sandbox that is gone: %+v, %v", after.Traffic, err)
	}
	total := after.Traffic.Sent + after.Traffic.Received
	if _, err := d.SetNetwork(ctx, api.DefaultChat, api.NetworkSettings{Limits: &api.NetworkLimitSettings{Total: &total}}); err != nil {
		t.Fatal(err)
	}
	if cmd := d.Finish(api.NewCommand{Python: fetch, Args: []string{"/page"}}); cmd.State != api.StateFailed {
		t.Errorf("a fetch when everything is spent: %s", cmd.State)
	}
}

// TestBareSandboxStaysBare changes the mode of a chat whose sandbox was made
// without a network.
func TestBareSandboxStaysBare(t *testing.T) {
	d := daemontest.Start(t, withService(startService(t)))
	setMode(t, d, "none")
	d.Shell("true")
	setMode(t, d, "public")
	if n, err := d.Network(t.Context(), api.DefaultChat); err != nil || !n.Pending {
		t.Errorf("%+v, %v, want it to be pending", n, err)
	}
	if cmd := d.Finish(api.NewCommand{Python: fetch, Args: []string{"/page"}}); cmd.State != api.StateFailed {
		t.Errorf("a sandbox without a network has one: %s", cmd.State)
	}
	d.Shell("kill -9 1; sleep 10")
	eventOf(t, d, api.EventSandboxEnded)
	succeeded(t, d, d.Finish(api.NewCommand{Python: fetch, Args: []string{"/page"}}))
	if n, err := d.Network(t.Context(), api.DefaultChat); err != nil || n.Pending {
		t.Errorf("%+v, %v, want it in force", n, err)
	}
}

// TestGateDies kills a gate under its chat, and then the daemon, whose
// successor has another configuration.
func TestGateDies(t *testing.T) {
	p := daemontest.Spawn(t, withService(startService(t)))
	succeeded(t, p.Daemon, p.Finish(api.NewCommand{Python: fetch, Args: []string{"/page"}}))
	pids := gatesOf(t, p.Daemon)
	if len(pids) != 1 {
		t.Fatalf("gates: %v, want one", pids)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if ev := eventOf(t, p.Daemon, api.EventNetworkRestarted); !strings.Contains(ev.Message, "SIGKILL") || !strings.Contains(ev.Message, "started again") {
		t.Errorf("the event is %+v", ev)
	}
	succeeded(t, p.Daemon, p.Finish(api.NewCommand{Python: fetch, Args: []string{"/page"}}))
	p.Kill()
	p.Config.Network.Mode = string(sandbox.NetworkAllowlist)
	p.Config.Network.Services = nil
	p.Again()
	cmd := p.Finish(api.NewCommand{Python: fetch, Args: []string{"/page"}})
	if cmd.State != api.StateFailed || cmd.FilesLost {
		t.Errorf("under the new configuration: %s, in a new sandbox: %v", cmd.State, cmd.FilesLost)
	}
	if flows, err := p.Flows(t.Context(), api.DefaultChat); err != nil || len(flows.Refused) == 0 || flows.Refused[0].Rule != "mode-allowlist" {
		t.Errorf("flows: %+v, %v", flows, err)
	}
}

// gatesOf lists the gates of a test's daemon: those that hold a file of its
// run directory.
func gatesOf(t *testing.T, d *daemontest.Daemon) (pids []int) {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	binary := testenv.Bin(t, "sandbox-gate")
	for _, proc := range procs {
		if exe, err := os.Readlink(proc + "/exe"); err != nil || exe != binary {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(proc), "%d", &pid); err != nil {
			t.Fatal(err)
		}
		if log, err := os.Readlink(proc + "/fd/1"); err == nil && strings.HasPrefix(log, d.Dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}
