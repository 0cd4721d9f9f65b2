package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gabriel-vasile/mimetype"

	"mediasandbox/daemon/api"
)

// hasInputs tells whether all that a command names as inputs is below /inputs
// already: files that were put there, not cells and URLs.
func (l *live) hasInputs(inputs []string) bool {
	return !slices.ContainsFunc(inputs, func(name string) bool {
		return isURL(name) || strings.HasPrefix(name, "#") || !l.hasInput(name)
	})
}

// placeInputs makes sure that what a command names as inputs is below /inputs.
// '#N' is copied there from the store, a URL is downloaded.
func (e *Engine) placeInputs(ctx context.Context, l *live, rec CommandRecord) error {
	for _, name := range rec.Inputs {
		var err error
		switch {
		case isURL(name):
			err = e.placeURL(ctx, l, rec, name)
		case strings.HasPrefix(name, "#"):
			err = e.placeCell(ctx, l, rec.Key(), name)
		case !l.hasInput(name):
			err = api.Errorf(api.CodeFileNotFound, "there is no input %q in the sandbox", name).
				WithHint("put it there first: `sandboxctl put FILE`")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkInputs refuses inputs that name cells which are not there, and URLs that
// are none.
func (e *Engine) checkInputs(k ChatKey, inputs []string) error {
	for _, name := range inputs {
		var err error
		switch {
		case isURL(name):
			_, err = urlName(name)
		case strings.HasPrefix(name, "#"):
			var n int
			if n, err = cellNumber(name); err == nil {
				_, err = e.cellRecord(k, n)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cellNumber reads '#N'.
func cellNumber(name string) (int, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "#"))
	if err != nil {
		return 0, api.Errorf(api.CodeInvalid, "input %q is no cell: write it as #3", name)
	}
	return n, nil
}

// placeCell copies a cell's file below /inputs under its own name.
func (e *Engine) placeCell(ctx context.Context, l *live, k ChatKey, number string) error {
	ordinal, err := cellNumber(number)
	if err != nil {
		return err
	}
	name, r, err := e.inputFromCell(ctx, k, ordinal)
	if err != nil {
		return err
	}
	at := location{"inputs", name}
	in, _, err := writeFile(l.record.Spec.Disk, at, r)
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	in.Cell = ordinal
	l.setInput(at, in)
	return nil
}

func (l *live) hasInput(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.record.Inputs[name]
	return ok
}

// setInput notes what is at a location, if that is below /inputs.
func (l *live) setInput(at location, in Input) {
	if at.dir != "inputs" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record.Inputs == nil {
		l.record.Inputs = make(map[string]Input)
	}
	l.changeTrees(at)
	l.record.Inputs[at.rest] = in
}

// changeTrees takes their digests from the directories above a location, which
// are no longer what was put there. The caller holds mu.
func (l *live) changeTrees(at location) {
	for name, in := range l.record.Inputs {
		if name != at.rest && within(at.rest, name) {
			in.SHA256 = ""
			l.record.Inputs[name] = in
		}
	}
}

// dropInput forgets what was at a location and below it.
func (l *live) dropInput(at location) {
	if at.dir != "inputs" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changeTrees(at)
	maps.DeleteFunc(l.record.Inputs, func(name string, _ Input) bool { return within(name, at.rest) })
}

// moveInput notes that what was at one location, and below it, is at another.
func (l *live) moveInput(from, to location) {
	if from.dir != "inputs" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changeTrees(from)
	l.changeTrees(to)
	for name, in := range maps.Clone(l.record.Inputs) {
		if within(name, from.rest) {
			delete(l.record.Inputs, name)
			l.record.Inputs[to.rest+strings.TrimPrefix(name, from.rest)] = in
		}
	}
}

// within tells whether a path is another one, or below it.
func within(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

// sniffBytes is how much of a file its content type is told from.
const sniffBytes = 3072

// digest makes an Input of what is written to it.
type digest struct {
	sum  hash.Hash
	head bytes.Buffer
	size int64
}

func newDigest() *digest { return &digest{sum: sha256.New()} }

// Write implements io.Writer.
func (d *digest) Write(p []byte) (int, error) {
	d.head.Write(p[:min(len(p), sniffBytes-d.head.Len())])
	d.size += int64(len(p))
	return d.sum.Write(p)
}

func (d *digest) input() Input {
	return Input{Size: d.size, SHA256: hex.EncodeToString(d.sum.Sum(nil)), ContentType: mimetype.Detect(d.head.Bytes()).String()}
}
