package daemon_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
)

// freePort returns an address of loopback that nobody listened on just now.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	return ln.Addr().String()
}

// reading is the values of a scrape, by name and labels.
type reading map[string]float64

// scrape reads metrics over a connection that dial makes.
func scrape(t *testing.T, network, address string) (reading, string) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Get("http://daemon/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", res.Status, err)
	}
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	r := make(reading)
	for name, f := range families {
		for _, m := range f.Metric {
			key := strings.TrimPrefix(name, "media_sandbox_")
			for _, l := range m.Label {
				key += " " + l.GetValue()
			}
			r[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return r, string(text)
}

// TestMetrics looks at a daemon at work, over its socket and over loopback.
func TestMetrics(t *testing.T) {
	at := freePort(t)
	d := daemontest.Start(t, withService(startService(t)), func(c *config.Config) {
		c.Limits.Pool, c.Metrics.Listen = 1, at
	})
	const title = "A-secret-title"
	if _, err := d.CreateChat(t.Context(), api.NewChat{ID: "default", Title: title}); err != nil {
		t.Fatal(err)
	}
	d.Shell("echo something >/outputs/secret-name.txt")
	if cmd := d.Finish(api.NewCommand{Shell: "exit 3"}); cmd.State != api.StateFailed {
		t.Fatalf("it ended as %s", cmd.State)
	}
	if cmd := d.Finish(api.NewCommand{Python: fetch, Args: []string{"/page"}}); cmd.State != api.StateSucceeded {
		t.Fatalf("it ended as %s: %s", cmd.State, cmd.Reason)
	}
	// A port that the operator did not map, and then a name that the chat denies.
	d.Finish(api.NewCommand{Argv: []string{"bash", "-c", "exec 3<>/dev/tcp/index.internal/81"}})
	deny := []string{"deny *.internal"}
	if _, err := d.SetNetwork(t.Context(), api.DefaultChat, api.NetworkSettings{Rules: &deny}); err != nil {
		t.Fatal(err)
	}
	d.Finish(api.NewCommand{Argv: []string{"getent", "ahostsv4", "index.internal"}})
	var r reading
	var text string
	for deadline := time.Now().Add(30 * time.Second); ; {
		r, text = scrape(t, "unix", d.Socket())
		if r["uploads_published_total"] == 1 && r["pool_ready"] == 1 || time.Now().After(deadline) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	for name, want := range map[string]float64{
		"sandboxes": 1, "pool_ready": 1, "pool_size": 1, "commands_running": 0, "commands_waiting": 0,
		"commands_ended_total failed": 3, "commands_ended_total succeeded": 2, "commands_ended_total lost": 0,
		"uploads_queued": 0, "uploads_published_total": 1, "uploads_published_bytes_total": 10,
		"network_flows_allowed_total service": 1, "network_flows_refused_total service": 1, "network_flows_open tcp": 0,
		"network_gate_restarts_total": 0,
	} {
		if got, ok := r[name]; !ok || got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for _, name := range []string{"state_bytes", "disk_free_bytes", "network_bytes_total sent", "network_bytes_total received", "network_dns_queries_total", "network_dns_refused_total chat", "process_resident_memory_bytes"} {
		if r[name] <= 0 {
			t.Errorf("%s is %v", name, r[name])
		}
	}
	for _, word := range []string{title, "secret-name", "index.internal", "uid:", d.SandboxID()} {
		if strings.Contains(text, word) {
			t.Errorf("the metrics have %q", word)
		}
	}
	// Its sandbox ends, and nothing that was counted is forgotten.
	sent := r["network_bytes_total sent"]
	if err := d.DeleteChat(t.Context(), api.DefaultChat); err != nil {
		t.Fatal(err)
	}
	r, _ = scrape(t, "tcp", at)
	if r["sandboxes"] != 0 || r["network_bytes_total sent"] != sent || r["network_flows_refused_total service"] != 1 {
		t.Errorf("after its end: %v sandboxes, %v bytes of %v, %v refusals",
			r["sandboxes"], r["network_bytes_total sent"], sent, r["network_flows_refused_total service"])
	}
}
