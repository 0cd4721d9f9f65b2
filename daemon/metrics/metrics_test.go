package metrics_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/metrics"
	"mediasandbox/daemon/session"
	"mediasandbox/internal/testenv"
)

func figures(context.Context) (session.Figures, error) {
	return session.Figures{
		Usage: api.Usage{Sandboxes: 3}, Ended: map[api.State]int64{api.StateFailed: 2}, OpenUDP: 4,
		Network: map[session.NetworkCount]float64{
			{What: session.CountRefused, Kind: "private"}: 5, {What: session.CountRefused, Kind: "flow-limit"}: 6,
			{What: session.CountAllowed, Kind: "mode-public"}: 7, {What: session.CountSent}: 1e10,
		},
	}, nil
}

func get(t *testing.T, cfg metrics.Config, path string) *httptest.ResponseRecorder {
	t.Helper()
	cfg.Version, cfg.Image = "v1", "abc"
	cfg.StateBytes = func() (int64, error) { return 4096, nil }
	w := httptest.NewRecorder()
	metrics.New(cfg).Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestFiguresAreShown(t *testing.T) {
	w := get(t, metrics.Config{Figures: figures}, "/metrics")
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=") {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	text := w.Body.String()
	for _, line := range []string{
		"# TYPE media_sandbox_sandboxes gauge", "media_sandbox_sandboxes 3", "media_sandbox_state_bytes 4096",
		"# TYPE media_sandbox_commands_ended_total counter",
		`media_sandbox_commands_ended_total{state="failed"} 2`, `media_sandbox_commands_ended_total{state="succeeded"} 0`,
		`media_sandbox_network_flows_open{protocol="udp"} 4`, `media_sandbox_network_bytes_total{direction="sent"} 1e+10`,
		`media_sandbox_network_flows_refused_total{rule="private"} 5`, `media_sandbox_network_limit_hits_total{limit="flows"} 6`,
		`media_sandbox_network_flows_allowed_total{rule="mode-public"} 7`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("there is no line %q", line)
		}
	}
	p := expfmt.NewTextParser(model.LegacyValidation)
	if _, err := p.TextToMetricFamilies(strings.NewReader(text)); err != nil {
		t.Errorf("it can't be read: %v", err)
	}
	if w := get(t, metrics.Config{Figures: figures}, "/"); w.Code != http.StatusNotFound {
		t.Errorf("something else is served: %d", w.Code)
	}
}

func TestFailureIsSaid(t *testing.T) {
	w := get(t, metrics.Config{Figures: func(context.Context) (session.Figures, error) {
		return session.Figures{}, errors.New("secret")
	}}, "/metrics")
	if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestDocumentation holds docs/metrics.md against what there is. With
// MEDIA_SANDBOX_UPDATE=1 it writes the table anew.
func TestDocumentation(t *testing.T) {
	file := filepath.Join(testenv.Root(t), "docs", "metrics.md")
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- series -->\n", "<!-- end of series -->\n"
	head, rest, ok := strings.Cut(string(old), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", file)
	}
	want := head + begin + metrics.Table() + end + tail
	if want == string(old) {
		return
	}
	if os.Getenv("MEDIA_SANDBOX_UPDATE") == "" {
		t.Fatal("docs/metrics.md does not list what there is: run this test with MEDIA_SANDBOX_UPDATE=1")
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
