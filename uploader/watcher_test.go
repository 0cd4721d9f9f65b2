package uploader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// TestRevisions: a changed file comes again, an untouched one never; a change
// that leaves the contents alone is none.
func TestRevisions(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.write("a", "one")
	r.write("b", "stays")
	r.flush()
	must(t, os.Chmod(filepath.Join(r.dir, "a"), 0o600))
	r.write("b", "stays")
	must(t, os.Chtimes(filepath.Join(r.dir, "b"), time.Time{}, time.Unix(1, 0)))
	r.flush()
	r.flush()
	r.write("a", "two")
	r.flush()
	must(t, os.Remove(filepath.Join(r.dir, "b")))
	r.write("b", "stays")
	r.flush()
	if want := []Path{"a", "b", "a"}; !slices.Equal(r.order, want) {
		t.Errorf("published %v, want %v", r.order, want)
	}
	if got := string(r.got["a"][1].data); got != "two" {
		t.Errorf("the second revision is %q", got)
	}
}

// TestScanOnly finds files without a single event.
func TestScanOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.ScanOnly = true })
	r.write("a", "one")
	must(t, os.MkdirAll(filepath.Join(r.dir, "deep/er"), 0o755))
	r.write("deep/er/b", "two")
	r.waitFor("publications", 20*time.Second, func() bool { return len(r.order) == 2 })
	r.write("a", "more")
	r.Hint("a")
	r.waitFor("publications", 20*time.Second, func() bool { return len(r.order) == 3 })
}

// TestRestart: a new watcher is given what the old one published, through the
// receiver's record, and publishes only what is new.
func TestRestart(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.write("old \xff\n%41", "old")
	r.write("changes", "before")
	r.flush()
	must(t, r.Watcher.Close())
	r.write("changes", "after")
	r.write("new", "new")

	record, err := json.Marshal(slices.Collect(maps.Values(r.known)))
	must(t, err)
	var known []Known
	must(t, json.Unmarshal(record, &known))
	for _, k := range known {
		if k != r.known[k.Path] {
			t.Fatalf("the record came back as %+v", k)
		}
	}
	cfg := r.config()
	cfg.Known = known
	r.Watcher, err = Watch(cfg)
	must(t, err)
	r.waitFor("publications", 10*time.Second, func() bool { return len(r.order) == 4 })
	r.flush()
	got := map[Path]int{}
	for p, list := range r.got {
		got[p] = len(list)
	}
	if want := map[Path]int{"old \xff\n%41": 1, "changes": 2, "new": 1}; !maps.Equal(got, want) {
		t.Errorf("published %v, want %v", got, want)
	}
}

// TestReceiverRefuses: nothing is lost, and no snapshot is left behind.
func TestReceiverRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	refusals := 0
	disk := errors.New("disk is full")
	r.refuse = func([]Finished) error {
		if refusals++; refusals <= 2 {
			return disk
		}
		return nil
	}
	r.write("a", "a")
	r.waitPath("a")
	r.mu.Lock()
	r.refuse = func([]Finished) error { return disk }
	r.mu.Unlock()
	r.write("b", "b")
	left := r.flush()
	if len(left) != 1 || left[0].Reason != ReasonNotRecorded || !errors.Is(left[0].Err, disk) {
		t.Errorf("left out %v", left)
	}
	r.checkSpool()
	r.mu.Lock()
	r.refuse = nil
	r.mu.Unlock()
	r.waitPath("b")
	r.checkFinal()
}

// TestClose: Close waits, also for a flush that is under way, and may be
// called twice.
func TestClose(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.write("a", "a")
	flushed := make(chan error, 1)
	go func() {
		_, err := r.Flush(context.Background())
		flushed <- err
	}()
	must(t, r.Watcher.Close())
	must(t, r.Watcher.Close())
	if err := <-flushed; err != nil && !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := r.Flush(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("flush after close: %v", err)
	}
	r.Hint("a")
}

