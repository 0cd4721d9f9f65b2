package session_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/session"
	"mediasandbox/daemon/store"
	"mediasandbox/runtime/sandbox"
	"mediasandbox/uploader"
	"mediasandbox/uploader/local"
)

// The tests here turn the engine's clocks: hours pass in no time, and what is
// due after five minutes must happen then, not a millisecond before or after.
// Everything is real but the sandboxes, since a guest knows no other time than
// its own; that the real ones keep to the clocks is tested with small values
// beside the daemon.

// timed is a runtime of sandboxes whose commands do nothing but take time: the
// one argument of each is how long.
type timed struct {
	mu      sync.Mutex
	live    map[string]*timedSandbox
	removed map[string]time.Time
}

func (r *timed) Start(_ context.Context, spec sandbox.Spec) (sandbox.Handle, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &timedSandbox{spec: spec, hints: make(chan string), done: make(chan struct{})}
	r.live[spec.ID] = s
	return s, nil
}
func (r *timed) Adopt(context.Context, sandbox.Spec) (sandbox.Handle, error) {
	return nil, sandbox.ErrGone
}
func (r *timed) List(context.Context) ([]string, error) { return nil, nil }
func (r *timed) Remove(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removed[id] = time.Now()
	if s := r.live[id]; s != nil {
		close(s.done)
		s.detached.Do(func() { close(s.hints) })
		delete(r.live, id)
	}
	return nil
}

func (r *timed) removedAt(id string) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.removed[id]
	return at, ok
}

type timedSandbox struct {
	spec     sandbox.Spec
	hints    chan string
	done     chan struct{}
	detached sync.Once
}

func (s *timedSandbox) ID() string { return s.spec.ID }
func (s *timedSandbox) Start(_ context.Context, _ string, cmd sandbox.Command) (sandbox.Process, error) {
	takes, err := time.ParseDuration(cmd.Argv[0])
	if err != nil {
		return nil, err
	}
	p := &timedProcess{done: make(chan struct{})}
	p.timer = time.AfterFunc(takes, func() { p.end(sandbox.Status{}) })
	return p, nil
}
func (s *timedSandbox) Reattach(context.Context, string, sandbox.Offsets, sandbox.Sink) (sandbox.Process, error) {
	return nil, sandbox.ErrNoProcess
}
func (s *timedSandbox) Usage() (sandbox.Usage, bool) { return sandbox.Usage{}, false }

func (s *timedSandbox) OpenForWriting(context.Context, string) ([]string, error) { return nil, nil }
func (s *timedSandbox) Hints() <-chan string                                     { return s.hints }
func (s *timedSandbox) Done() <-chan struct{}                                    { return s.done }
func (s *timedSandbox) Exit() sandbox.Exit                                       { return sandbox.Exit{} }
func (s *timedSandbox) Detach() error                                            { s.detached.Do(func() { close(s.hints) }); return nil }

type timedProcess struct {
	timer  *time.Timer
	once   sync.Once
	done   chan struct{}
	status sandbox.Status
}

func (p *timedProcess) end(st sandbox.Status) {
	p.once.Do(func() { p.status = st; close(p.done) })
}
func (p *timedProcess) Signal(int) error         { return nil }
func (p *timedProcess) Resize(sandbox.TTY) error { return nil }
func (p *timedProcess) Kill() error              { p.end(sandbox.Status{Code: -1, Signal: 9}); return nil }
func (p *timedProcess) Done() <-chan struct{}    { return p.done }
func (p *timedProcess) Status() sandbox.Status   { return p.status }
func (p *timedProcess) Forget() error            { return nil }

// quiet is the network of sandboxes that send nothing.
type quiet struct{}

func (quiet) SetPolicy(context.Context, string, sandbox.NetworkPolicy) error {
	return sandbox.ErrNoNetwork
}
func (quiet) Traffic(context.Context, string) (sandbox.NetworkTraffic, error) {
	return sandbox.NetworkTraffic{}, nil
}
func (quiet) Refusals(string, time.Time) ([]sandbox.NetworkRefusal, error) { return nil, nil }
func (quiet) Judge(sandbox.NetworkPolicy, sandbox.NetworkFlow) (sandbox.NetworkVerdict, error) {
	return sandbox.NetworkVerdict{}, nil
}

