package session

import (
	"context"
	"sync"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/outlog"
	"mediasandbox/daemon/progress"
)

const (
	// progressEvery is the least time between two events of a command's progress.
	progressEvery = 2 * time.Second
	// progressHead is how much of what a command printed before the daemon
	// started is read again, in bytes a stream: there ffmpeg tells how long its
	// inputs are.
	progressHead = 64 << 10
)

// workProgress follows how far a command's media work is.
type workProgress struct {
	command string
	tell    func(api.CommandProgress)

	mu      sync.Mutex
	reader  *progress.Reader
	told    time.Time // or begun: a short command's progress is worth no event
	telling sync.WaitGroup
	news    bool // since it was told
	any     bool // was told
	ended   bool
}

// followProgress makes what reads a command's progress out of its output. What a
// command printed under an earlier daemon counts.
func (e *Engine) followProgress(r *running) *workProgress {
	rec := r.record()
	w := &workProgress{command: rec.ID, reader: progress.New(append([]string{rec.Shell, rec.Python}, rec.Argv...)), told: now()}
	w.tell = func(p api.CommandProgress) {
		err := e.update(rec.Key(), func(tx Tx) error {
			return emit(tx, rec.Key(), api.Event{Type: api.EventCommandProgress, Work: &p})
		})
		if err != nil {
			e.log.Warn("tell how far a command is", "command", rec.ID, "error", err)
		}
	}
	for name, log := range map[string]*outlog.Log{"stdout": r.out, "stderr": r.err} {
		head := make([]byte, progressHead)
		n, from, err := log.ReadAt(context.Background(), head, 0, false)
		if err == nil && n > 0 {
			w.reader.Write(name, from, head[:n])
		}
	}
	return w
}

// saw takes what a stream holds from an offset on. It waits for nothing but the
// other stream's turn.
func (w *workProgress) saw(stream string, offset int64, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.reader.Write(stream, offset, data) {
		return
	}
	w.news = true
	if w.ended || now().Sub(w.told) < progressEvery {
		return
	}
	p, _ := w.last()
	w.news, w.any, w.told = false, true, now()
	w.telling.Go(func() { w.tell(p) })
}

// end tells the last that is known, before the command's end is told.
func (w *workProgress) end() {
	w.mu.Lock()
	w.ended = true
	p, news := w.last()
	news = news && w.news && w.any
	w.mu.Unlock()
	w.telling.Wait()
	if news {
		w.tell(p)
	}
}

// latest returns the progress as it is, nil if none is known.
func (w *workProgress) latest() *api.CommandProgress {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.last()
	if !ok {
		return nil
	}
	return &p
}

func (w *workProgress) last() (api.CommandProgress, bool) {
	p, ok := w.reader.Last()
	p.Command = w.command
	return p, ok
}
