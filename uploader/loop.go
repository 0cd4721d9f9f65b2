package uploader

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// maxLookups bounds the paths that wait for a look; beyond it everything is
// scanned instead.
const maxLookups = 8192

// maxTold bounds the directories that are reported as left out.
const maxTold = 1000

// lookups are paths that something was said of, in the order it was said.
type lookups struct {
	order   []Path
	renamed map[Path]bool // present when listed; true when renamed into place
	since   time.Time
	// moved is set when the last event was a file's leaving its name: the next
	// one names where it went.
	moved bool
}

func (l *lookups) add(p Path, renamed bool, now time.Time) {
	if len(l.order) == 0 {
		l.since = now
	}
	was, listed := l.renamed[p]
	if !listed {
		l.order = append(l.order, p)
	}
	l.renamed[p] = was || renamed
}

func (l *lookups) clear() {
	l.order = l.order[:0]
	clear(l.renamed)
}

// run is the watcher's goroutine.
func (w *Watcher) run(ctx context.Context) {
	defer close(w.stopped)
	defer w.shutdown()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		w.work(time.Now())
		if at, any := w.wake(); any {
			timer.Reset(max(time.Until(at), 0))
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case ev, ok := <-w.notify.events:
			if !ok {
				w.notify.events = nil
				w.scanNow = true
				continue
			}
			w.note(ev, time.Now())
		case err := <-w.notify.errors:
			w.noteError(err)
		case <-w.hinted:
			w.noteHints(time.Now())
		case call := <-w.flushes:
			w.beginFlush(call, time.Now())
		case results := <-w.pub.outcomes:
			w.working = false
			w.noteOutcomes(results, time.Now())
		case <-timer.C:
		}
	}
}

func (w *Watcher) shutdown() {
	close(w.pub.batches)
	for range w.pub.outcomes { // until the publisher has ended
	}
	w.err = errors.Join(w.dirs.close(), w.root.Close())
}

// work does what is due.
func (w *Watcher) work(now time.Time) {
	if !now.Before(w.scanAt()) {
		w.scan(now)
	}
	if len(w.look.order) > 0 && now.Sub(w.look.since) >= debounce {
		w.lookAtAll(now)
	}
	if !w.working {
		if batch := w.ledger.take(now, batchFiles, batchBytes); len(batch) > 0 {
			w.working = true
			w.pub.batches <- batch
		}
	}
	if len(w.waiting) > 0 && !w.ledger.flushing() {
		w.endFlush()
	}
	w.status.Store(&Status{Files: len(w.ledger.files), Pending: len(w.ledger.pending), Published: w.publishes})
}

// scanAt is when the next full scan is due. Scans never take more than a small
// part of the time, however many the guest provokes.
func (w *Watcher) scanAt() time.Time {
	wait := max(w.cfg.Rescan, 50*w.scanTook)
	if w.dirs.missing != nil {
		wait = max(min(w.cfg.Rescan, time.Second), 50*w.scanTook)
	}
	if w.scanNow {
		wait = 5 * w.scanTook
	}
	return w.scanned.Add(wait)
}

// wake returns when work has something to do again.
func (w *Watcher) wake() (time.Time, bool) {
	at := w.scanAt()
	if len(w.look.order) > 0 {
		if d := w.look.since.Add(debounce); d.Before(at) {
			at = d
		}
	}
	if d, any := w.ledger.next(); any && !w.working && d.Before(at) {
		at = d
	}
	return at, true
}

// note takes one event: something happened to that name, no more.
func (w *Watcher) note(ev fsnotify.Event, now time.Time) {
	dir, name := w.dirs.find(ev.Name)
	if dir == nil {
		return
	}
	if name == "" {
		w.noteDirectory(dir, ev, now)
		return
	}
	moved := w.look.moved
	w.look.moved = ev.Has(fsnotify.Rename)
	if w.ledger.temporary.name(name) {
		return
	}
	if len(w.look.order) >= maxLookups {
		w.look.clear()
		w.scanNow = true
	}
	w.look.add(join(dir.path, name), moved && ev.Has(fsnotify.Create), now)
}

// noteDirectory takes an event of a watched directory itself. When it was
// moved or removed, fsnotify has dropped the watch.
func (w *Watcher) noteDirectory(dir *watch, ev fsnotify.Event, now time.Time) {
	if !ev.Has(fsnotify.Rename) && !ev.Has(fsnotify.Remove) {
		return
	}
	p := dir.path
	w.dirs.drop(dir)
	if p == "" {
		w.scanNow = true
		return
	}
	w.look.add(p, false, now)
}

func (w *Watcher) noteError(err error) {
	if err == nil {
		w.notify.errors = nil
		return
	}
	if !errors.Is(err, fsnotify.ErrEventOverflow) {
		w.cfg.Log.Warn("watching outputs", "dir", w.cfg.Dir, "error", err)
	}
	w.scanNow = true
}

func (w *Watcher) noteHints(now time.Time) {
	hints, lost := w.takeHints()
	w.scanNow = w.scanNow || lost
	for p := range hints {
		w.lookAt(p, false, now)
		w.ledger.hint(p, now, w.shapeOf(p))
	}
}

