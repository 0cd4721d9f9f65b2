package uploader

import (
	"iter"
	"slices"
	"time"
)

// timing holds the periods that decide when a file is finished.
type timing struct {
	settle, closed, rename, whole, quiet, poll time.Duration
}

// entry is what the ledger knows of one path.
type entry struct {
	path Path
	fileStat
	// changed is when a new state was first seen.
	changed time.Time
	// closed is when the file was first known to be closed in this state; zero
	// when nobody said so.
	closed time.Time
	// shape is what the closed file looks like.
	shape shape
	// returned is set once a writer came back to a file that was closed.
	returned bool
	// open is set while a writer is known to hold the file; polled is when.
	open   bool
	polled time.Time
	// renamed is set when the state came whole, by a rename.
	renamed bool
	// retry holds the next attempt back.
	retry time.Time
	fails int
	// busy is set while the publisher has the file.
	busy bool
	// flush is set when the file is to be published without settling.
	flush bool
	// why says what stood in the way last, told is what was reported of it.
	why  Reason
	err  error
	told Reason
	scan uint64
}

// ledger decides when which file is finished. It does no input or output and
// reads no clock; its owner tells it what was seen when.
type ledger struct {
	timing
	max    int
	report func(Skipped)
	files  map[Path]*entry
	temporary
	// pending holds the entries that may have to be published.
	pending map[Path]*entry
	known   map[Path]Known
	// contents remembers by inode what was seen, so that a renamed file is
	// recognised under its new path.
	contents map[inode]Identity
	// below counts the files below each directory.
	below map[Path]int
}

func newLedger(t timing, max int, known []Known, names temporary, report func(Skipped)) *ledger {
	l := &ledger{
		timing: t, max: max, report: report, temporary: names,
		files: map[Path]*entry{}, pending: map[Path]*entry{},
		known: map[Path]Known{}, contents: map[inode]Identity{}, below: map[Path]int{},
	}
	for _, k := range known {
		l.known[k.Path] = k
	}
	return l
}

// observe notes the state of p. It is not ok when the ledger is full.
func (l *ledger) observe(p Path, st fileStat, now time.Time, renamed bool, scan uint64) bool {
	e := l.files[p]
	if e != nil && e.id == st.id && e.mode == st.mode && e.links == st.links {
		e.scan = scan
		if e.why == ReasonTemporary && !l.temporary.path(p) { // asked for by now
			e.why = ""
			l.enlist(e)
		}
		return true
	}
	if e == nil {
		if len(l.files) >= l.max {
			return false
		}
		e = &entry{path: p}
		l.files[p] = e
		l.count(p, 1)
	}
	before, seen := l.contents[st.id.inode()]
	moved := seen && before.MTime == st.id.MTime && before.Size == st.id.Size && e.id.inode() != st.id.inode()
	e.renamed = st.isRegular() && (renamed || moved)
	if e.id.inode() != st.id.inode() {
		e.open, e.returned = false, false
	} else if !e.closed.IsZero() {
		e.returned = true
	}
	e.fileStat, e.changed, e.closed, e.shape, e.scan = st, now, time.Time{}, shapeOpenEnded, scan
	e.retry, e.fails, e.why, e.err = time.Time{}, 0, "", nil
	l.remember(st.id)
	l.enlist(e)
	return true
}

// enlist makes an entry pending, or not.
func (l *ledger) enlist(e *entry) {
	delete(l.pending, e.path)
	if l.temporary.path(e.path) {
		e.why = ReasonTemporary
		return
	}
	if r := e.unfit(); r != "" && r != ReasonLinks {
		l.refuse(e, r, nil)
		return
	}
	if k, ok := l.known[e.path]; ok && k.Identity == e.id {
		return
	}
	l.pending[e.path] = e
}

// refuse takes an entry off the list until it changes, and reports it once.
func (l *ledger) refuse(e *entry, r Reason, err error) {
	delete(l.pending, e.path)
	e.why, e.err, e.flush = r, err, false
	if e.told != r {
		e.told = r
		l.report(Skipped{Path: e.path, Reason: r, Err: err, Identity: e.id})
	}
}

func (l *ledger) remember(id Identity) {
	if len(l.contents) > 2*l.max {
		clear(l.contents)
		for _, e := range l.files {
			l.contents[e.id.inode()] = e.id
		}
	}
	l.contents[id.inode()] = id
}

// hint notes that the writer of p is said to be done with its present state,
// and what that looks like.
func (l *ledger) hint(p Path, now time.Time, s shape) {
	if e := l.pending[p]; e != nil {
		e.closed, e.shape = now, s
	}
}

// gone forgets p and all below it. What was published of it stays known.
func (l *ledger) gone(p Path) {
	if e := l.files[p]; e != nil {
		l.forget(e)
		return
	}
	if l.below[p] == 0 {
		return
	}
	for _, e := range l.files {
		if under(e.path, p) {
			l.forget(e)
		}
	}
}

// unmet yields the paths that a full scan did not meet.
func (l *ledger) unmet(scan uint64) iter.Seq[Path] {
	return func(yield func(Path) bool) {
		for p, e := range l.files {
			if e.scan != scan && !yield(p) {
				return
			}
		}
	}
}

func (l *ledger) forget(e *entry) {
	delete(l.files, e.path)
	delete(l.pending, e.path)
	l.count(e.path, -1)
}