// directories are disks without a bound.
type directories struct{ dir string }

func (d directories) Make(_ context.Context, id string) (sandbox.Disk, error) {
	disk := sandbox.Disk{Data: filepath.Join(d.dir, id)}
	var errs []error
	for _, name := range []string{"outputs", "inputs", "workspace"} {
		errs = append(errs, os.MkdirAll(filepath.Join(disk.Data, name), 0o755))
	}
	return disk, errors.Join(errs...)
}
func (d directories) Open(id string) (sandbox.Disk, error) {
	return sandbox.Disk{Data: filepath.Join(d.dir, id)}, nil
}
func (d directories) Remove(_ context.Context, id string) error {
	return os.RemoveAll(filepath.Join(d.dir, id))
}
func (d directories) List() ([]string, error) { return nil, nil }

// clocks is an engine within a bubble of its own time.
type clocks struct {
	*testing.T
	*session.Engine
	runtime *timed
	key     session.ChatKey
}

// turnClocks runs f with an engine of the product's defaults.
func turnClocks(t *testing.T, f func(c *clocks)) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		st, err := store.Open(filepath.Join(dir, "state.db"))
		if err != nil {
			t.Fatal(err)
		}
		spool, err := uploader.OpenSpool(filepath.Join(dir, "spool"))
		if err != nil {
			t.Fatal(err)
		}
		blobs, err := local.Open(filepath.Join(dir, "store"), "")
		if err != nil {
			t.Fatal(err)
		}
		c := &clocks{T: t, runtime: &timed{live: make(map[string]*timedSandbox), removed: make(map[string]time.Time)}, key: session.ChatKey{Account: "a", ID: api.DefaultChat}}
		c.Engine, err = session.New(t.Context(), session.Config{
			Store: st, Runtime: c.runtime, Disks: directories{filepath.Join(dir, "disks")}, Blobs: blobs, Spool: spool,
			Skills: noSkills{}, Network: session.Network{Control: quiet{}}, StateDir: dir, OutputBytes: 1 << 20,
			ClosedFiles: func(string) (map[string]session.FileState, error) { return nil, nil },
			IdleLife:    5 * time.Minute, DefaultTimeout: api.DefaultTimeout, MaxTimeout: api.MaxTimeout, TurnBudget: api.TurnBudget,
			MaxRunning: api.MaxRunning, MaxSandboxes: 64, MaxAccountSandboxes: 32, MaxAccountRunning: 64, MaxWaiting: 1024, Retention: api.RetentionForever,
			Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		// Reading events from the kernel would keep the bubble's time from passing.
		c.WatchWith(func(cfg uploader.Config) (*uploader.Watcher, error) {
			cfg.ScanOnly = true
			return uploader.Watch(cfg)
		})
		f(c)
		if err := errors.Join(c.Close(), spool.Close(), st.Close()); err != nil {
			t.Error(err)
		}
	})
}

// start begins a command that takes so long, within a turn.
func (c *clocks) start(takes, turn string, timeout float64) api.Command {
	c.Helper()
	cmd, err := c.StartCommand(c.Context(), c.key, api.NewCommand{Argv: []string{takes}, Turn: turn, Timeout: timeout}, "")
	if err != nil {
		c.Fatal(err)
	}
	synctest.Wait()
	return c.look(cmd.ID)
}

func (c *clocks) look(id string) api.Command {
	c.Helper()
	cmd, err := c.Command(c.key, id)
	if err != nil {
		c.Fatal(err)
	}
	return cmd
}

// pass lets time pass, and everything that is due happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestTimeoutIsExact(t *testing.T) {
	for name, tt := range map[string]struct{ asked, got float64 }{"default": {0, 300}, "short": {0.25, 0.25}, "longest": {600, 600}} {
		t.Run(name, func(t *testing.T) {
			turnClocks(t, func(c *clocks) {
				cmd := c.start("1h", "", tt.asked)
				limit := time.Duration(tt.got * float64(time.Second))
				pass(limit - time.Millisecond)
				if got := c.look(cmd.ID); got.State != api.StateRunning || got.Timeout != tt.got {
					c.Errorf("a millisecond before: %s, timeout %g s", got.State, got.Timeout)
				}
				pass(time.Millisecond)
				got := c.look(cmd.ID)
				if got.State != api.StateTimedOut || got.EndedAt.Sub(*got.StartedAt) != limit {
					c.Errorf("at the timeout: %s after %s", got.State, got.EndedAt.Sub(*got.StartedAt))
				}
			})
		})
	}
}

