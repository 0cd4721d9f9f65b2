package uploader_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mediasandbox/uploader"
	"mediasandbox/uploader/local"
)

// memory is a queue in memory that checks how it is used.
type memory struct {
	mu      sync.Mutex
	pending []uploader.Job
	done    []string
	failed  map[string]error
	refuse  error
}

func (q *memory) Pending(context.Context) ([]uploader.Job, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.pending), nil
}

func (q *memory) end(job uploader.Job) {
	q.pending = slices.DeleteFunc(q.pending, func(j uploader.Job) bool { return j.ID == job.ID })
}

func (q *memory) Done(_ context.Context, job uploader.Job, _ uploader.Object) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refuse != nil {
		return q.refuse
	}
	q.end(job)
	q.done = append(q.done, job.ID)
	return nil
}

func (q *memory) Failed(_ context.Context, job uploader.Job, cause error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.end(job)
	if q.failed == nil {
		q.failed = map[string]error{}
	}
	q.failed[job.ID] = cause
	return nil
}

// faulty is a store that fails as the test says before the real one is asked.
type faulty struct {
	uploader.Blobs
	mu      sync.Mutex
	before  func(ctx context.Context, key string) error
	running int
	most    int
}

func (f *faulty) Put(ctx context.Context, key string, file *os.File, meta uploader.Meta) (uploader.Object, error) {
	f.mu.Lock()
	f.running++
	f.most = max(f.most, f.running)
	before := f.before
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.running--
		f.mu.Unlock()
	}()
	if before != nil {
		if err := before(ctx, key); err != nil {
			return uploader.Object{}, err
		}
	}
	return f.Blobs.Put(ctx, key, file, meta)
}

// bench is an uploader with its parts.
type bench struct {
	t     *testing.T
	dir   string
	spool *uploader.Spool
	store *local.Store
	blobs *faulty
	queue *memory
	up    *uploader.Uploader
	stop  func()
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), queue: &memory{}}
	var err error
	if b.spool, err = uploader.OpenSpool(filepath.Join(b.dir, "spool")); err != nil {
		t.Fatal(err)
	}
	if b.store, err = local.Open(filepath.Join(b.dir, "store"), "/files"); err != nil {
		t.Fatal(err)
	}
	b.blobs = &faulty{Blobs: b.store}
	t.Cleanup(func() {
		if b.stop != nil {
			b.stop()
		}
		b.spool.Close()
	})
	return b
}

// start runs a new uploader, as a new daemon does.
func (b *bench) start() {
	b.up = uploader.NewUploader(uploader.UploaderConfig{Queue: b.queue, Blobs: b.blobs, Spool: b.spool, Parallel: 3})
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- b.up.Run(ctx) }()
	b.stop = func() {
		cancel()
		if err := <-ran; err != nil {
			b.t.Error(err)
		}
		b.stop = nil
	}
}

// job records a job and returns it.
func (b *bench) job(id, chat, data string) uploader.Job {
	b.t.Helper()
	f, err := os.CreateTemp(b.dir, "output")
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(data); err != nil {
		b.t.Fatal(err)
	}
	snap, err := b.spool.Snapshot(context.Background(), f)
	if err != nil {
		b.t.Fatal(err)
	}
	job := uploader.Job{ID: id, Chat: chat, Key: uploader.NewKey(chat, uploader.Path(id)), Snapshot: snap, ContentType: "text/plain"}
	b.queue.mu.Lock()
	defer b.queue.mu.Unlock()
	b.queue.pending = append(b.queue.pending, job)
	return job
}

func (b *bench) checkDone(want ...string) {
	b.t.Helper()
	b.queue.mu.Lock()
	defer b.queue.mu.Unlock()
	if !slices.Equal(b.queue.done, want) {
		b.t.Errorf("done are %v, want %v", b.queue.done, want)
	}
}

func TestUploadsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		outage := errors.New("service is down")
		b.blobs.before = func(context.Context, string) error { return outage }
		for i := range 4 {
			b.job(fmt.Sprint("a", i), "a", fmt.Sprint("data ", i))
		}
		b.start()
		late := b.job("a4", "a", "late")
		b.up.Add(late, late)
		left, err := b.up.Wait(t.Context(), "a")
		if err != nil || len(left) != 5 || left[0].Attempts != 1 || !strings.Contains(left[0].LastError, "down") || left[0].NextTry.IsZero() {
			t.Fatalf("wait returned %+v, %v", left, err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		st := b.up.Stats()
		if st.Queued != 5 || st.Retrying != 1 || st.LastError == "" || st.Uploaded != 0 || st.Retries < 40 {
			t.Errorf("after an hour's outage: %+v", st)
		}
		if n := b.up.Jobs("a")[0].Attempts; n < 40 || n > 160 {
			t.Errorf("%d attempts in an hour", n)
		}
		b.blobs.mu.Lock()
		b.blobs.before = nil
		b.blobs.mu.Unlock()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		b.checkDone("a0", "a1", "a2", "a3", "a4")
		if left, err := b.up.Wait(t.Context(), "a"); len(left) != 0 || err != nil {
			t.Errorf("left %v, %v", left, err)
		}
		if n, _, err := b.spool.Usage(); n != 0 || err != nil {
			t.Errorf("%d snapshots are left, %v", n, err)
		}
		b.stop()
	})
}

// TestChatsInParallel: a chat whose store fails does not hold up the others,
// and no more than the limit run at a time.
func TestChatsInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.blobs.before = func(ctx context.Context, key string) error {
			time.Sleep(time.Second)
			if strings.HasPrefix(key, "bad/") {
				return uploader.ErrDenied
			}
			return nil
		}
		b.job("bad", "bad", "x")
		for chat := range 10 {
			for i := range 3 {
				b.job(fmt.Sprint(chat, "-", i), fmt.Sprint("chat", chat), "x")
			}
		}
		b.start()
		for chat := range 10 {
			if left, err := b.up.Wait(t.Context(), fmt.Sprint("chat", chat)); len(left) != 0 || err != nil {
				t.Errorf("left %v, %v", left, err)
			}
		}
		if b.blobs.most != 3 {
			t.Errorf("%d uploads ran at a time, want 3", b.blobs.most)
		}
		if st := b.up.Stats(); st.Uploaded != 30 || st.Queued != 1 {
			t.Errorf("stats are %+v", st)
		}
		if jobs := b.up.Jobs("bad"); len(jobs) != 1 || jobs[0].Attempts != 1 {
			t.Errorf("denied upload: %+v", jobs)
		}
		b.stop()
	})
}

// TestStall: a store that takes nothing and says nothing loses its place.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.blobs.before = func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}
		b.job("1", "a", "x")
		b.start()
		left, err := b.up.Wait(t.Context(), "a")
		if err != nil || len(left) != 1 || !strings.Contains(left[0].LastError, "longer than 1m0s") {
			t.Errorf("left %+v, %v", left, err)
		}
		b.stop()
	})
}

// TestLostSnapshot: a job that can never be done is given up, and those
// behind it go on.
func TestLostSnapshot(t *testing.T) {
	b := newBench(t)
	lost := b.job("lost", "a", "x")
	if err := b.spool.Remove(lost.Snapshot); err != nil {
		t.Fatal(err)
	}
	b.job("damaged", "a", "x")
	b.queue.pending[1].Snapshot.SHA256 = strings.Repeat("0", 64)
	b.job("fine", "a", "x")
	b.start()
	if left, err := b.up.Wait(t.Context(), "a"); len(left) != 0 || err != nil {
		t.Errorf("left %v, %v", left, err)
	}
	b.stop()
	b.checkDone("fine")
	if len(b.queue.failed) != 2 || !errors.Is(b.queue.failed["lost"], os.ErrNotExist) || !errors.Is(b.queue.failed["damaged"], uploader.ErrChecksum) {
		t.Errorf("failed are %v", b.queue.failed)
	}
}

// TestQueueRefuses: an upload that cannot be recorded is not forgotten, also
// not over a restart.
func TestQueueRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.queue.refuse = errors.New("disk is full")
		job := b.job("1", "a", "x")
		b.start()
		time.Sleep(10 * time.Second)
		b.stop()
		b.checkDone()
		if _, err := b.store.Stat(t.Context(), job.Key); err != nil {
			t.Error(err)
		}
		b.queue.refuse = nil
		b.start()
		time.Sleep(time.Second)
		synctest.Wait()
		b.checkDone("1")
		b.stop()
	})
}
