package session

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/outlog"
)

// StartCommand records a command and begins it. The answer comes before the
// command has started.
func (e *Engine) StartCommand(ctx context.Context, key ChatKey, req api.NewCommand) (api.Command, error) {
	chat, err := e.chatRecord(key)
	if err != nil {
		return api.Command{}, err
	}
	rec, err := newCommand(chat, req)
	if err != nil {
		return api.Command{}, err
	}
	r, err := e.newRunning(rec)
	if err != nil {
		return api.Command{}, err
	}
	err = e.update(key, func(tx Tx) error {
		if err := tx.PutCommand(rec); err != nil {
			return err
		}
		return emit(tx, key, commandEvent(rec))
	})
	if err != nil {
		return api.Command{}, errors.Join(err, r.discard())
	}
	e.mu.Lock()
	e.commands[rec.ID] = r
	e.mu.Unlock()
	e.work.Go(func() { e.run(r) })
	return rec.Command, nil
}

// newCommand checks a request and makes the record of it.
func newCommand(chat ChatRecord, req api.NewCommand) (CommandRecord, error) {
	ways := 0
	for _, given := range []bool{len(req.Argv) > 0, req.Shell != "", req.Python != ""} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return CommandRecord{}, api.Errorf(api.CodeInvalid, "%d of argv, shell and python are given", ways).
			WithHint("give exactly one of them")
	}
	if err := checkSizes(req); err != nil {
		return CommandRecord{}, err
	}
	timeout, err := checkTimeout(req.Timeout)
	if err != nil {
		return CommandRecord{}, err
	}
	if req.Dir == "" {
		req.Dir = "/workspace"
	}
	if !path.IsAbs(req.Dir) {
		return CommandRecord{}, api.Errorf(api.CodeInvalid, "dir %q is not absolute", req.Dir)
	}
	if req.Kind != "" && !slices.Contains(api.Pills(), req.Kind) {
		return CommandRecord{}, api.Errorf(api.CodeInvalid, "kind %q is not known", req.Kind).WithHint("use one of %v", api.Pills())
	}
	return CommandRecord{
		Account: chat.Account,
		Env:     req.Env,
		Stdin:   req.Stdin,
		Command: api.Command{
			Type: "command", ID: newID("x-"), Chat: chat.ID,
			Argv: req.Argv, Shell: req.Shell, Python: req.Python, Script: req.Script, Args: req.Args,
			Dir: req.Dir, Label: req.Label, Kind: req.Kind, Inputs: req.Inputs,
			State: api.StateQueued, Timeout: timeout.Seconds(), CreatedAt: now(),
		},
	}, nil
}

func checkSizes(req api.NewCommand) error {
	n := 0
	for _, a := range slices.Concat(req.Argv, req.Args) {
		n += len(a) + 1
		if strings.IndexByte(a, 0) >= 0 {
			return api.Errorf(api.CodeInvalid, "an argument holds a NUL byte")
		}
	}
	for k, v := range req.Env {
		n += len(k) + len(v) + 2
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(v, 0) >= 0 {
			return api.Errorf(api.CodeInvalid, "environment variable %q is not valid", k)
		}
	}
	if n > api.MaxArgs {
		return api.Errorf(api.CodeTooLarge, "arguments and environment are %d bytes, the limit is %d", n, api.MaxArgs).
			WithHint("put the data into a file")
	}
	if src := max(len(req.Python), len(req.Shell)); src > api.MaxSource {
		return api.Errorf(api.CodeTooLarge, "the source is %d bytes, the limit is %d", src, api.MaxSource).
			WithHint("put it into a file with `sandboxctl put`")
	}
	return nil
}

