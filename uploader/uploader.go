package uploader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Job is a recorded upload.
type Job struct {
	// ID is unique among all jobs ever.
	ID string `json:"id"`
	// Chat names the chat; the jobs of one are done in their order.
	Chat        string   `json:"chat"`
	Key         string   `json:"key"`
	Snapshot    Snapshot `json:"snapshot"`
	ContentType string   `json:"content_type"`
	FileName    Path     `json:"file_name"`
	// Expires is when nobody will need the object any more; nil is never.
	Expires *time.Time `json:"expires,omitempty"`
}

// Queue is the durable record of jobs. Done and Failed for a job that is no
// longer pending change nothing and are no error: after a crash a job may be
// done a second time.
type Queue interface {
	// Pending returns all jobs that are neither done nor failed, each chat's in
	// the order in which they were recorded.
	Pending(ctx context.Context) ([]Job, error)
	// Done records that the job's object is stored.
	Done(ctx context.Context, job Job, obj Object) error
	// Failed records that the job can never be done, since its snapshot is
	// lost or damaged.
	Failed(ctx context.Context, job Job, cause error) error
}

// UploaderConfig says from where to where. Zero values stand for the defaults.
type UploaderConfig struct {
	Queue Queue
	Blobs Blobs
	Spool *Spool
	// Parallel is how many uploads run at a time; 4 when zero.
	Parallel int
	// MinBackoff and MaxBackoff bound the time between two attempts of a job;
	// 500 ms and 1 min when zero.
	MinBackoff, MaxBackoff time.Duration
	// AttemptTime bounds one attempt, with another second for each
	// AttemptRate bytes; 1 min and 256 KiB when zero. A store that stalls does
	// not hold a place for ever.
	AttemptTime time.Duration
	AttemptRate int64
	Log         *slog.Logger
}

// JobState is what is known of a job that is not done.
type JobState struct {
	Job
	// Attempts counts the attempts of this process that failed.
	Attempts int
	// LastError is what the last of them said; empty before the first.
	LastError string
	// NextTry is when the next attempt begins; zero when none is planned: the
	// job runs, or waits for its turn.
	NextTry time.Time
}

// Stats is the state of the uploads.
type Stats struct {
	// Queued counts the jobs that are not done, Running those of them that
	// upload now, Retrying those that failed at least once.
	Queued, Running, Retrying int
	QueuedBytes               int64
	// Uploaded, UploadedBytes and Failed count jobs since the start, Retries
	// the attempts that failed and were or will be repeated.
	Uploaded, Failed, Retries int
	UploadedBytes             int64
	// LastError is that of a job which is still queued; empty when none failed.
	LastError string
}

// Uploader carries out recorded jobs: those of one chat in their order, those
// of different chats at the same time. What can be retried is retried for
// ever. It may be killed at any moment: the jobs are in the Queue, and doing
// one twice stores the same bytes under the same key.
type Uploader struct {
	cfg   UploaderConfig
	slots chan struct{}
	// loaded is closed once Run has read the queue.
	loaded chan struct{}

	mu    sync.Mutex
	lanes map[string]*lane
	known map[string]bool // the ids of all jobs in lanes
	stats Stats
	run   context.Context // of Run while it takes jobs; else nil
	group sync.WaitGroup
}

// lane is the jobs of one chat. The first is the one at work.
type lane struct {
	jobs []*JobState
	// moved is closed and replaced when the first job ends or fails an attempt.
	moved   chan struct{}
	running bool
}

// errLost says that a job's snapshot is not in the spool.
var errLost = errors.New("snapshot is lost")

// NewUploader returns an Uploader that does nothing before Run.
func NewUploader(cfg UploaderConfig) *Uploader {
	setDefault(&cfg.Parallel, 4)
	setDefault(&cfg.MinBackoff, 500*time.Millisecond)
	setDefault(&cfg.MaxBackoff, time.Minute)
	setDefault(&cfg.AttemptTime, time.Minute)
	setDefault(&cfg.AttemptRate, 256<<10)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Uploader{
		cfg: cfg, slots: make(chan struct{}, cfg.Parallel), loaded: make(chan struct{}),
		lanes: map[string]*lane{}, known: map[string]bool{},
	}
}

