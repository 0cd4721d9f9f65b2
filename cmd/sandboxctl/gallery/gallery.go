// Package gallery serves a web page on loopback that shows chats as grids of
// cells: `sandboxctl gallery`. It is a thin proxy from a browser to the daemon's
// client, and adds no state of its own but who may use it.
//
// Other users of this host reach its port, and so do other sites through a
// browser: guard.go decides who gets an answer. What a sandbox made is shown as
// picture, sound or text and never as a page of this origin: content.go. The page
// itself is in web/, plain modules without a build step.
//
// Start reading at New.
package gallery

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"mediasandbox/daemon/client"
)

// web is served as /assets.
//
//go:embed web
var web embed.FS

//go:embed page.html
var page []byte

// Config says what is served.
type Config struct {
	Client *client.Client
	// Chat, if not empty, is the only one that is shown.
	Chat string
	// Port of loopback; 0 takes a free one.
	Port int
	// IPv6 also listens on ::1.
	IPv6 bool
	// Link is told each link that opens the page: the first, and a new one each
	// time one was used. It must not block.
	Link func(url string)
	Log  *slog.Logger
}

// Gallery is a server of the page.
type Gallery struct {
	cfg       Config
	guard     *guard
	hub       *hub
	listeners []net.Listener
	http      *http.Server
}

// New listens. The caller must call Run.
func New(cfg Config) (*Gallery, error) {
	g := &Gallery{cfg: cfg}
	if err := g.listen("127.0.0.1", cfg.Port); err != nil {
		return nil, err
	}
	port := g.listeners[0].Addr().(*net.TCPAddr).Port
	if cfg.IPv6 {
		if err := g.listen("::1", port); err != nil {
			return nil, errors.Join(err, g.listeners[0].Close())
		}
	}
	g.guard = newGuard(port, cfg.IPv6, cfg.Link)
	g.hub = newHub(cfg.Client, cfg.Log)
	g.http = &http.Server{
		Handler: g.guard.protect(g.routes(), g.index), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn),
	}
	return g, nil
}

func (g *Gallery) listen(ip string, port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("listen for browsers (another --port may be free): %w", err)
	}
	g.listeners = append(g.listeners, l)
	return nil
}

// Addr is where the page is served, as host:port.
func (g *Gallery) Addr() string { return g.listeners[0].Addr().String() }

// shutdownTime is how long answers that are under way may take at the end.
const shutdownTime = 2 * time.Second

// Run serves until ctx ends.
func (g *Gallery) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		g.hub.run(ctx)
	}()
	// Streams end with ctx, so that the server can be shut down.
	g.http.BaseContext = func(net.Listener) context.Context { return ctx }
	ended := make(chan error, len(g.listeners))
	for _, l := range g.listeners {
		go func() { ended <- g.http.Serve(l) }()
	}
	g.guard.announce()
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	cancel()
	<-followed
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer done()
	if g.http.Shutdown(closing) != nil {
		err = errors.Join(err, g.http.Close())
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