// shapeOf looks into a file that is said to be closed.
func (w *Watcher) shapeOf(p Path) shape {
	if w.ledger.pending[p] == nil {
		return shapeOpenEnded
	}
	f, st, err := openFile(int(w.root.Fd()), string(p))
	if err != nil {
		return shapeOpenEnded // the next look says what is the matter with it
	}
	defer f.Close()
	if !st.isRegular() {
		return shapeOpenEnded
	}
	return shapeOf(f, st.id.Size)
}

func (w *Watcher) noteOutcomes(results []outcome, now time.Time) {
	for _, r := range results {
		if r.done != nil {
			w.publishes++
		}
		if r.err != nil && !r.final {
			w.cfg.Log.Warn("publish output", "path", r.path, "reason", r.why, "error", r.err)
		}
		if w.ledger.conclude(r, now) {
			w.lookAt(r.path, false, now)
		}
	}
}

func (w *Watcher) beginFlush(call *flushCall, now time.Time) {
	w.scan(now)
	w.look.clear()
	w.ledger.flush(call.which)
	w.waiting = append(w.waiting, call)
}

func (w *Watcher) endFlush() {
	for _, call := range w.waiting {
		left := append(w.ledger.left(call.which), w.unwalked...)
		slices.SortFunc(left, func(a, b Skipped) int { return strings.Compare(string(a.Path), string(b.Path)) })
		call.done <- left
	}
	w.waiting = nil
}

func (w *Watcher) lookAtAll(now time.Time) {
	for _, p := range w.look.order {
		w.lookAt(p, w.look.renamed[p], now)
	}
	w.look.clear()
}

// lookAt notes the present state of one path.
func (w *Watcher) lookAt(p Path, renamed bool, now time.Time) {
	st, err := statBeneath(int(w.root.Fd()), string(p))
	if err != nil {
		if !wentAway(err) {
			w.cfg.Log.Warn("stat output", "path", p, "error", err)
		}
		if e := w.ledger.files[p]; e != nil && e.links > 1 {
			w.scanNow = true // its other name may be fit now, and has no event
		}
		w.ledger.gone(p)
		w.dirs.dropBelow(p)
		return
	}
	if !st.isDir() {
		if elements(p) <= w.cfg.MaxDepth+1 { // as deep as a scan goes
			w.observe(p, st, renamed, now)
		}
		return
	}
	depth := w.cfg.MaxDepth - elements(p)
	if depth < 0 || w.ledger.temporary.path(p) {
		return
	}
	fd, err := openBeneath(int(w.root.Fd()), string(p), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		w.scanNow = w.scanNow || !wentAway(err)
		return
	}
	defer unix.Close(fd)
	w.walk(fd, p, depth, renamed, now)
}

// scan looks at everything.
func (w *Watcher) scan(now time.Time) {
	w.scans++
	w.scanNow, w.unwalked, w.dirs.missing = false, nil, nil
	began := time.Now()
	complete := w.walk(int(w.root.Fd()), "", w.cfg.MaxDepth, false, now)
	w.dirs.sweep(w.scans)
	for p := range w.ledger.unmet(w.scans) {
		if complete {
			w.ledger.gone(p)
			continue
		}
		w.lookAt(p, false, now)
	}
	w.scanned = time.Now()
	w.scanTook = w.scanned.Sub(began)
}

// walk notes all below the directory fd. It is not complete when a limit
// ended it.
func (w *Watcher) walk(fd int, p Path, depth int, renamed bool, now time.Time) (complete bool) {
	count := 0
	room := func(p Path) bool {
		if count++; count <= w.cfg.MaxFiles {
			return true
		}
		w.unwalkedAt(p, ReasonTooMany, nil)
		return false
	}
	err := walk(fd, p, depth, visit{
		dir: func(p Path, fd int, st fileStat) bool {
			w.dirs.ensure(p, fd, st.id.inode(), w.scans)
			return room(p)
		},
		file:     func(p Path, st fileStat) bool { return room(p) && w.observe(p, st, renamed, now) },
		unwalked: w.unwalkedAt,
		names:    w.ledger.temporary,
	})
	if err != nil && !errors.Is(err, errWalkEnds) {
		w.cfg.Log.Warn("scan outputs", "dir", w.cfg.Dir, "error", err)
	}
	w.reportMissing()
	return err == nil
}

func (w *Watcher) observe(p Path, st fileStat, renamed bool, now time.Time) bool {
	if w.ledger.observe(p, st, now, renamed, w.scans) {
		return true
	}
	w.unwalkedAt(p, ReasonTooMany, nil)
	return false
}

// unwalkedAt keeps what a scan left out, for Flush, and reports it once.
func (w *Watcher) unwalkedAt(p Path, r Reason, err error) {
	s := Skipped{Path: p, Reason: r, Err: err}
	if len(w.unwalked) < 1000 {
		w.unwalked = append(w.unwalked, s)
	}
	if r == ReasonTooMany {
		p = "" // one report of the limit, whichever path met it
	}
	if r == ReasonTemporary || w.told[p] == r || len(w.told) >= maxTold {
		return
	}
	w.told[p] = r
	w.cfg.Skipped(s)
}

// reportMissing logs, once, that some directories bring no events.
func (w *Watcher) reportMissing() {
	if w.dirs.missing != nil && !w.noWatch {
		w.noWatch = true
		w.cfg.Log.Warn("some output directories are only scanned, not watched", "dir", w.cfg.Dir, "error", w.dirs.missing)
	}
}
