// Package metrics shows what the daemon counts in the text format that
// Prometheus reads. It counts nothing itself: each request asks the engine, and
// the engine asks the gates.
//
// No label names an account, a chat, a file or a host: labels are words out of
// short lists, so that the metrics tell nobody about anybody, and a guest can't
// make series. The metrics are listed in series.go, and in docs/metrics.md,
// which a test holds against them. Start reading at New.
package metrics

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"mediasandbox/daemon/session"
)

// Config says what is shown.
type Config struct {
	// Figures asks the engine.
	Figures func(context.Context) (session.Figures, error)
	// StateBytes is the size of the daemon's database.
	StateBytes func() (int64, error)
	// Version is the daemon's, Image the SHA-256 of its sandboxes' image.
	Version, Image string
}

// Metrics answers with the metrics of one daemon.
type Metrics struct {
	registry *prometheus.Registry
	// turn lets one request at a time ask the gates.
	turn chan struct{}
}

// askTimeout bounds how long the engine and the gates may take to answer.
const askTimeout = 5 * time.Second

// New returns the metrics of a daemon, among them the Go runtime's and the
// process's.
func New(cfg Config) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), turn: make(chan struct{}, 1)}
	m.registry.MustRegister(
		&collector{cfg: cfg}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Serve answers a request. An error means that nothing was written yet.
func (m *Metrics) Serve(w http.ResponseWriter, r *http.Request) error {
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-r.Context().Done():
		return r.Context().Err()
	}
	families, err := m.registry.Gather()
	if err != nil {
		return fmt.Errorf("gather the metrics: %w", err)
	}
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	w.Header().Set("Content-Type", string(format))
	enc := expfmt.NewEncoder(w, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return nil // the reader has gone away
		}
	}
	return nil
}

// Handler serves the metrics at /metrics and nothing else. It asks nobody who
// they are: it is for a listener that only the right ones reach.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if err := m.Serve(w, r); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "the metrics can't be read: the daemon's log may say why\n")
		}
	})
	return mux
}

// collector makes the product's own metrics of the engine's figures.
type collector struct{ cfg Config }

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range list {
		ch <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	f, err := c.cfg.Figures(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(build.desc, err)
		return
	}
	bytes, err := c.cfg.StateBytes()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(stateBytes.desc, err)
		return
	}
	ch <- build.value(1, c.cfg.Version, runtime.Version(), c.cfg.Image)
	ch <- stateBytes.value(float64(bytes))
	collectEngine(ch, f)
	collectNetwork(ch, f)
}
