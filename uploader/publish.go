package uploader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// A batch is published together, so that many small files share the cost
	// of being made durable.
	batchFiles = 64
	batchBytes = 256 << 20
	// writersTimeout bounds how long the guest may think about its open files.
	writersTimeout = 2 * time.Second
)

// candidate is a file that the ledger takes for finished.
type candidate struct {
	path Path
	id   Identity
	// known is the digest of what was published at the path before.
	known string
	// quiet is set when the file may be published without knowing its writers.
	quiet bool
	flush bool
	// wasOpen is set when a writer held the file at the last look.
	wasOpen bool
}

// outcome is what became of a candidate. Exactly one of done, why, closed and
// blind is set.
type outcome struct {
	path Path
	// done is what is published at the path now.
	done *Known
	why  Reason
	err  error
	// final is set when only a change of the file can change the outcome.
	final bool
	// closed is set when the file was open before and no longer is.
	closed bool
	// blind is set when the writers are not known, and the file has not been
	// quiet for long enough to go without.
	blind bool
}

// publisher takes candidates through the last checks, into the spool and to
// the receiver. It has a goroutine of its own, so that a large file does not
// stop the watcher from watching.
type publisher struct {
	root     *os.File
	spool    *Spool
	receiver Receiver
	writers  Writers
	guestDir string
	maxBytes int64
	batches  chan []candidate
	outcomes chan []outcome
	log      *slog.Logger
	// mute is set while the writers' failure is logged already.
	mute bool
}

func (p *publisher) run(ctx context.Context) {
	defer close(p.outcomes)
	for batch := range p.batches {
		select {
		case p.outcomes <- p.publish(ctx, batch):
		case <-ctx.Done():
			return
		}
	}
}

// taken is a candidate whose copy is made.
type taken struct {
	candidate
	copy *staged
}

func (p *publisher) publish(ctx context.Context, batch []candidate) []outcome {
	var out []outcome
	open, writersErr := p.openForWriting(ctx)
	var copies []taken
	for _, c := range batch {
		if o, wait := holdBack(c, open, writersErr); wait {
			out = append(out, o)
			continue
		}
		copy, o := p.take(ctx, c)
		if copy == nil {
			out = append(out, o)
			continue
		}
		if copy.snapshot.SHA256 == c.known {
			p.spool.discard(copy)
			out = append(out, outcome{path: c.path, done: &Known{Path: c.path, Identity: c.id, SHA256: c.known}})
			continue
		}
		copies = append(copies, taken{c, copy})
	}
	return append(out, p.handOver(ctx, copies)...)
}

// holdBack says whether a candidate has to wait for its writers.
func holdBack(c candidate, open map[Path]bool, writersErr error) (outcome, bool) {
	switch {
	case writersErr != nil && !c.quiet:
		return outcome{path: c.path, blind: true}, true
	case writersErr == nil && open[c.path]:
		return outcome{path: c.path, why: ReasonOpen}, true
	case writersErr == nil && c.wasOpen && !c.flush:
		return outcome{path: c.path, closed: true}, true
	}
	return outcome{}, false
}

// errNoWriters stands for an answer when nobody is there to ask.
var errNoWriters = errors.New("nobody knows the open files")

func (p *publisher) openForWriting(ctx context.Context) (map[Path]bool, error) {
	if p.writers == nil {
		return nil, errNoWriters
	}
	ctx, cancel := context.WithTimeout(ctx, writersTimeout)
	defer cancel()
	names, err := p.writers.OpenForWriting(ctx, p.guestDir)
	if err != nil {
		if !p.mute {
			p.log.Warn("open files are not known, waiting for quiet instead", "error", err)
		}
		p.mute = true
		return nil, err
	}
	p.mute = false
	open := make(map[Path]bool, len(names))
	for _, name := range names {
		if path, ok := guestPath(p.guestDir, name); ok {
			open[path] = true
		}
	}
	return open, nil
}

// take copies one file, or says why not.
func (p *publisher) take(ctx context.Context, c candidate) (*staged, outcome) {
	fail := func(r Reason, err error, final bool) (*staged, outcome) {
		return nil, outcome{path: c.path, why: r, err: err, final: final}
	}
	f, st, err := openFile(int(p.root.Fd()), string(c.path))
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
			return fail(ReasonChanging, nil, false)
		}
		return fail(ReasonUnreadable, err, false)
	}
	defer f.Close()
	if r := st.unfit(); r != "" {
		return fail(r, nil, true)
	}
	if st.id != c.id {
		return fail(ReasonChanging, nil, false)
	}
	if st.id.Size > p.maxBytes {
		return fail(ReasonTooLarge, fmt.Errorf("%d bytes, at most %d", st.id.Size, p.maxBytes), true)
	}
	if err := waitRacy(ctx, st.id); err != nil {
		return fail(ReasonUnreadable, err, false)
	}
	copy, err := p.spool.stage(ctx, f, c.id)
	if errors.Is(err, ErrChanged) {
		return fail(ReasonChanging, nil, false)
	}
	if err != nil {
		return fail(ReasonUnreadable, err, false)
	}
	return copy, outcome{}
}

// waitRacy waits until a further change could not keep the identity.
func waitRacy(ctx context.Context, id Identity) error {
	wait := id.racyFor(time.Now())
	if wait == 0 {
		return nil
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// handOver makes the copies durable and gives them to the receiver.
func (p *publisher) handOver(ctx context.Context, copies []taken) []outcome {
	if len(copies) == 0 {
		return nil
	}
	var list []*staged
	var finished []Finished
	for _, t := range copies {
		list = append(list, t.copy)
		finished = append(finished, Finished{Path: t.path, Snapshot: t.copy.snapshot, Identity: t.id})
	}
	err := p.spool.commit(list)
	if err == nil {
		if err = p.receiver.Finished(ctx, finished); err != nil {
			for _, t := range copies {
				p.spool.discard(t.copy)
			}
		}
	}
	var out []outcome
	for i, t := range copies {
		if err != nil {
			out = append(out, outcome{path: t.path, why: ReasonNotRecorded, err: err})
			continue
		}
		known := finished[i].Known()
		out = append(out, outcome{path: t.path, done: &known})
	}
	return out
}