// TestOverflow: the kernel dropped events; everything is scanned.
func TestOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaked(t, nil)
		f.write("unseen", "x")
		f.sleep(time.Second)
		f.errors <- fsnotify.ErrEventOverflow
		f.sleep(DefaultSettle)
		f.want("unseen")
	})
}

// faked is a rig in a bubble of fake time, whose events come from the test. The
// files are real.
type faked struct {
	*rig
	t      *testing.T
	events chan fsnotify.Event
	errors chan error
	root   string // the root's name to fsnotify
	open   []string
	fail   error
}

func (f *faked) OpenForWriting(context.Context, string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.open), f.fail
}

func (f *faked) setOpen(err error, names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open, f.fail = names, err
}

func newFaked(t *testing.T, adjust func(*Config)) *faked {
	t.Helper()
	spool, err := OpenSpool(t.TempDir())
	must(t, err)
	f := &faked{
		rig: &rig{t: t, dir: t.TempDir(), spool: spool, got: map[Path][]delivery{}, known: map[Path]Known{}, changed: make(chan struct{})},
		t:   t, events: make(chan fsnotify.Event), errors: make(chan error),
	}
	cfg := Config{Dir: f.dir, Spool: spool, Receiver: f, Writers: f, Skipped: f.noteSkipped, Rescan: time.Hour}
	if adjust != nil {
		adjust(&cfg)
	}
	f.Watcher, err = watchWith(cfg, notifier{
		events: f.events, errors: f.errors,
		add: func(p string) error {
			if f.root == "" {
				f.root = p
			}
			return nil
		},
		remove: func(string) error { return nil },
		close:  func() error { return nil },
	})
	must(t, err)
	t.Cleanup(func() {
		must(t, f.Watcher.Close())
		spool.Close()
	})
	synctest.Wait()
	return f
}

// put writes a file and says so, as fsnotify does.
func (f *faked) put(name, data string) {
	f.write(name, data)
	f.event(name, fsnotify.Write)
}

func (f *faked) event(name string, op fsnotify.Op) {
	f.events <- fsnotify.Event{Name: f.root + "/" + name, Op: op}
}

// sleep lets fake time pass, and everything that falls due happen.
func (f *faked) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (f *faked) want(paths ...Path) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.order, paths) {
		f.t.Errorf("published %v, want %v", f.order, paths)
	}
}

// tick is more than the debounce and the time a fake publication takes.
const tick = 20 * time.Millisecond