// count adds n to the count of every directory above p.
func (l *ledger) count(p Path, n int) {
	for i := len(p) - 1; i > 0; i-- {
		if p[i] != '/' {
			continue
		}
		if l.below[p[:i]] += n; l.below[p[:i]] == 0 {
			delete(l.below, p[:i])
		}
	}
}

// due returns when an entry may be published for all the ledger knows.
func (l *ledger) due(e *entry) time.Time {
	var at time.Time
	switch {
	case e.flush:
	case e.open && e.closed.IsZero():
		at = e.polled.Add(l.poll)
	case e.shape == shapeWhole && !e.closed.IsZero():
		at = e.closed.Add(l.whole)
	case e.renamed && !e.open:
		at = e.changed.Add(l.rename)
	case e.shape == shapeBinary && !e.closed.IsZero() && !e.returned:
		at = e.closed.Add(l.closed)
	default:
		at = later(e.changed, e.closed).Add(l.settle)
	}
	return later(at, e.retry)
}

// next returns when something falls due, and whether anything will.
func (l *ledger) next() (at time.Time, any bool) {
	for _, e := range l.pending {
		if d := l.due(e); !e.busy && (!any || d.Before(at)) {
			at, any = d, true
		}
	}
	return at, any
}

// take returns the next files to publish, the one that was finished first
// first, and marks them busy: at most count of them, and no more than size
// bytes but for a single one.
func (l *ledger) take(now time.Time, count int, size int64) []candidate {
	var ready []*entry
	for _, e := range l.pending {
		if !e.busy && !l.due(e).After(now) {
			ready = append(ready, e)
		}
	}
	slices.SortFunc(ready, func(a, b *entry) int {
		if a.id.CTime != b.id.CTime {
			if a.id.CTime < b.id.CTime {
				return -1
			}
			return 1
		}
		if naturalLess(a.path, b.path) {
			return -1
		}
		return 1
	})
	var out []candidate
	for _, e := range ready {
		if r := e.unfit(); r != "" {
			l.refuse(e, r, nil)
			continue
		}
		size -= e.id.Size
		if len(out) == count || (len(out) > 0 && size < 0) {
			break
		}
		e.busy = true
		out = append(out, candidate{
			path: e.path, id: e.id, known: l.known[e.path].SHA256,
			quiet: !e.changed.Add(l.quiet).After(now), flush: e.flush, wasOpen: e.open && e.closed.IsZero(),
		})
	}
	return out
}

// flushing says whether any entry still has to be published at once.
func (l *ledger) flushing() bool {
	for _, e := range l.pending {
		if e.flush {
			return true
		}
	}
	return false
}

// flush marks what is pending to be published at once, where which is true.
func (l *ledger) flush(which func(Path, Identity) bool) {
	for _, e := range l.pending {
		if !which(e.path, e.id) {
			continue
		}
		e.flush, e.retry, e.fails = true, time.Time{}, 0
	}
}

// left names everything that is not published, and why. What only waits counts
// where which is true.
func (l *ledger) left(which func(Path, Identity) bool) []Skipped {
	var out []Skipped
	for _, e := range l.files {
		if k, ok := l.known[e.path]; ok && k.Identity == e.id {
			continue
		}
		r := e.why
		if waits := l.pending[e.path] != nil; r == "" && !waits || waits && !which(e.path, e.id) {
			continue
		}
		if r == "" {
			r = ReasonChanging
		}
		out = append(out, Skipped{Path: e.path, Reason: r, Err: e.err, Identity: e.id})
	}
	return out
}

// conclude notes what became of a candidate. It returns whether the path has to
// be looked at again.
func (l *ledger) conclude(r outcome, now time.Time) (look bool) {
	if r.done != nil {
		l.learn(*r.done)
	}
	e := l.files[r.path]
	if e == nil {
		return false
	}
	e.busy = false
	e.why, e.err = r.why, r.err
	switch {
	case r.done != nil:
		l.enlist(e)
		e.open, e.flush, e.fails = false, false, 0
		e.closed, e.returned = time.Time{}, false // what comes now is another version
		return true
	case r.why == ReasonOpen:
		e.open, e.closed, e.polled, e.flush = true, time.Time{}, now, false
	case r.closed:
		e.closed = now
	case r.blind:
		e.retry = e.changed.Add(l.quiet)
	case r.why == ReasonChanging:
		l.setBack(e, now, 20*time.Millisecond)
		return true
	case r.final:
		l.refuse(e, r.why, r.err)
	default:
		l.setBack(e, now, 250*time.Millisecond)
	}
	return false
}

// flushTries is how often a flush tries a file before it leaves it out.
const flushTries = 4

// setBack lets an entry wait, twice as long every time, up to 30 s.
func (l *ledger) setBack(e *entry, now time.Time, first time.Duration) {
	e.retry = now.Add(min(first<<min(e.fails, 10), 30*time.Second))
	e.fails++
	if e.fails >= flushTries {
		e.flush = false
	}
}

// learn notes what was published. What is known of files that are gone
// is forgotten when there is too much of it.
func (l *ledger) learn(k Known) {
	l.known[k.Path] = k
	if len(l.known) <= 4*l.max {
		return
	}
	for old := range l.known {
		if l.files[old] == nil && old != k.Path {
			delete(l.known, old)
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
