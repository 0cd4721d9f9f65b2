package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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
// command has started. A request that repeats an idempotency key is answered
// with the command of the first.
func (e *Engine) StartCommand(ctx context.Context, key ChatKey, req api.NewCommand, idempotency string) (api.Command, error) {
	chat, err := e.chatRecord(key)
	if err != nil {
		return api.Command{}, err
	}
	rec, err := e.newCommand(chat, req)
	if err != nil {
		return api.Command{}, err
	}
	if err := e.checkInputs(key, req.Inputs); err != nil {
		return api.Command{}, err
	}
	if err := e.admit(key); err != nil {
		return api.Command{}, err
	}
	r, err := e.newRunning(rec)
	if err != nil {
		return api.Command{}, err
	}
	line := e.queueUp(rec)
	l := e.enterNow(&rec, line)
	first, err := e.recordCommand(key, &rec, req, idempotency)
	if err != nil || first != "" {
		line.abandon()
		err = errors.Join(err, r.discard(), os.RemoveAll(e.outputDir(rec.ID)))
		if l != nil {
			err = errors.Join(err, e.leave(l, rec.ID))
		}
		if err != nil {
			return api.Command{}, err
		}
		return e.Command(key, first)
	}
	r.rec = rec
	e.launch(r, line, l)
	return e.Command(key, rec.ID)
}

// enterNow brings a command that is not recorded yet into its chat's sandbox if
// nothing stands in the way: then it is recorded as running at once, which is
// one transaction less. It returns nil when the command has to wait for
// anything.
func (e *Engine) enterNow(rec *CommandRecord, line *ticket) *live {
	l := e.liveOf(rec.Key())
	if l == nil || !line.ready() || !l.hasInputs(rec.Inputs) || !l.wantsAll(rec.Publish) || !l.enter(rec.ID) {
		return nil
	}
	e.settle(rec, l)
	if err := move(rec, api.StateRunning, now()); err != nil { // never: it is queued
		e.log.Error("start a command", "command", rec.ID, "error", err)
	}
	return l
}

// launch puts a recorded command into its chat's queue, or starts it in l.
func (e *Engine) launch(r *running, line *ticket, l *live) {
	e.mu.Lock()
	e.commands[r.rec.ID] = r
	e.mu.Unlock()
	e.work.Go(func() { e.run(r, line, l) })
}

// recordCommand writes a new command within its turn. It returns the command
// that was started under the same idempotency key before, if one was.
func (e *Engine) recordCommand(key ChatKey, rec *CommandRecord, req api.NewCommand, idempotency string) (first string, err error) {
	digest, err := digestOf(req)
	if err != nil {
		return "", err
	}
	err = e.update(key, func(tx Tx) error {
		if idempotency != "" {
			switch old, err := tx.Request(key, idempotency); {
			case err == nil && old.Digest != digest:
				return api.Errorf(api.CodeIdempotency, "idempotency key %q was used for another request", idempotency).
					WithHint("use a new key for a new request")
			case err == nil:
				first = old.Command
				return nil
			case !errors.Is(err, ErrNotFound):
				return err
			}
			if err := tx.PutRequest(key, idempotency, RequestRecord{digest, rec.ID}); err != nil {
				return err
			}
		}
		chat, err := tx.Chat(key)
		if err != nil {
			return err
		}
		turn, err := e.enterTurn(tx, &chat, req.Turn, false)
		if err != nil {
			return err
		}
		if turn.left(now()) == 0 {
			return errSpent(turn)
		}
		rec.Turn = turn.ID
		return putState(tx, api.StateQueued, rec)
	})
	return first, err
}

// digestOf names a request by its content.
func digestOf(req api.NewCommand) (string, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return "", fmt.Errorf("encode request: %w", err)
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:]), nil
}

