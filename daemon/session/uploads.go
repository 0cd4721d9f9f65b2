package session

import (
	"context"
	"errors"
	"fmt"

	"mediasandbox/daemon/api"
	"mediasandbox/uploader"
)

// startUploads takes up the uploads that an earlier engine left.
func (e *Engine) startUploads() error {
	var jobs []JobRecord
	err := e.cfg.Store.View(func(tx Tx) (err error) {
		jobs, err = tx.Jobs()
		return err
	})
	if err != nil {
		return fmt.Errorf("read the upload queue: %w", err)
	}
	wanted := make(map[string]bool, len(jobs))
	for _, j := range jobs {
		wanted[j.Snapshot.Name] = true
	}
	if _, err := e.cfg.Spool.Clean(wanted); err != nil {
		return err
	}
	e.uploads = uploader.NewUploader(uploader.UploaderConfig{
		Queue: queue{e}, Blobs: e.cfg.Blobs, Spool: e.cfg.Spool, Log: e.log,
	})
	e.work.Go(func() {
		if err := e.uploads.Run(e.ctx); err != nil && e.ctx.Err() == nil {
			e.log.Error("upload", "error", err)
		}
	})
	return nil
}

// queue implements uploader.Queue over the store.
type queue struct{ e *Engine }

// Pending implements uploader.Queue.
func (q queue) Pending(context.Context) ([]uploader.Job, error) {
	var recs []JobRecord
	err := q.e.cfg.Store.View(func(tx Tx) (err error) {
		recs, err = tx.Jobs()
		return err
	})
	jobs := make([]uploader.Job, len(recs))
	for i, r := range recs {
		jobs[i] = r.Job
	}
	return jobs, err
}

// Done implements uploader.Queue.
func (q queue) Done(_ context.Context, job uploader.Job, _ uploader.Object) error {
	var rec JobRecord
	err := q.e.cfg.Store.View(func(tx Tx) (err error) {
		rec, err = tx.Job(job.ID)
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return nil // recorded by an earlier call
	}
	if err != nil {
		return err
	}
	return q.e.publish(rec)
}

// publish marks a cell as published. A file that no cell refers to any more,
// that of the revision before, or the job's own when the chat was deleted or the
// cell revised meanwhile, is doomed by the same transaction: it goes also if
// the daemon dies right after it, or the store refuses.
func (e *Engine) publish(rec JobRecord) error {
	err := e.update(rec.Cell, func(tx Tx) error {
		if err := tx.DeleteJob(rec.ID); err != nil {
			return err
		}
		c, err := tx.Cell(rec.Cell, rec.Ordinal)
		if errors.Is(err, ErrNotFound) || err == nil && c.Key != rec.Key {
			return tx.PutDoomed([]string{rec.Key})
		}
		if err != nil {
			return err
		}
		if c.Replaced != "" {
			if err := tx.PutDoomed([]string{c.Replaced}); err != nil {
				return err
			}
		}
		c.Replaced, c.State = "", api.CellPublished
		if err := tx.PutCell(c); err != nil {
			return err
		}
		if c.Probed {
			return emit(tx, rec.Cell, cellEvent(api.EventCellPublished, c))
		}
		return nil
	})
	e.wakeSweeper() // it may have waited for this
	return err
}

// Failed implements uploader.Queue: the cell stays and says that its file is
// lost.
func (q queue) Failed(_ context.Context, job uploader.Job, cause error) error {
	var rec JobRecord
	err := q.e.cfg.Store.View(func(tx Tx) (err error) {
		rec, err = tx.Job(job.ID)
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	q.e.log.Error("an output is lost", "chat", rec.Cell, "ordinal", rec.Ordinal, "error", cause)
	return q.e.update(rec.Cell, func(tx Tx) error {
		if err := tx.DeleteJob(rec.ID); err != nil {
			return err
		}
		c, err := tx.Cell(rec.Cell, rec.Ordinal)
		if errors.Is(err, ErrNotFound) || err == nil && c.Key != rec.Key {
			return nil
		}
		if err != nil {
			return err
		}
		c.State, c.Note, c.Probed = api.CellLost, "its file was lost before it was uploaded", true
		return errors.Join(tx.PutCell(c), emit(tx, rec.Cell, cellEvent(api.EventCellLost, c)))
	})
}

func (e *Engine) deleteBlob(ctx context.Context, key string) error {
	if err := e.cfg.Blobs.Delete(ctx, key); err != nil && !errors.Is(err, uploader.ErrNotFound) {
		return fmt.Errorf("delete a cell's file: %w", err)
	}
	return nil
}
