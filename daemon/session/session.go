// Package session is the daemon's heart: chats, their sandboxes, commands and
// cells. It declares the interfaces it needs (Store here, sandbox.Runtime, and
// the uploader's) and names no implementation of them.
//
// An Engine holds nothing that it could not find again: records are in the
// Store, sandboxes and output live in processes and files of their own. So a
// later Engine over the same state goes on where an earlier one was killed.
// Start reading at Engine.StartCommand, then run.go for a command's life and
// outputs.go for a cell's.
package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"mediasandbox/daemon/api"
	"mediasandbox/runtime/sandbox"
	"mediasandbox/uploader"
)

// Config says what an Engine works with.
type Config struct {
	Store   Store
	Runtime sandbox.Runtime
	Disks   sandbox.Disks
	Blobs   uploader.Blobs
	// DirectURLs makes cells' URLs the store's own; otherwise they are paths
	// of the API.
	DirectURLs bool
	// StableURLs tells that those never change.
	StableURLs  bool
	Spool       *uploader.Spool
	ClosedFiles ClosedFiles
	Skills      Skills
	// StateDir holds the commands' output.
	StateDir string
	// Image is the root file system, ImageDigest its SHA-256.
	Image, ImageDigest string
	// Env is every command's environment, as the image wants it.
	Env map[string]string
	// Version is the product's.
	Version string
	// KeptInputs bounds the copies of inputs that each chat keeps for replays,
	// in bytes.
	KeptInputs int64
	// MaxDownload bounds an input that is downloaded, in bytes.
	MaxDownload int64
	// Limits of one sandbox.
	Limits  sandbox.Limits
	Network Network
	// OutputBytes is how much of each stream is kept.
	OutputBytes int64
	// IdleLife is how long a sandbox lives after its last command.
	IdleLife time.Duration
	// DefaultTimeout and MaxTimeout are a command's, TurnBudget is a turn's.
	DefaultTimeout, MaxTimeout, TurnBudget time.Duration
	// MaxRunning is how many commands of a chat run at a time.
	MaxRunning int
	// WarmPython keeps a Python with its imports done in each sandbox.
	WarmPython bool
	// MaxSandboxes bounds the live sandboxes of the host, MaxAccountSandboxes
	// those of one account. What does not fit waits its turn.
	MaxSandboxes, MaxAccountSandboxes int
	// MaxAccountRunning bounds the running commands of an account, MaxWaiting
	// the commands of the host that wait. What would be more is refused.
	MaxAccountRunning, MaxWaiting int
	// MaxAccountStored bounds the bytes of an account's cells, MaxAccountDaily
	// those that it publishes in a day; 0 is no limit.
	MaxAccountStored, MaxAccountDaily int64
	// DiskReserve and MemoryReserve are how many bytes of the host's disk and
	// memory are kept back.
	DiskReserve, MemoryReserve int64
	// Pool is how many booted sandboxes wait for a chat.
	Pool int
	// Retention is how long cells are kept where nobody says otherwise.
	Retention api.Retention
	// Ephemeral removes every sandbox on Close.
	Ephemeral bool
	Log       *slog.Logger
}

// Engine runs chats.
type Engine struct {
	cfg      Config
	log      *slog.Logger
	uploads  *uploader.Uploader
	pool     *pool
	events   *eventHub
	ctx      context.Context
	cancel   context.CancelFunc
	work     sync.WaitGroup
	keyLocks keyedMutex
	// netLocks serialise changes of a sandbox's network.
	netLocks keyedMutex
	// started is when this engine began; ended and gates count since then.
	started time.Time
	ended   stateCounts
	gates   gateCounts
	// lanes are a chat's running commands.
	lanes *lanes
	// busy are an account's running commands.
	busy   *lanes
	seats  seats
	inputs *keptInputs
	// builtinSkills are the names of the skills that a chat begins with.
	builtinSkills []string
	// previews are the cells' small pictures.
	previews previews
	// expiring wakes the sweeper.
	expiring chan struct{}
	// watch is uploader.Watch; tests of the clocks start watchers elsewhere.
	watch func(uploader.Config) (*uploader.Watcher, error)

	// mu guards the maps and closing.
	mu sync.Mutex
	// closing is set once no sandbox may join live any more.
	closing  bool
	live     map[ChatKey]*live
	commands map[string]*running
	// recovering are chats whose sandboxes are being taken up; each is closed
	// when that is done.
	recovering map[ChatKey]chan struct{}
}