// newCommand checks a request and makes the record of it.
func (e *Engine) newCommand(chat ChatRecord, req api.NewCommand) (CommandRecord, error) {
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
	timeout, err := e.checkTimeout(req.Timeout)
	if err != nil {
		return CommandRecord{}, err
	}
	if req.Dir == "" {
		req.Dir = "/workspace"
	}
	if !path.IsAbs(req.Dir) {
		return CommandRecord{}, api.Errorf(api.CodeInvalid, "dir %q is not absolute", req.Dir)
	}
	if req.Keep && req.TTY != nil {
		return CommandRecord{}, api.Errorf(api.CodeInvalid, "keep_background goes not with tty").
			WithHint("start what is to stay in a command without a terminal")
	}
	if err := checkPublish(req.Publish); err != nil {
		return CommandRecord{}, err
	}
	if req.Kind != "" && !slices.Contains(api.Pills(), req.Kind) {
		return CommandRecord{}, api.Errorf(api.CodeInvalid, "kind %q is not known", req.Kind).WithHint("use one of %v", api.Pills())
	}
	return CommandRecord{
		Account: chat.Account,
		Env:     req.Env,
		Stdin:   req.Stdin,
		Stream:  req.Stream || req.TTY != nil,
		Size:    req.TTY,
		Command: api.Command{
			Type: "command", ID: newID("x-"), Chat: chat.ID,
			Argv: req.Argv, Shell: req.Shell, Python: req.Python, Script: req.Script, Args: req.Args,
			Dir: req.Dir, TTY: req.TTY != nil, Keep: req.Keep, Label: req.Label, Kind: req.Kind, Inputs: req.Inputs, Publish: req.Publish,
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

func (e *Engine) checkTimeout(seconds float64) (time.Duration, error) {
	if seconds == 0 {
		return e.cfg.DefaultTimeout, nil
	}
	if math.IsNaN(seconds) || seconds < 0 || seconds > e.cfg.MaxTimeout.Seconds() {
		return 0, api.Errorf(api.CodeInvalid, "timeout of %g s is not between 0 and %g s", seconds, e.cfg.MaxTimeout.Seconds()).
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
	chat, err := e.chatRecord(key)
	if err != nil {
		return api.Command{}, err
	}
	var rec CommandRecord
	var cells []CellRecord
	err = e.cfg.Store.View(func(tx Tx) (err error) {
		if rec, err = tx.Command(key, id); err != nil {
			return err
		}
		cells, err = tx.Cells(key)
		return err
	})
	if err != nil {
		return api.Command{}, notFound(err, api.CodeCommandNotFound, "chat %s has no command %q", key.ID, id)
	}
	return e.wireCommand(chat, rec, cells), nil
}

// Commands lists a chat's commands, the newest last.
func (e *Engine) Commands(key ChatKey) ([]api.Command, error) {
	chat, err := e.chatRecord(key)
	if err != nil {
		return nil, err
	}
	var recs []CommandRecord
	var cells []CellRecord
	err = e.cfg.Store.View(func(tx Tx) (err error) {
		if recs, err = tx.Commands(key); err != nil {
			return err
		}
		cells, err = tx.Cells(key)
		return err
	})
	commands := make([]api.Command, 0, len(recs))
	for _, rec := range recs {
		commands = append(commands, e.wireCommand(chat, rec, cells))
	}
	return commands, err
}

func (e *Engine) wireCommand(chat ChatRecord, rec CommandRecord, cells []CellRecord) api.Command {
	c := rec.Command
	if r := e.runningOf(c.ID); r != nil {
		c.Stdout, c.Stderr = r.sizes()
		c.Place = e.place(rec.Key(), c.ID)
		c.Progress = r.progress.latest()
	}
	if chat.Turn != nil {
		c.Left = chat.Turn.left(now()).Seconds()
	}
	c.InputFiles = inputFiles(rec)
	for _, cell := range cells {
		if cell.Command == c.ID && !cell.gone(now()) {
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
		if err := e.intend(r, api.StateCanceled); err != nil {
			return err
		}
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
		if l := r.log(stream); l != nil && r.use() {
			return l, r.release, nil
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
