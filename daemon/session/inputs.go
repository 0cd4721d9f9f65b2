package session

import (
	"context"
	"errors"
	"os"
	"path"
	"strconv"
	"strings"

	"mediasandbox/daemon/api"
)

// placeInputs makes sure that what a command names as inputs is below /inputs.
// '#N' is copied there from the store.
func (e *Engine) placeInputs(ctx context.Context, l *live, rec CommandRecord) error {
	for _, name := range rec.Inputs {
		number, isCell := strings.CutPrefix(name, "#")
		if !isCell {
			l.mu.Lock()
			_, ok := l.record.Inputs[name]
			l.mu.Unlock()
			if !ok {
				return api.Errorf(api.CodeFileNotFound, "there is no input %q in the sandbox", name).
					WithHint("put it there first: `sandboxctl put FILE`")
			}
			continue
		}
		n, err := strconv.Atoi(number)
		if err != nil {
			return api.Errorf(api.CodeInvalid, "input %q is no cell: write it as #3", name)
		}
		if err := e.placeCell(ctx, l, rec.Key(), n); err != nil {
			return err
		}
	}
	return nil
}

// checkCells refuses inputs that name cells which are not there.
func (e *Engine) checkCells(k ChatKey, inputs []string) error {
	for _, name := range inputs {
		number, isCell := strings.CutPrefix(name, "#")
		if !isCell {
			continue
		}
		n, err := strconv.Atoi(number)
		if err != nil {
			return api.Errorf(api.CodeInvalid, "input %q is no cell: write it as #3", name)
		}
		if _, err := e.cellRecord(k, n); err != nil {
			return err
		}
	}
	return nil
}

// placeCell copies a cell's file below /inputs under its own name.
func (e *Engine) placeCell(ctx context.Context, l *live, k ChatKey, ordinal int) error {
	name, r, err := e.inputFromCell(ctx, k, ordinal)
	if err != nil {
		return err
	}
	err = e.in(l, "inputs", func(root *os.Root) error {
		in, _, err := writeFile(root, name, r)
		if err != nil {
			return fileError(path.Join("/inputs", name), err)
		}
		in.Cell = ordinal
		l.setInput(name, in)
		return nil
	})
	return errors.Join(err, r.Close())
}