func TestSettleTimes(t *testing.T) {
	cases := map[string]func(*faked){
		"written once": func(f *faked) {
			f.put("a", "x")
			f.sleep(DefaultSettle - tick)
			f.want()
			f.sleep(2 * tick)
			f.want("a")
		},
		"appended in pieces": func(f *faked) {
			for i := range 5 {
				f.put("a", fmt.Sprint("longer every time ", 1<<(4*i)))
				f.Hint("a")
				f.sleep(DefaultSettle - tick)
				f.want()
			}
			f.sleep(2 * tick)
			f.want("a")
		},
		"complete by its format": func(f *faked) {
			f.put("a.gif", "GIF89a, all of it;")
			f.sleep(time.Second)
			f.want() // nobody said that it is closed
			f.Hint("a.gif")
			f.sleep(DefaultWholeSettle + tick)
			f.want("a.gif")
		},
		"complete, but held open": func(f *faked) {
			f.setOpen(nil, "/outputs/a.gif")
			f.put("a.gif", "GIF89a, all of it;")
			f.Hint("a.gif")
			f.sleep(time.Minute)
			f.want()
			f.setOpen(nil)
			f.Hint("a.gif")
			f.sleep(time.Second)
			f.want("a.gif")
		},
		"closed, and no text": func(f *faked) {
			f.put("a.ts", "G\x00\x01")
			f.Hint("a.ts")
			f.sleep(DefaultClosedSettle - tick)
			f.want()
			f.sleep(2 * tick)
			f.want("a.ts")
		},
		"no text, but the writer comes back": func(f *faked) {
			for i := range 5 {
				f.put("a.ts", fmt.Sprint("G\x00longer every time ", 1<<(4*i)))
				f.Hint("a.ts")
				f.sleep(DefaultClosedSettle - tick)
				f.want()
			}
			f.sleep(DefaultSettle - DefaultClosedSettle)
			f.want()
			f.sleep(2 * tick)
			f.want("a.ts")
			f.put("a.ts", "G\x00another version")
			f.Hint("a.ts")
			f.sleep(DefaultClosedSettle + tick)
			f.want("a.ts", "a.ts")
		},
		"not complete yet": func(f *faked) {
			f.put("a.gif", "GIF89a, half")
			f.Hint("a.gif")
			f.sleep(DefaultSettle - tick)
			f.put("a.gif", "GIF89a, half and the other;")
			f.Hint("a.gif")
			f.sleep(DefaultWholeSettle + tick)
			f.want("a.gif")
		},
		"renamed into place": func(f *faked) {
			f.put("a.part", "x")
			f.sleep(10 * time.Second)
			f.want()
			must(f.t, os.Rename(filepath.Join(f.dir, "a.part"), filepath.Join(f.dir, "a")))
			f.event("a.part", fsnotify.Rename)
			f.event("a", fsnotify.Create)
			f.sleep(DefaultRenameSettle - tick)
			f.want()
			f.sleep(2 * tick)
			f.want("a")
		},
		"renamed while open": func(f *faked) {
			f.put("a.part", "x")
			must(f.t, os.Rename(filepath.Join(f.dir, "a.part"), filepath.Join(f.dir, "a")))
			f.setOpen(nil, "/outputs/a")
			f.event("a.part", fsnotify.Rename)
			f.event("a", fsnotify.Create)
			f.sleep(time.Minute)
			f.want()
			f.setOpen(nil)
			f.Hint("/outputs/a")
			f.sleep(DefaultSettle + tick)
			f.want("a")
		},
		"held open": func(f *faked) {
			f.setOpen(nil, "/outputs/a")
			f.put("a", "x")
			f.sleep(time.Minute)
			f.want()
			f.setOpen(nil) // no hint comes: the next two looks find out
			f.sleep(DefaultSettle - tick)
			f.want()
			f.sleep(time.Second)
			f.want("a")
		},
		"held open, relative names": func(f *faked) {
			f.setOpen(nil, "a")
			f.put("a", "x")
			f.sleep(time.Minute)
			f.want()
		},
		"a late hint": func(f *faked) {
			f.put("a", "x")
			f.sleep(DefaultSettle - tick)
			f.Hint("a")
			f.sleep(DefaultSettle - tick)
			f.want()
			f.sleep(2 * tick)
			f.want("a")
		},
		"a lying hint": func(f *faked) {
			f.setOpen(nil, "/outputs/a")
			f.put("a", "x")
			for range 20 {
				f.Hint("a")
				f.sleep(time.Second)
			}
			f.want()
		},
		"writers unknown": func(f *faked) {
			f.setOpen(errors.New("guest does not answer"))
			f.put("a", "x")
			f.Hint("a")
			f.sleep(DefaultQuiet - tick)
			f.want()
			f.sleep(2 * tick)
			f.want("a")
		},
		"flush, writers unknown": func(f *faked) {
			f.setOpen(errors.New("guest does not answer"))
			f.write("a", "x")
			began := time.Now()
			if left := f.flush(); len(left) > 0 {
				f.t.Errorf("left out %v", left)
			}
			if took := time.Since(began); took < DefaultQuiet || took > DefaultQuiet+tick {
				f.t.Errorf("flush took %v", took)
			}
			f.want("a")
		},
		"flush": func(f *faked) {
			f.write("a", "x")
			f.write("b", "x")
			f.setOpen(nil, "/outputs/b")
			began := time.Now()
			if left := f.flush(); len(left) != 1 || left[0].Reason != ReasonOpen {
				f.t.Errorf("left out %v", left)
			}
			if took := time.Since(began); took > tick {
				f.t.Errorf("flush took %v", took)
			}
			f.want("a")
		},
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { run(newFaked(t, nil)) })
		})
	}
}