// New returns an Engine that has taken up what an earlier one left.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	if err := os.MkdirAll(filepath.Join(cfg.StateDir, "output"), 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	e := &Engine{
		cfg: cfg, log: cfg.Log, events: newEventHub(), lanes: newLanes(cfg.MaxRunning), busy: newLanes(cfg.MaxAccountRunning),
		seats: newSeats(cfg), started: now(), live: make(map[ChatKey]*live), commands: make(map[string]*running),
		recovering: make(map[ChatKey]chan struct{}), expiring: make(chan struct{}, 1), watch: uploader.Watch,
	}
	var err error
	if e.builtinSkills, err = nameBuiltinSkills(cfg.Skills); err != nil {
		return nil, err
	}
	e.inputs = &keptInputs{limit: cfg.KeptInputs}
	if e.inputs.chatDirs, err = openChatDirs(filepath.Join(cfg.StateDir, "inputs")); err != nil {
		return nil, err
	}
	if e.previews.chatDirs, err = openChatDirs(filepath.Join(cfg.StateDir, "previews")); err != nil {
		return nil, err
	}
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := e.startUploads(); err != nil {
		return nil, err
	}
	if err := e.recover(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("take up the earlier state: %w", err), e.Close())
	}
	e.work.Go(e.sweep)
	e.work.Go(e.watchRestarts)
	e.work.Go(e.watchRefusals)
	e.pool = newPool(e, cfg.Pool)
	if err := e.resumeQueued(); err != nil {
		return nil, errors.Join(fmt.Errorf("take up the earlier state: %w", err), e.Close())
	}
	return e, nil
}

// Close lets go of the sandboxes, which go on, and waits for what is under way.
// An ephemeral engine removes them first.
func (e *Engine) Close() error {
	var errs []error
	if e.cfg.Ephemeral {
		e.allSettled()
	}
	e.mu.Lock()
	e.closing = true
	lives := make([]*live, 0, len(e.live))
	for _, l := range e.live {
		lives = append(lives, l)
	}
	e.mu.Unlock()
	if e.pool != nil {
		errs = append(errs, e.pool.close())
	}
	if e.cfg.Ephemeral {
		for _, l := range lives {
			errs = append(errs, e.endSandbox(context.Background(), l, "the daemon ended"))
		}
		lives = nil
	}
	e.cancel()
	for _, l := range lives {
		errs = append(errs, l.release())
	}
	e.work.Wait()
	return errors.Join(errs...)
}

// now is the clock; tests run under synctest.
func now() time.Time { return time.Now().UTC() }

// newID returns an id that sorts by time.
func newID(prefix string) string { return prefix + strings.ToLower(ulid.Make().String()) }

func (e *Engine) outputDir(command string) string {
	return filepath.Join(e.cfg.StateDir, "output", command)
}

// keyedMutex serialises by key.
type keyedMutex struct {
	mu    sync.Mutex
	locks map[string]*refMutex
}

type refMutex struct {
	sync.Mutex
	refs int
}

func (k *keyedMutex) lock(key string) (unlock func()) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = make(map[string]*refMutex)
	}
	m := k.locks[key]
	if m == nil {
		m = &refMutex{}
		k.locks[key] = m
	}
	m.refs++
	k.mu.Unlock()
	m.Lock()
	return func() {
		m.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if m.refs--; m.refs == 0 {
			delete(k.locks, key)
		}
	}
}

// notFound turns the store's answer into the caller's.
func notFound(err error, code api.Code, format string, args ...any) error {
	if errors.Is(err, ErrNotFound) {
		return api.Errorf(code, format, args...)
	}
	return err
}