// Run takes the pending jobs and works until ctx ends; it returns once nothing
// of it runs, with an error only when the queue cannot be read. It may be
// called once.
func (u *Uploader) Run(ctx context.Context) error {
	jobs, err := u.cfg.Queue.Pending(ctx)
	if err != nil {
		return fmt.Errorf("read pending uploads: %w", err)
	}
	u.mu.Lock()
	// Jobs added meanwhile were recorded after the others.
	early := u.lanes
	u.lanes, u.known, u.run = map[string]*lane{}, map[string]bool{}, ctx
	for _, job := range jobs {
		u.add(job)
	}
	for _, l := range early {
		for _, s := range l.jobs {
			u.add(s.Job)
		}
		close(l.moved)
	}
	u.mu.Unlock()
	close(u.loaded)
	<-ctx.Done()
	u.mu.Lock()
	u.run = nil // nothing starts while we wait
	u.mu.Unlock()
	u.group.Wait()
	return nil
}

// Add tells of jobs that were recorded in the queue just now. A job that is
// known already is left alone.
func (u *Uploader) Add(jobs ...Job) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, job := range jobs {
		u.add(job)
	}
}

func (u *Uploader) add(job Job) {
	if u.known[job.ID] {
		return
	}
	u.known[job.ID] = true
	l := u.lanes[job.Chat]
	if l == nil {
		l = &lane{moved: make(chan struct{})}
		u.lanes[job.Chat] = l
	}
	l.jobs = append(l.jobs, &JobState{Job: job})
	if u.run != nil && len(l.jobs) == 1 {
		ctx := u.run
		u.group.Go(func() { u.work(ctx, job.Chat, l) })
	}
}

// work does the jobs of one chat until none is left.
func (u *Uploader) work(ctx context.Context, chat string, l *lane) {
	for {
		u.mu.Lock()
		s := l.jobs[0]
		u.mu.Unlock()
		if err := u.finish(ctx, l, s); err != nil {
			return // the context ended; the queue still has the jobs
		}
		u.mu.Lock()
		l.jobs = l.jobs[1:]
		delete(u.known, s.ID)
		l.signal()
		empty := len(l.jobs) == 0
		if empty {
			delete(u.lanes, chat)
		}
		u.mu.Unlock()
		if empty {
			return
		}
	}
}

func (l *lane) signal() {
	close(l.moved)
	l.moved = make(chan struct{})
}