func checkTimeout(seconds float64) (time.Duration, error) {
	if seconds == 0 {
		return api.DefaultTimeout, nil
	}
	if math.IsNaN(seconds) || seconds < 0 || seconds > api.MaxTimeout.Seconds() {
		return 0, api.Errorf(api.CodeInvalid, "timeout of %g s is not between 0 and %g s", seconds, api.MaxTimeout.Seconds()).
			WithHint("longer work continues in the next turn: split it, or wait on a detached command")
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

func commandEvent(rec CommandRecord) api.Event {
	c := rec.Command
	return api.Event{Type: api.EventCommandState, Command: &c}
}

// Command returns one command with its output sizes and cells.
func (e *Engine) Command(key ChatKey, id string) (api.Command, error) {
	if _, err := e.chatRecord(key); err != nil {
		return api.Command{}, err
	}
	var rec CommandRecord
	var cells []CellRecord
	err := e.cfg.Store.View(func(tx Tx) (err error) {
		if rec, err = tx.Command(key, id); err != nil {
			return err
		}
		cells, err = tx.Cells(key)
		return err
	})
	if err != nil {
		return api.Command{}, notFound(err, api.CodeCommandNotFound, "chat %s has no command %q", key.ID, id)
	}
	return e.wireCommand(rec, cells), nil
}

// Commands lists a chat's commands, the newest last.
func (e *Engine) Commands(key ChatKey) ([]api.Command, error) {
	if _, err := e.chatRecord(key); err != nil {
		return nil, err
	}
	var recs []CommandRecord
	var cells []CellRecord
	err := e.cfg.Store.View(func(tx Tx) (err error) {
		if recs, err = tx.Commands(key); err != nil {
			return err
		}
		cells, err = tx.Cells(key)
		return err
	})
	commands := make([]api.Command, 0, len(recs))
	for _, rec := range recs {
		commands = append(commands, e.wireCommand(rec, cells))
	}
	return commands, err
}

func (e *Engine) wireCommand(rec CommandRecord, cells []CellRecord) api.Command {
	c := rec.Command
	if r := e.runningOf(c.ID); r != nil {
		c.Stdout, c.Stderr = r.sizes()
	}
	for _, cell := range cells {
		if cell.Command == c.ID {
			c.Cells = append(c.Cells, e.wireCell(cell))
		}
	}
	return c
}

func (e *Engine) runningOf(id string) *running {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.commands[id]
}

// Wait returns the command once it has ended, or as it is when ctx ends.
func (e *Engine) Wait(ctx context.Context, key ChatKey, id string) (api.Command, error) {
	c, err := e.Command(key, id)
	if err != nil {
		return c, err
	}
	if r := e.runningOf(id); r != nil {
		select {
		case <-r.done:
		case <-ctx.Done():
		}
	}
	return e.Command(key, id)
}

// Kill signals the main process of a running command; without a signal it ends
// the command with all its processes as canceled.
func (e *Engine) Kill(key ChatKey, id string, signal int) error {
	c, err := e.Command(key, id)
	if err != nil {
		return err
	}
	r := e.runningOf(id)
	if r == nil || c.State.Ended() {
		return api.Errorf(api.CodeCommandEnded, "command %s has ended: %s", id, c.State)
	}
	if signal < 0 || signal > 64 {
		return api.Errorf(api.CodeInvalid, "signal %d is not between 1 and 64", signal)
	}
	if signal == 0 {
		r.cancel(errCanceled)
		return nil
	}
	p := r.process.Load()
	if p == nil {
		return api.Errorf(api.CodeUnavailable, "command %s has not started yet", id).CanRetry()
	}
	return (*p).Signal(signal)
}

// Output opens a stream of a command for reading.
func (e *Engine) Output(key ChatKey, id, stream string) (*outlog.Log, func() error, error) {
	if _, err := e.Command(key, id); err != nil {
		return nil, nil, err
	}
	if r := e.runningOf(id); r != nil {
		if l := r.log(stream); l != nil {
			return l, func() error { return nil }, nil
		}
	}
	l, err := outlog.Open(filepath.Join(e.outputDir(id), stream))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, api.Errorf(api.CodeCommandNotFound, "command %s has no stream %q", id, stream)
	}
	if err != nil {
		return nil, nil, err
	}
	return l, l.Close, nil
}

// newRunning makes the output logs of a command.
func (e *Engine) newRunning(rec CommandRecord) (*running, error) {
	dir := e.outputDir(rec.ID)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	out, err := outlog.Create(filepath.Join(dir, "stdout"), e.cfg.OutputBytes)
	if err != nil {
		return nil, err
	}
	errs, err := outlog.Create(filepath.Join(dir, "stderr"), e.cfg.OutputBytes)
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return e.makeRunning(rec, out, errs), nil
}
