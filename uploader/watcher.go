package uploader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Defaults of Config.
const (
	DefaultSettle       = 2 * time.Second
	DefaultClosedSettle = 700 * time.Millisecond
	DefaultRenameSettle = 200 * time.Millisecond
	DefaultWholeSettle  = 30 * time.Millisecond
	DefaultQuiet        = 5 * time.Second
	DefaultRescan       = 5 * time.Second
	DefaultMaxFiles     = 20_000
	DefaultMaxDepth     = 32
	DefaultMaxWatches   = 1024
	DefaultMaxFileBytes = 32 << 30
)

// debounce is how long events are collected before they are looked into.
const debounce = 5 * time.Millisecond

// ErrClosed is returned by the methods of a closed Watcher or Uploader.
var ErrClosed = errors.New("uploader is closed")

// Receiver takes finished files.
type Receiver interface {
	// Finished records the files, in this order, all of them or none, and
	// returns once the record is durable; the Known of each belongs into the
	// same transaction. After an error, which means that nothing was recorded,
	// the snapshots are removed and the files are offered again later. A path
	// that comes a second time has new contents.
	Finished(ctx context.Context, files []Finished) error
}

// Writers tells which files are being written.
type Writers interface {
	// OpenForWriting names the files below the guest directory dir that a
	// process holds open for writing or has mapped shared and writable.
	// Absolute names and names relative to dir are understood.
	OpenForWriting(ctx context.Context, dir string) ([]string, error)
}

// Config says what to watch, and where finished files go. Zero durations and
// limits stand for the defaults above.
type Config struct {
	// Dir is the directory on the host.
	Dir string
	// GuestDir is what the guest calls it; /outputs when empty.
	GuestDir string
	Spool    *Spool
	Receiver Receiver
	// Writers may be nil: then a file has to be quiet for Quiet instead.
	Writers Writers
	// Known is what was published from the directory before.
	Known []Known
	// Skipped, when not nil, is told once of every file that is not published
	// for what it is. It runs on the watcher's goroutine and must not block.
	Skipped func(Skipped)
	// Wanted, when not nil, tells of a name that looks temporary whether it is
	// published all the same. It is asked again whenever a file is looked at.
	Wanted func(name string) bool

	// Settle is how long a file stays closed and unchanged before it is
	// published, since its writer may come back to append to it.
	Settle time.Duration
	// ClosedSettle takes the place of Settle for a file that its writer closed,
	// that is no text, and to which no writer has come back so far.
	ClosedSettle time.Duration
	// RenameSettle takes the place of Settle for a file that was renamed into
	// place.
	RenameSettle time.Duration
	// WholeSettle takes the place of Settle for a closed file that is complete
	// by its own format.
	WholeSettle time.Duration
	// Quiet is how long a file stays unchanged before it is published while
	// Writers gives no answer.
	Quiet time.Duration
	// Rescan is the time between full scans, which find what brings no event.
	Rescan time.Duration
	// ScanOnly does without events: each scan is a second after the last.
	ScanOnly bool

	// MaxFiles bounds files and directories together, MaxDepth the nesting of
	// directories, MaxWatches the directories with events (each holds a
	// descriptor and an inotify watch; the others are found by scanning).
	MaxFiles, MaxDepth, MaxWatches int
	// MaxFileBytes bounds the size of one file.
	MaxFileBytes int64

	Log *slog.Logger
}

