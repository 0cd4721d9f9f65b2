package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/gabriel-vasile/mimetype"

	"mediasandbox/daemon/api"
	"mediasandbox/uploader"
)

// watchConfig says how a sandbox's outputs become cells.
func (e *Engine) watchConfig(l *live, known []uploader.Known) uploader.Config {
	return uploader.Config{
		Dir: l.dir("outputs"), GuestDir: "/outputs", Spool: e.cfg.Spool,
		Receiver: receiver{e, l}, Known: known, Log: e.log.With("sandbox", l.record.Spec.ID),
		Writers: writers{e, l}, Skipped: l.skips.note, Wanted: l.wanted,
	}
}

// receiver records finished files as cells.
type receiver struct {
	e *Engine
	l *live
}

// Finished implements uploader.Receiver: cells, known files, uploads and
// events are one transaction.
func (r receiver) Finished(_ context.Context, files []uploader.Finished) error {
	work := r.l.work()
	makers := make([]CommandRecord, len(files))
	types := make([]string, len(files))
	for i, f := range files {
		t, err := r.e.sniff(f)
		if err != nil {
			return err
		}
		types[i] = t
		makers[i] = r.l.makerOf(f.Path, time.Unix(0, f.Identity.CTime))
	}
	var cells []CellRecord
	var jobs []uploader.Job
	err := r.e.update(work.chat, func(tx Tx) error {
		cells, jobs = nil, nil
		for i, f := range files {
			cell, job, err := r.record(tx, work.by(makers[i]), f, types[i])
			if err != nil {
				return fmt.Errorf("record output %s: %w", f.Path, err)
			}
			cells, jobs = append(cells, cell), append(jobs, job)
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.e.uploads.Add(jobs...)
	r.e.wakeSweeper()
	r.e.findFacts(r.l, cells)
	r.e.makePreviews(r.l, cells)
	for _, made := range makers {
		r.e.keepInputs(r.l, made)
	}
	return nil
}

// cellFor returns the cell that a path already is, or a new one with the
// chat's next ordinal.
func cellFor(tx Tx, work work, p uploader.Path) (CellRecord, error) {
	ordinal, err := tx.KnownOrdinal(work.sandbox, p)
	if err == nil {
		var cell CellRecord
		if cell, err = tx.Cell(work.chat, ordinal); err == nil && !cell.gone(now()) {
			return cell, nil
		}
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return CellRecord{}, err
	}
	chat, err := tx.Chat(work.chat)
	if err != nil {
		return CellRecord{}, err
	}
	chat.Ordinals++
	cell := CellRecord{Account: work.chat.Account, Sandbox: work.sandbox}
	cell.Ordinal = chat.Ordinals
	return cell, tx.PutChat(chat)
}

// expiryNow is when a cell of this moment is to be removed.
func (e *Engine) expiryNow(tx Tx, k ChatKey) (*time.Time, error) {
	chat, err := tx.Chat(k)
	if err != nil {
		return nil, err
	}
	retention, err := e.retentionOf(tx, chat)
	return retention.Expiry(now()), err
}

// record makes or revises the cell of one file, and queues its upload.
func (r receiver) record(tx Tx, work work, f uploader.Finished, contentType string) (CellRecord, uploader.Job, error) {
	cell, err := cellFor(tx, work, f.Path)
	if err != nil {
		return cell, uploader.Job{}, err
	}
	expires, err := r.e.expiryNow(tx, work.chat)
	if err != nil {
		return cell, uploader.Job{}, err
	}
	name := path.Base(f.Path.String())
	cell.Cell = api.Cell{
		Ordinal: cell.Ordinal, Revision: cell.Revision + 1, State: api.CellPending,
		Chat: work.chat.ID, Command: work.command.ID, Label: work.command.Label, CreatedAt: now(),
		Pill: work.pill(contentType),
		File: api.File{
			Path: f.Path.String(), Name: name, Size: f.Snapshot.Size, SHA256: f.Snapshot.SHA256, ContentType: contentType,
			ExpiresAt: expires,
		},
	}
	if cell.Replaced == "" {
		cell.Replaced = cell.Key
	}
	cell.Key = uploader.NewKey(work.chat.ID, f.Path)
	cell.Probed = !probed(contentType) || r.l.handle == nil
	job := uploader.Job{
		ID: newID("u-"), Chat: work.chat.String(), Key: cell.Key,
		Snapshot: f.Snapshot, ContentType: contentType, FileName: uploader.Path(path.Base(string(f.Path))), Expires: expires,
	}
	return cell, job, errors.Join(
		tx.PutCell(cell),
		countBytes(tx, cell.Account, f.Snapshot.Size),
		tx.PutKnown(work.sandbox, f.Known(), cell.Ordinal),
		tx.PutJob(JobRecord{Job: job, Cell: work.chat, Ordinal: cell.Ordinal}),
		emit(tx, work.chat, cellEvent(api.EventCellPending, cell)),
	)
}

func cellEvent(t api.EventType, rec CellRecord) api.Event {
	c := rec.Cell
	return api.Event{Type: t, Cell: &c}
}

// sniff tells a file's type from its first bytes.
func (e *Engine) sniff(f uploader.Finished) (string, error) {
	snap, err := e.cfg.Spool.Open(f.Snapshot)
	if err != nil {
		return "", err
	}
	head := make([]byte, sniffBytes)
	n, err := io.ReadFull(snap, head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return mimetype.Detect(head[:n]).String(), errors.Join(err, snap.Close())
}

// collect publishes what a command that has ended left in /outputs, and returns
// what was left out.
func (e *Engine) collect(l *live, command string) []api.Skipped {
	ctx, cancel := context.WithTimeout(e.ctx, flushTimeout)
	defer cancel()
	left, err := l.watcher.FlushSome(ctx, l.endsWith(command))
	if err != nil && !l.isEnded() {
		e.log.Error("collect a command's outputs", "command", command, "error", err)
	}
	waitFor(&l.facts, factsTimeout)
	settled, cancel := context.WithTimeout(e.ctx, uploadPatience)
	defer cancel()
	// What takes longer is queued durably; its cells say that they are pending.
	_, _ = e.uploads.Wait(settled, l.record.Chat.String())
	for _, s := range left {
		l.skips.note(s)
	}
	return l.skips.take()
}

// uploadPatience is how long a command's end waits for its uploads.
const uploadPatience = 2 * time.Second

func (l *live) isEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// waitFor waits for a group, but not for ever.
func waitFor(g interface{ Wait() }, most time.Duration) {
	done := make(chan struct{})
	go func() {
		g.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(most):
	}
}

// changeCell changes a cell's record, and tells that it is published once its
// file is in the store and its facts are known.
func (e *Engine) changeCell(k ChatKey, ordinal int, change func(*CellRecord) bool) error {
	return e.update(k, func(tx Tx) error {
		c, err := tx.Cell(k, ordinal)
		if errors.Is(err, ErrNotFound) {
			return nil // its chat was deleted
		}
		if err != nil {
			return err
		}
		if !change(&c) {
			return nil
		}
		if err := tx.PutCell(c); err != nil {
			return err
		}
		if c.State == api.CellPublished && c.Probed {
			return emit(tx, k, cellEvent(api.EventCellPublished, c))
		}
		return nil
	})
}