// finish tries a job until it is done or can never be. It returns an error
// only when ctx ended.
func (u *Uploader) finish(ctx context.Context, l *lane, s *JobState) error {
	pace := backoff.NewExponentialBackOff()
	pace.InitialInterval, pace.MaxInterval, pace.Multiplier = u.cfg.MinBackoff, u.cfg.MaxBackoff, 2
	for {
		err := u.attempt(ctx, l, s.Job)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		wait := pace.NextBackOff()
		if !Retryable(err) {
			wait = u.cfg.MaxBackoff // somebody has to act first
		}
		u.mu.Lock()
		s.Attempts++
		u.stats.Retries++
		s.LastError, s.NextTry = err.Error(), time.Now().Add(wait)
		attempts := s.Attempts
		l.signal()
		u.mu.Unlock()
		u.cfg.Log.Warn("upload", "job", s.ID, "chat", s.Chat, "attempts", attempts, "retry_in", wait, "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
		u.mu.Lock()
		s.NextTry = time.Time{}
		u.mu.Unlock()
	}
}

// attempt tries a job once, when a place is free.
func (u *Uploader) attempt(ctx context.Context, l *lane, job Job) error {
	select {
	case u.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	u.setRunning(l, true)
	defer func() {
		u.setRunning(l, false)
		<-u.slots
	}()
	limit := u.cfg.AttemptTime + time.Duration(job.Snapshot.Size/u.cfg.AttemptRate)*time.Second
	attempt, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("upload took longer than %v", limit))
	defer cancel()
	obj, err := u.put(attempt, job)
	if cause := context.Cause(attempt); err != nil && cause != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if errors.Is(err, errLost) || errors.Is(err, ErrChecksum) || errors.Is(err, ErrKey) {
		return u.giveUp(ctx, job, err)
	}
	if err != nil {
		return err
	}
	if err := u.cfg.Queue.Done(ctx, job, obj); err != nil {
		return fmt.Errorf("record upload: %w", err)
	}
	u.mu.Lock()
	u.stats.Uploaded++
	u.stats.UploadedBytes += obj.Size
	u.mu.Unlock()
	u.drop(job)
	return nil
}

func (u *Uploader) setRunning(l *lane, running bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	l.running = running
}

func (u *Uploader) put(ctx context.Context, job Job) (Object, error) {
	f, err := u.cfg.Spool.Open(job.Snapshot)
	if errors.Is(err, fs.ErrNotExist) {
		return Object{}, fmt.Errorf("%w: %w", errLost, err)
	}
	if err != nil {
		return Object{}, err
	}
	defer f.Close()
	return u.cfg.Blobs.Put(ctx, job.Key, f, Meta{
		ContentType: job.ContentType, FileName: job.FileName, SHA256: job.Snapshot.SHA256, Expires: job.Expires,
	})
}

// giveUp records that a job can never be done.
func (u *Uploader) giveUp(ctx context.Context, job Job, cause error) error {
	if err := u.cfg.Queue.Failed(ctx, job, cause); err != nil {
		return fmt.Errorf("record failed upload: %w", err)
	}
	u.cfg.Log.Error("upload is given up", "job", job.ID, "chat", job.Chat, "error", cause)
	u.mu.Lock()
	u.stats.Failed++
	u.mu.Unlock()
	u.drop(job)
	return nil
}

// drop removes a snapshot that nobody needs any more. When that does not work
// it is an orphan, which Spool.Clean removes at the next start.
func (u *Uploader) drop(job Job) {
	if err := u.cfg.Spool.Remove(job.Snapshot); err != nil {
		u.cfg.Log.Warn("remove uploaded snapshot", "job", job.ID, "error", err)
	}
}

// Wait waits until each job of the chat is done, or waits behind one that had
// a failed attempt: nothing is lost then, but it will take a while. It returns
// the jobs that are left. Before Run has read the queue it waits for that.
func (u *Uploader) Wait(ctx context.Context, chat string) ([]JobState, error) {
	select {
	case <-u.loaded:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for uploads: %w", ctx.Err())
	}
	for {
		u.mu.Lock()
		l := u.lanes[chat]
		if l == nil {
			u.mu.Unlock()
			return nil, nil
		}
		if l.jobs[0].Attempts > 0 {
			left := l.snapshot()
			u.mu.Unlock()
			return left, nil
		}
		moved := l.moved
		u.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for uploads: %w", ctx.Err())
		}
	}
}

func (l *lane) snapshot() []JobState {
	var out []JobState
	for _, s := range l.jobs {
		out = append(out, *s)
	}
	return out
}

// Jobs returns the jobs of a chat that are not done, in their order.
func (u *Uploader) Jobs(chat string) []JobState {
	u.mu.Lock()
	defer u.mu.Unlock()
	if l := u.lanes[chat]; l != nil {
		return l.snapshot()
	}
	return nil
}

// Stats returns the present state.
func (u *Uploader) Stats() Stats {
	u.mu.Lock()
	defer u.mu.Unlock()
	st := u.stats
	for _, l := range u.lanes {
		if l.running {
			st.Running++
		}
		for _, s := range l.jobs {
			st.Queued++
			st.QueuedBytes += s.Snapshot.Size
			if s.Attempts > 0 {
				st.Retrying++
				st.LastError = s.LastError
			}
		}
	}
	return st
}
