package uploader

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMain lets the test binary be the writing process of a test.
func TestMain(m *testing.M) {
	flag.Parse()
	// The tests wait more than they work.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	if name := os.Getenv("UPLOADER_TEST_WRITER"); name != "" {
		if err := writerProcess(name, os.Getenv("UPLOADER_TEST_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// delivery is what the receiver saw of one hand-over.
type delivery struct {
	sha  string
	size int64
	data []byte // of small files
	at   time.Time
}

// rig is a watched directory whose receiver checks what it is given.
type rig struct {
	t     testing.TB
	dir   string
	spool *Spool
	*Watcher

	mu      sync.Mutex
	got     map[Path][]delivery
	order   []Path
	known   map[Path]Known
	skipped []Skipped
	refuse  func([]Finished) error
	// changed is closed and replaced at every hand-over and report.
	changed chan struct{}
}

// newRig watches a new directory; adjust may change the configuration.
func newRig(t *testing.T, adjust func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), got: map[Path][]delivery{}, known: map[Path]Known{}, changed: make(chan struct{})}
	spool, err := OpenSpool(filepath.Join(t.TempDir(), "spool"))
	if err != nil {
		t.Fatal(err)
	}
	r.spool = spool
	cfg := r.config()
	if adjust != nil {
		adjust(&cfg)
	}
	w, err := Watch(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Watcher = w
	t.Cleanup(func() {
		if err := r.Watcher.Close(); err != nil {
			t.Error(err)
		}
		r.checkSpool()
		spool.Close()
	})
	return r
}

func (r *rig) config() Config {
	return Config{
		Dir: r.dir, Spool: r.spool, Receiver: r, Writers: procWriters{r.dir},
		Settle: 150 * time.Millisecond, RenameSettle: 20 * time.Millisecond,
		Skipped: r.noteSkipped,
		Log:     slog.New(slog.NewTextHandler(r.t.Output(), nil)),
	}
}

// Finished implements Receiver.
func (r *rig) Finished(_ context.Context, files []Finished) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		if err := r.refuse(files); err != nil {
			return err
		}
	}
	for _, f := range files {
		d, err := r.read(f.Snapshot)
		if err != nil {
			r.t.Error(err)
		}
		r.got[f.Path] = append(r.got[f.Path], d)
		r.known[f.Path] = f.Known()
		r.order = append(r.order, f.Path)
	}
	r.announce()
	return nil
}

func (r *rig) announce() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *rig) noteSkipped(s Skipped) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipped = append(r.skipped, s)
	r.announce()
}

// read reads a snapshot, removes it, and checks that it is what it says.
func (r *rig) read(snap Snapshot) (delivery, error) {
	f, err := r.spool.Open(snap)
	if err != nil {
		return delivery{}, err
	}
	defer f.Close()
	sum := sha256.New()
	data := &strings.Builder{}
	n, err := io.Copy(io.MultiWriter(sum, &limited{data}), f)
	if err != nil {
		return delivery{}, err
	}
	d := delivery{sha: hex.EncodeToString(sum.Sum(nil)), size: n, data: []byte(data.String()), at: time.Now()}
	if d.sha != snap.SHA256 || d.size != snap.Size {
		return d, fmt.Errorf("snapshot says %d bytes %s, holds %d bytes %s", snap.Size, snap.SHA256, d.size, d.sha)
	}
	return d, r.spool.Remove(snap)
}

type limited struct{ b *strings.Builder }

func (l *limited) Write(p []byte) (int, error) {
	if l.b.Len() < 1<<16 {
		l.b.Write(p)
	}
	return len(p), nil
}

// checkSpool fails the test when the spool holds what nobody recorded.
func (r *rig) checkSpool() {
	entries, err := os.ReadDir(r.spool.path)
	if err != nil {
		r.t.Error(err)
	}
	for _, e := range entries {
		r.t.Errorf("left in the spool: %s", e.Name())
	}
}