func TestLongerTimeoutsAreRefused(t *testing.T) {
	turnClocks(t, func(c *clocks) {
		for _, seconds := range []float64{600.001, 1e300, -1} {
			_, err := c.StartCommand(c.Context(), c.key, api.NewCommand{Argv: []string{"1s"}, Timeout: seconds}, "")
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.CodeInvalid || !strings.Contains(e.Message, "600") {
				c.Errorf("a timeout of %g s: %v", seconds, err)
			}
		}
	})
}

// TestTurnBudgetIsExact spends a turn's 210 s over two commands with a pause
// between them, and the next turn's on what goes on.
func TestTurnBudgetIsExact(t *testing.T) {
	turnClocks(t, func(c *clocks) {
		c.start("10s", "first", 0)
		pass(time.Hour)
		long := c.start("9m50s", "first", 600)
		if long.Left != 200 {
			c.Errorf("200 s are left, it says %g", long.Left)
		}
		began := time.Now()
		cmd, err := c.Wait(c.Context(), c.key, long.ID, "first")
		if err != nil || !cmd.Continues || cmd.State != api.StateRunning || time.Since(began) != 200*time.Second {
			c.Fatalf("the first turn ended after %s: continues %t, %v", time.Since(began), cmd.Continues, err)
		}
		_, err = c.StartCommand(c.Context(), c.key, api.NewCommand{Argv: []string{"1s"}, Turn: "first"}, "")
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeTurnSpent || !e.Retryable {
			c.Errorf("a command of the spent turn: %v", err)
		}
		pass(20 * time.Second) // between the turns it goes on, and counts nowhere
		began = time.Now()
		cmd, err = c.Wait(c.Context(), c.key, long.ID, "second")
		if err != nil || !cmd.Continues || time.Since(began) != api.TurnBudget {
			c.Errorf("the second turn ended after %s: %v", time.Since(began), err)
		}
		began = time.Now()
		cmd, err = c.Wait(c.Context(), c.key, long.ID, "third")
		if err != nil || cmd.State != api.StateSucceeded || time.Since(began) != 160*time.Second {
			c.Errorf("in the third turn it ended after %s as %s: %v", time.Since(began), cmd.State, err)
		}
	})
}

// TestIdleLifeIsExact runs commands with pauses of nearly five minutes; only
// the full five end the sandbox.
func TestIdleLifeIsExact(t *testing.T) {
	turnClocks(t, func(c *clocks) {
		c.start("10s", "", 0)
		chat, err := c.Chat(c.key)
		if err != nil {
			c.Fatal(err)
		}
		if chat.Sandbox.ExpiresAt != nil {
			c.Errorf("a busy sandbox expires at %s", chat.Sandbox.ExpiresAt)
		}
		pass(10*time.Second + 5*time.Minute - time.Millisecond)
		c.start("10m", "", 600) // longer than the idle life
		pass(10 * time.Minute)
		if _, err := c.PutFile(c.Context(), c.key, "/workspace/a", strings.NewReader("x")); err != nil {
			c.Fatal(err)
		}
		ended := time.Now()
		pass(5*time.Minute - time.Millisecond)
		if chat, err = c.Chat(c.key); err != nil || chat.Sandbox == nil || !chat.Sandbox.ExpiresAt.Equal(ended.Add(5*time.Minute)) {
			c.Fatalf("a millisecond before: %+v, %v", chat.Sandbox, err)
		}
		id := chat.Sandbox.ID
		pass(time.Millisecond)
		at, ok := c.runtime.removedAt(id)
		if !ok || at.Sub(ended) != 5*time.Minute {
			c.Errorf("removed: %t, after %s", ok, at.Sub(ended))
		}
		if cmd := c.start("1s", "", 0); !cmd.FilesLost {
			c.Error("the next command does not say that files were lost")
		}
	})
}

// noSkills is a shelf with nothing on it.
type noSkills struct{ session.Skills }

func (noSkills) List(string) ([]api.Skill, error)   { return nil, nil }
func (noSkills) Lay(string, string, []string) error { return nil }
