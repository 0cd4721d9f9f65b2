package session

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/runtime/sandbox"
	"mediasandbox/uploader"
)

// replayed is one run of a command for a replay.
type replayed struct {
	spec   sandbox.Spec
	handle sandbox.Handle
	sink   *memorySink
	status sandbox.Status
	// late is set when it ran into its timeout.
	late bool
}

// Replay runs the command that made a cell once more, in a fresh sandbox
// without a network, and compares what it makes.
func (e *Engine) Replay(ctx context.Context, k ChatKey, ordinal int) (api.Replay, error) {
	cell, cmd, err := e.makerOf(k, ordinal)
	if err != nil {
		return api.Replay{}, err
	}
	if err := replayable(cell, cmd); err != nil {
		return api.Replay{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	began := time.Now()
	id := newID("replay-")
	if err := e.seats.enter(ctx, k.Account, id); err != nil {
		return api.Replay{}, err
	}
	defer e.seats.leave(k.Account)
	spec, h, err := e.boot(ctx, sandbox.NetworkPolicy{Mode: sandbox.NetworkNone})
	if err != nil {
		return api.Replay{}, err
	}
	run := replayed{spec: spec, handle: h, sink: &memorySink{}}
	var result api.Replay
	if err = e.laySkillsOf(spec.Disk, k); err == nil {
		result, err = e.replayIn(ctx, &run, cell, cmd)
	}
	err = errors.Join(err, h.Detach(), e.removeSandbox(ctx, spec.ID))
	result.Seconds = time.Since(began).Seconds()
	return result, err
}

// replayable refuses what can't be run again as it was.
func replayable(cell CellRecord, cmd CommandRecord) error {
	refuse := func(format string, args ...any) error {
		return api.Errorf(api.CodeInvalid, "cell #%d can't be replayed: %s", cell.Ordinal, fmt.Sprintf(format, args...))
	}
	switch {
	case cell.State != api.CellPublished:
		return api.Errorf(api.CodeUnavailable, "cell #%d is not published", cell.Ordinal).CanRetry()
	case !cmd.State.Ended():
		return api.Errorf(api.CodeUnavailable, "the command of cell #%d still runs", cell.Ordinal).CanRetry()
	case cmd.TTY:
		return refuse("its command ran on a terminal")
	case cmd.Stream:
		return refuse("its command's input was streamed, and is not kept")
	case cmd.Made.Stdin != nil && len(cmd.Stdin) == 0:
		return refuse("its command's input was %d bytes, and up to %d are kept", cmd.Made.Stdin.Size, maxKeptStdin)
	}
	return nil
}

func (e *Engine) replayIn(ctx context.Context, run *replayed, cell CellRecord, cmd CommandRecord) (api.Replay, error) {
	if err := e.giveInputs(ctx, run.spec, cmd); err != nil {
		return api.Replay{}, err
	}
	if err := e.runAgain(ctx, run, cmd); err != nil {
		return api.Replay{}, err
	}
	result := api.Replay{
		Cell: cell.Ordinal, Revision: cell.Revision, Original: api.Digest{SHA256: cell.File.SHA256, Size: cell.File.Size},
		Image: e.cfg.ImageDigest, SameImage: e.cfg.ImageDigest == cmd.Image,
	}
	result.State, result.ExitCode = run.state()
	if err := e.compare(ctx, run, cell, &result); err != nil {
		return result, err
	}
	result.Reason = run.explain(result, cmd)
	return result, nil
}

// giveInputs puts what the command was given into the fresh sandbox.
func (e *Engine) giveInputs(ctx context.Context, spec sandbox.Spec, cmd CommandRecord) error {
	// Directories before what was put into them later.
	for _, name := range slices.Sorted(maps.Keys(cmd.Made.Inputs)) {
		in := cmd.Made.Inputs[name]
		if err := e.giveInput(ctx, spec, name, in, cmd.Key()); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) giveInput(ctx context.Context, spec sandbox.Spec, name string, in Input, k ChatKey) error {
	if in.SHA256 == "" {
		return api.Errorf(api.CodeInvalid, "the input %s was changed after it was put there, and is not known any more", name)
	}
	r, err := e.findInput(ctx, in, k)
	if err != nil {
		return err
	}
	if r == nil {
		return api.Errorf(api.CodeFileNotFound, "the input %s (SHA-256 %s) is not there any more", name, in.SHA256).
			WithHint("put the same file into the chat again (`sandboxctl put`), then replay")
	}
	write := writeFile
	if in.tree() {
		write = writeTree
	}
	got, _, err := write(spec.Disk, location{"inputs", name}, r)
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	if got.SHA256 != in.SHA256 {
		return fmt.Errorf("the input %s has SHA-256 %s, it should have %s", name, got.SHA256, in.SHA256)
	}
	return nil
}

// findInput looks for a file of that content: among what is kept, and what the
// chat's live sandbox was given. It is nil when there is none.
func (e *Engine) findInput(ctx context.Context, in Input, k ChatKey) (io.ReadCloser, error) {
	kept, err := e.findKept(ctx, in, k)
	if err != nil {
		return nil, err
	}
	if kept != nil {
		return kept, nil
	}
	if l := e.liveOf(k); l != nil {
		for name, given := range l.work().inputs {
			if given.SHA256 == in.SHA256 {
				return openInput(l.record.Spec.Disk, name, given)
			}
		}
	}
	return nil, nil
}

// findKept looks for a file of that content where no guest can change it:
// among the kept inputs and the chat's cells. It is nil when there is none.
func (e *Engine) findKept(ctx context.Context, in Input, k ChatKey) (io.ReadSeekCloser, error) {
	if e.inputs.has(k, in.SHA256) {
		f, err := e.inputs.open(k, in.SHA256)
		if err != nil {
			return nil, fmt.Errorf("open a kept input: %w", err)
		}
		return f, nil
	}
	var recs []CellRecord
	err := e.cfg.Store.View(func(tx Tx) (err error) {
		recs, err = tx.Cells(k)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, c := range recs {
		if c.File.SHA256 == in.SHA256 && c.State == api.CellPublished && !c.gone(now()) {
			return &blobReader{ctx: ctx, blobs: e.cfg.Blobs, key: c.Key, size: c.File.Size}, nil
		}
	}
	return nil, nil
}

// runAgain runs the command to its end.
func (e *Engine) runAgain(ctx context.Context, run *replayed, cmd CommandRecord) error {
	timeout, cancel := context.WithTimeout(ctx, seconds(cmd.Timeout))
	defer cancel()
	p, err := run.handle.Start(ctx, cmd.ID, e.guestCommand(cmd, run.sink))
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	select {
	case <-p.Done():
	case <-timeout.Done():
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		run.late = true
		if err := p.Kill(); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		select {
		case <-p.Done():
		case <-time.After(killTimeout):
			return errors.New("replay: the guest did not end the command")
		}
	}
	run.status = p.Status()
	return nil
}

func (r *replayed) state() (api.State, *int) {
	st := r.status
	switch {
	case r.late:
		return api.StateTimedOut, nil
	case st.Err != nil:
		return api.StateLost, nil
	case st.Signal != 0:
		return api.StateFailed, nil
	case st.Code != 0:
		return api.StateFailed, &st.Code
	}
	return api.StateSucceeded, &st.Code
}

// explain says what to know of a verdict.
func (r *replayed) explain(res api.Replay, cmd CommandRecord) string {
	if res.Verdict == api.VerdictIdentical {
		return ""
	}
	why := ""
	add := func(format string, args ...any) {
		if why != "" {
			why += "; "
		}
		why += fmt.Sprintf(format, args...)
	}
	if res.State != cmd.State {
		add("the command %s, it %s then", words(res.State), words(cmd.State))
		if tail := r.sink.tail(); tail != "" {
			add("it said: %s", tail)
		}
	}
	if !res.SameImage {
		add("the cell was made on another image (%.12s…)", cmd.Image)
	}
	if cmd.Made.Network != string(sandbox.NetworkNone) && res.State != api.StateSucceeded {
		add("a replay has no network")
	}
	if n := cmd.Made.Earlier; n > 0 {
		add("%d earlier commands of its sandbox may have left files that it used", n)
	}
	return why
}

// words says how a command ended in the middle of a sentence.
func words(s api.State) string {
	switch s {
	case api.StateTimedOut:
		return "ran into its timeout"
	case api.StateOOMKilled:
		return "ran out of memory"
	case api.StateCanceled, api.StateLost:
		return "was " + string(s)
	}
	return string(s)
}

// compare sets the verdict.
func (e *Engine) compare(ctx context.Context, run *replayed, cell CellRecord, res *api.Replay) error {
	var p uploader.Path
	if err := p.UnmarshalText([]byte(cell.File.Path)); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	again, err := openIn(run.spec.Disk, location{"outputs", string(p)})
	var unfit *api.Error
	if errors.As(err, &unfit) {
		res.Verdict = api.VerdictMissing
		return nil
	}
	if err != nil {
		return fmt.Errorf("replay: open what it made: %w", err)
	}
	defer again.Close()
	original := &blobReader{ctx: ctx, blobs: e.cfg.Blobs, key: cell.Key, size: cell.File.Size}
	defer original.Close()
	digest, first, err := firstDifference(original, again)
	if err != nil {
		return fmt.Errorf("replay: compare: %w", err)
	}
	res.Again, res.Verdict = &digest, api.VerdictIdentical
	if first >= 0 {
		res.Verdict, res.FirstByte = api.VerdictDiffers, &first
		return e.comparePictures(ctx, run, cell, string(p), res)
	}
	return nil
}

// firstDifference reads both to their ends. It returns the digest of b, and
// where b begins to differ from a; -1 when it does not.
func firstDifference(a, b io.Reader) (api.Digest, int64, error) {
	var sum hash.Hash = sha256.New()
	ra, rb := bufio.NewReaderSize(a, 256<<10), bufio.NewReaderSize(io.TeeReader(b, sum), 256<<10)
	var size int64
	first := int64(-1)
	for {
		ca, errA := ra.ReadByte()
		cb, errB := rb.ReadByte()
		for _, err := range []error{errA, errB} {
			if err != nil && !errors.Is(err, io.EOF) {
				return api.Digest{}, 0, err
			}
		}
		if first < 0 && (ca != cb || (errA == nil) != (errB == nil)) {
			first = size
		}
		if errB != nil {
			return api.Digest{SHA256: hex.EncodeToString(sum.Sum(nil)), Size: size}, first, nil
		}
		size++
	}
}