// waitFor waits until cond, called with the rig locked, holds.
func (r *rig) waitFor(what string, within time.Duration, cond func() bool) {
	r.t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		r.mu.Lock()
		ok, changed := cond(), r.changed
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-deadline.C:
			r.mu.Lock()
			defer r.mu.Unlock()
			r.t.Fatalf("no %s within %v; status %+v, %d paths published, skipped %v", what, within, r.Status(), len(r.got), r.skipped)
		}
	}
}

// waitPath waits until p was published.
func (r *rig) waitPath(p Path) {
	r.t.Helper()
	r.waitFor("publication of "+p.String(), 20*time.Second, func() bool { return len(r.got[p]) > 0 })
}

// flush flushes and returns what was left out.
func (r *rig) flush() []Skipped {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	left, err := r.Flush(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return left
}

// checkFinal checks that each regular, plainly named file of the directory was
// published once, as it is now, and nothing else was.
func (r *rig) checkFinal() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	want := map[Path]bool{}
	err := filepath.WalkDir(r.dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(r.dir, name)
		if err != nil {
			return err
		}
		if !d.Type().IsRegular() || (temporary{}).path(Path(rel)) {
			return nil
		}
		want[Path(rel)] = true
		r.checkOnce(Path(rel), name)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for p := range r.got {
		if !want[p] {
			r.t.Errorf("%s was published and is not there", p)
		}
	}
}

func (r *rig) checkOnce(p Path, name string) {
	f, err := os.Open(name)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		r.t.Fatal(err)
	}
	got := r.got[p]
	if len(got) != 1 {
		var sizes []int64
		for _, d := range got {
			sizes = append(sizes, d.size)
		}
		r.t.Errorf("%s was published %d times (sizes %v), final size %d", p, len(got), sizes, size)
		return
	}
	if got[0].sha != hex.EncodeToString(sum.Sum(nil)) {
		r.t.Errorf("%s was published with %d bytes that are not the final %d", p, got[0].size, size)
	}
}

func (r *rig) reasons() map[Path][]Reason {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[Path][]Reason{}
	for _, s := range r.skipped {
		out[s.Path] = append(out[s.Path], s.Reason)
	}
	return out
}

func (r *rig) write(name string, data string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(data), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// procWriters answers from /proc what a guest would answer of itself: on the
// host it can be known exactly.
type procWriters struct{ dir string }

func (w procWriters) OpenForWriting(_ context.Context, guest string) ([]string, error) {
	var open []string
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	add := func(target string) {
		if rest, ok := strings.CutPrefix(target, w.dir+"/"); ok {
			open = append(open, guest+"/"+strings.TrimSuffix(rest, " (deleted)"))
		}
	}
	for _, p := range procs {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		base := "/proc/" + p.Name()
		if err := openByProcess(base, add); err != nil && !ended(err) {
			return nil, err
		}
	}
	return slices.Compact(open), nil
}

// ended says whether a process went away, or is one that even root may not look
// into, and so is no writer of ours.
func ended(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "no such process")
}

// openByProcess reports the targets of writable descriptors and mappings.
func openByProcess(base string, add func(string)) error {
	fds, err := os.ReadDir(base + "/fd")
	if err != nil {
		return err
	}
	for _, fd := range fds {
		info, err := os.ReadFile(base + "/fdinfo/" + fd.Name())
		if err != nil {
			continue // closed since
		}
		_, flags, _ := strings.Cut(string(info), "flags:")
		flags, _, _ = strings.Cut(strings.TrimSpace(flags), "\n")
		if bits, err := strconv.ParseUint(flags, 8, 64); err != nil || bits&3 == 0 {
			continue
		}
		if target, err := os.Readlink(base + "/fd/" + fd.Name()); err == nil {
			add(target)
		}
	}
	maps, err := os.ReadFile(base + "/maps")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		if len(f) >= 6 && strings.Contains(f[1], "w") && strings.HasSuffix(f[1], "s") {
			add(strings.Join(f[5:], " "))
		}
	}
	return nil
}