func (c *Config) fill() {
	setDefault(&c.GuestDir, "/outputs")
	setDefault(&c.Settle, DefaultSettle)
	setDefault(&c.ClosedSettle, DefaultClosedSettle)
	setDefault(&c.RenameSettle, DefaultRenameSettle)
	setDefault(&c.WholeSettle, DefaultWholeSettle)
	setDefault(&c.Quiet, DefaultQuiet)
	setDefault(&c.Rescan, DefaultRescan)
	setDefault(&c.MaxFiles, DefaultMaxFiles)
	setDefault(&c.MaxDepth, DefaultMaxDepth)
	setDefault(&c.MaxWatches, DefaultMaxWatches)
	setDefault(&c.MaxFileBytes, DefaultMaxFileBytes)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Skipped == nil {
		c.Skipped = func(Skipped) {}
	}
	for _, d := range []*time.Duration{&c.ClosedSettle, &c.RenameSettle, &c.WholeSettle} {
		*d = min(*d, c.Settle)
	}
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Status counts what a Watcher has seen.
type Status struct {
	// Files is how many files there are, Pending how many of them are to be
	// published, Published how many were handed over by this Watcher.
	Files, Pending, Published int
}

// Watcher publishes the files of one directory. One goroutine owns watching,
// scanning and deciding; a second one copies. The Watcher holds descriptors
// into the directory: close it before the file system is unmounted.
type Watcher struct {
	cfg    Config
	root   *os.File
	notify notifier
	dirs   *watches
	ledger *ledger
	pub    *publisher

	cancel  context.CancelFunc
	stopped chan struct{}
	once    sync.Once
	err     error // of the loop; read after stopped
	flushes chan *flushCall
	hinted  chan struct{}
	status  atomic.Pointer[Status]

	// The rest belongs to the loop.
	look      lookups
	scans     uint64
	scanned   time.Time
	scanTook  time.Duration
	scanNow   bool
	unwalked  []Skipped
	told      map[Path]Reason // of unwalked
	noWatch   bool
	publishes int
	working   bool
	waiting   []*flushCall

	mu    sync.Mutex
	hints map[Path]struct{}
	// lost is set when hints were dropped because there were too many.
	lost bool
}

// maxHints bounds the hints that wait.
const maxHints = 4096

// Watch starts a Watcher. Where the host has no more inotify instances to give,
// the directory is only scanned.
func Watch(cfg Config) (*Watcher, error) {
	if cfg.ScanOnly {
		return watchWith(cfg, scanOnly())
	}
	n, err := newNotifier()
	if errors.Is(err, unix.EMFILE) {
		n, err = scanOnly(), nil
	}
	if err != nil {
		return nil, err
	}
	w, err := watchWith(cfg, n)
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	return w, nil
}

func watchWith(cfg Config, n notifier) (*Watcher, error) {
	cfg.fill()
	root, err := openDirectory(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("watch outputs: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watcher{
		cfg: cfg, root: root, notify: n,
		dirs:    newWatches(n, cfg.MaxWatches),
		cancel:  cancel,
		stopped: make(chan struct{}),
		flushes: make(chan *flushCall),
		hinted:  make(chan struct{}, 1),
		hints:   map[Path]struct{}{},
		look:    lookups{renamed: map[Path]bool{}},
		told:    map[Path]Reason{},
		scanNow: true,
	}
	poll := min(max(cfg.Settle/4, 50*time.Millisecond), time.Second)
	times := timing{
		settle: cfg.Settle, closed: cfg.ClosedSettle, rename: cfg.RenameSettle, whole: cfg.WholeSettle, quiet: cfg.Quiet, poll: poll,
	}
	w.ledger = newLedger(times, cfg.MaxFiles, cfg.Known, temporary{cfg.Wanted}, cfg.Skipped)
	w.pub = &publisher{
		root: root, spool: cfg.Spool, receiver: cfg.Receiver, writers: cfg.Writers,
		guestDir: cfg.GuestDir, maxBytes: cfg.MaxFileBytes,
		batches: make(chan []candidate, 1), outcomes: make(chan []outcome, 1),
		log: cfg.Log.With("dir", cfg.Dir),
	}
	w.status.Store(&Status{})
	go w.pub.run(ctx)
	go w.run(ctx)
	return w, nil
}

// Close stops watching and waits until nothing of the Watcher runs. What was
// not handed over is left to the next Watcher of the directory.
func (w *Watcher) Close() error {
	w.once.Do(w.cancel)
	<-w.stopped
	return w.err
}

// Status returns the present counts.
func (w *Watcher) Status() Status { return *w.status.Load() }

// Hint tells that a file's writer closed it, or renamed it into place. The
// path is the guest's, absolute below GuestDir or relative to it, and is not
// believed in anything but this. Hint never blocks.
func (w *Watcher) Hint(path string) {
	p, ok := guestPath(w.cfg.GuestDir, path)
	if !ok || w.ledger.temporary.path(p) {
		return
	}
	w.mu.Lock()
	if len(w.hints) < maxHints {
		w.hints[p] = struct{}{}
	} else {
		w.lost = true
	}
	w.mu.Unlock()
	select {
	case w.hinted <- struct{}{}:
	default:
	}
}

func (w *Watcher) takeHints() (map[Path]struct{}, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h, lost := w.hints, w.lost
	w.hints, w.lost = map[Path]struct{}{}, false
	return h, lost
}

// flushCall is one caller of Flush.
type flushCall struct {
	which func(Path, Identity) bool
	done  chan []Skipped
}

// Flush publishes everything that no process holds open for writing, without
// letting it settle: for the end of a command. It scans the whole directory
// and returns once all of it is handed over, with what was left out and why.
// What was left out only for now is published later, as usual. While Writers
// gives no answer, Flush waits until the files are quiet.
func (w *Watcher) Flush(ctx context.Context) ([]Skipped, error) {
	return w.FlushSome(ctx, func(Path, Identity) bool { return true })
}

// FlushSome flushes the files of which is true, for the end of a command beside
// which others still write: the rest settle as usual and are not told of. It is
// asked on the watcher's goroutine.
func (w *Watcher) FlushSome(ctx context.Context, which func(Path, Identity) bool) ([]Skipped, error) {
	call := &flushCall{which: which, done: make(chan []Skipped, 1)}
	select {
	case w.flushes <- call:
	case <-ctx.Done():
		return nil, fmt.Errorf("flush outputs: %w", ctx.Err())
	case <-w.stopped:
		return nil, fmt.Errorf("flush outputs: %w", ErrClosed)
	}
	select {
	case left := <-call.done:
		return left, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("flush outputs: %w", ctx.Err())
	case <-w.stopped:
		return nil, fmt.Errorf("flush outputs: %w", ErrClosed)
	}
}

// elements counts the elements of a path.
func elements(p Path) int {
	n := 1
	for i := range len(p) {
		if p[i] == '/' {
			n++
		}
	}
	return n
}

// wentAway says whether err means that there is nothing at the path, or
// nothing that may be reached.
func wentAway(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EXDEV)
}
