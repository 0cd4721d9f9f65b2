package uploader_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"mediasandbox/uploader"
	"mediasandbox/uploader/local"
)

func init() { uploader.RegisterProcess("crash", crashDaemon) }

// record is the whole durable state of a small daemon. It is replaced in one
// rename, which stands for a transaction.
type record struct {
	path string
	mu   sync.Mutex
	up   *uploader.Uploader

	Known map[string]uploader.Known
	// Jobs are all jobs ever, in order; the index is the ordinal.
	Jobs []uploader.Job
	// Paths are those of the jobs.
	Paths []uploader.Path
	Ended map[string]uploader.Object
}

func loadRecord(path string) (*record, error) {
	r := &record{path: path, Known: map[string]uploader.Known{}, Ended: map[string]uploader.Object{}}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	return r, json.Unmarshal(data, r)
}

func (r *record) save() error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(r.path+".new", r.path)
}

func (r *record) Finished(_ context.Context, files []uploader.Finished) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var jobs []uploader.Job
	for _, f := range files {
		jobs = append(jobs, uploader.Job{
			ID: fmt.Sprint(len(r.Jobs) + len(jobs)), Chat: "chat", Key: uploader.NewKey("chat", f.Path), Snapshot: f.Snapshot, FileName: f.Path,
		})
		r.Known[f.Path.String()] = f.Known()
		r.Paths = append(r.Paths, f.Path)
	}
	r.Jobs = append(r.Jobs, jobs...)
	if err := r.save(); err != nil {
		return err
	}
	r.up.Add(jobs...)
	return nil
}

func (r *record) Pending(context.Context) ([]uploader.Job, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []uploader.Job
	for _, j := range r.Jobs {
		if _, ended := r.Ended[j.ID]; !ended {
			out = append(out, j)
		}
	}
	return out, nil
}

func (r *record) Done(_ context.Context, job uploader.Job, obj uploader.Object) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ended := r.Ended[job.ID]; ended {
		return nil
	}
	r.Ended[job.ID] = obj
	return r.save()
}

func (r *record) Failed(_ context.Context, job uploader.Job, cause error) error {
	return fmt.Errorf("job %s: %w", job.ID, cause) // nothing may ever be lost
}

// crashDaemon publishes and uploads what is in dir/outputs until all is done.
func crashDaemon(dir string) error {
	r, err := loadRecord(filepath.Join(dir, "record"))
	if err != nil {
		return err
	}
	spool, err := uploader.OpenSpool(filepath.Join(dir, "spool"))
	if err != nil {
		return err
	}
	pending, _ := r.Pending(context.Background())
	wanted := map[string]bool{}
	for _, j := range pending {
		wanted[j.Snapshot.Name] = true
	}
	if _, err := spool.Clean(wanted); err != nil {
		return err
	}
	store, err := local.Open(filepath.Join(dir, "store"), "/files")
	if err != nil {
		return err
	}
	r.up = uploader.NewUploader(uploader.UploaderConfig{Queue: r, Blobs: store, Spool: spool})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- r.up.Run(ctx) }()
	var known []uploader.Known
	for _, k := range r.Known {
		known = append(known, k)
	}
	outputs := filepath.Join(dir, "outputs")
	w, err := uploader.Watch(uploader.Config{
		Dir: outputs, Spool: spool, Receiver: r, Known: known, Settle: time.Millisecond, Writers: uploader.ProcWriters(outputs),
	})
	if err != nil {
		return err
	}
	if left, err := w.Flush(ctx); err != nil || len(left) > 0 {
		return fmt.Errorf("left out %v: %w", left, err)
	}
	if err := w.Close(); err != nil {
		return err
	}
	for pending, _ := r.Pending(ctx); len(pending) > 0; pending, _ = r.Pending(ctx) {
		<-time.After(time.Millisecond)
	}
	cancel()
	return <-ran
}

// TestKilledAnywhere kills the daemon at random moments. Afterwards each file
// has one ordinal, each ordinal one object of the right bytes, and nothing else
// is left.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	outputs := filepath.Join(dir, "outputs")
	if err := os.Mkdir(outputs, 0o755); err != nil {
		t.Fatal(err)
	}
	want := map[uploader.Path][]byte{}
	const rounds = 60
	for round := range rounds {
		for i := range 4 {
			p := uploader.Path(fmt.Sprintf("file-%d-%d", round, i))
			want[p] = fmt.Appendf(nil, "contents of %s %s", p, bytes.Repeat([]byte("x"), rand.IntN(20_000)))
			if err := os.WriteFile(filepath.Join(outputs, string(p)), want[p], 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cmd := daemonProcess(dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-time.After(time.Duration(rand.IntN(150)) * time.Millisecond):
			cmd.Process.Kill()
			<-ended
		case err := <-ended:
			if err != nil {
				t.Fatalf("%v: %s", err, cmd.Stderr)
			}
		}
	}
	cmd := daemonProcess(dir)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, cmd.Stderr)
	}
	checkCrashed(t, dir, want)
}

func daemonProcess(dir string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "UPLOADER_TEST_WRITER=crash", "UPLOADER_TEST_DIR="+dir, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = &bytes.Buffer{}
	return cmd
}

func checkCrashed(t *testing.T, dir string, want map[uploader.Path][]byte) {
	t.Helper()
	r, err := loadRecord(filepath.Join(dir, "record"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := local.Open(filepath.Join(dir, "store"), "/files")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uploader.Path]bool{}
	keys := map[string]bool{}
	for i, p := range r.Paths {
		if seen[p] {
			t.Errorf("%s has two ordinals", p)
		}
		seen[p], keys[r.Jobs[i].Key] = true, true
		obj, ended := r.Ended[r.Jobs[i].ID]
		if !ended || obj.Size != int64(len(want[p])) {
			t.Errorf("%s: ended %v, %+v", p, ended, obj)
		}
		f, err := store.Open(t.Context(), r.Jobs[i].Key, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if _, err := got.ReadFrom(f); err != nil || !bytes.Equal(got.Bytes(), want[p]) {
			t.Errorf("%s has other bytes, %v", p, err)
		}
		f.Close()
	}
	if len(seen) != len(want) {
		t.Errorf("%d of %d files have an ordinal", len(seen), len(want))
	}
	for obj, err := range store.List(t.Context(), "") {
		if err != nil || !keys[obj.Key] {
			t.Errorf("object %s is nobody's, %v", obj.Key, err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, "spool"))
	if err != nil || len(entries) > 0 {
		t.Errorf("left in the spool: %v, %v", entries, err)
	}
}
