package daemon

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"mediasandbox/daemon/metrics"
	"mediasandbox/internal/version"
	"mediasandbox/rootfs"
)

// newMetrics makes what tells of the daemon, and serves it on the address that
// the operator named, if one is named.
func (d *Daemon) newMetrics(image rootfs.Image) (*metrics.Metrics, error) {
	state := filepath.Join(d.cfg.Paths.StateDir, stateName)
	m := metrics.New(metrics.Config{
		Figures: d.engine.Figures, Version: version.String(), Image: image.Manifest.Image.SHA256,
		StateBytes: func() (int64, error) {
			st, err := os.Stat(state)
			if err != nil {
				return 0, fmt.Errorf("look at the state's size: %w", err)
			}
			return st.Size(), nil
		},
	})
	if d.cfg.Metrics.Listen == "" {
		return m, nil
	}
	ln, err := net.Listen("tcp", d.cfg.Metrics.Listen)
	if err != nil {
		return nil, fmt.Errorf("serve the metrics: %w (metrics.listen in the configuration)", err)
	}
	server := &http.Server{Handler: m.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ln) }()
	d.defers(func() error {
		err := server.Close()
		if serr := <-ended; !errors.Is(serr, http.ErrServerClosed) {
			err = errors.Join(err, serr)
		}
		return err
	})
	return m, nil
}
