package uploader

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// secret is what must never be published: a file outside the directory.
const secret = "root:$y$secret"

func outside(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "shadow"), []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestUnfitFiles: everything that is not a plain file is left out, with its
// reason, reported once, and nothing blocks.
func TestUnfitFiles(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	at := func(name string) string { return filepath.Join(r.dir, name) }
	must(t, os.Symlink("/etc/shadow", at("link")))
	must(t, os.Symlink(outside(t), at("linked-dir")))
	must(t, os.Symlink("/proc/self/fd", at("magic")))
	must(t, unix.Mkfifo(at("pipe"), 0o666))
	must(t, unix.Mknod(at("device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
	must(t, unix.Mknod(at("disk"), unix.S_IFBLK|0o666, int(unix.Mkdev(7, 200))))
	socket, err := net.Listen("unix", at("socket"))
	must(t, err)
	defer socket.Close()
	r.write("one", "two names")
	must(t, os.Link(at("one"), at("two")))
	r.write("fine.txt", "fine")

	for range 3 {
		r.flush()
	}
	r.waitPath("fine.txt")
	want := map[Path]Reason{
		"link": ReasonSymlink, "linked-dir": ReasonSymlink, "magic": ReasonSymlink, "pipe": ReasonFIFO,
		"device": ReasonDevice, "disk": ReasonDevice, "socket": ReasonSocket, "one": ReasonLinks, "two": ReasonLinks,
	}
	got := r.reasons()
	for p, reason := range want {
		if !slices.Equal(got[p], []Reason{reason}) {
			t.Errorf("%s was reported as %q, want once %q", p, got[p], reason)
		}
	}
	if len(got) != len(want) || len(r.got) != 1 {
		t.Errorf("reported %v, published %v", got, r.order)
	}

	must(t, os.Remove(at("two")))
	r.waitPath("one")
}

// TestHintsAreNotBelieved: a hint names a path, and can do no more with it.
func TestHintsAreNotBelieved(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	must(t, os.Symlink(outside(t), filepath.Join(r.dir, "dir")))
	for _, hint := range []string{
		"/etc/shadow", "../shadow", "/outputs/../etc/shadow", "dir/shadow", "/outputs/dir/shadow", "", "/", ".", "..",
		"/outputs", "/outputs/", "nothing", "a\x00b", strings.Repeat("x/", 5000), "/outputsevil/x", "\xff",
	} {
		r.Hint(hint)
	}
	for i := range 3 * maxHints {
		r.Hint(fmt.Sprint("flood-", i))
	}
	held, err := os.Create(filepath.Join(r.dir, "held"))
	must(t, err)
	r.Hint("/outputs/held")
	r.write("fine.txt", "fine")
	r.Hint("fine.txt")
	r.waitPath("fine.txt")
	r.waitFor("two settle periods", 5*time.Second, func() bool {
		r.Hint("held")
		return time.Since(r.got["fine.txt"][0].at) > 300*time.Millisecond
	})
	if len(r.got) != 1 {
		t.Errorf("published %v", r.order)
	}
	held.Close()
	r.waitPath("held")
	r.checkFinal()
}

// TestSwapRaces: a file and a directory are swapped for links, over and over,
// while the directory is scanned and published from; what is outside is never
// read.
func TestSwapRaces(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Settle, c.Rescan = time.Millisecond, time.Millisecond })
	out := outside(t)
	must(t, os.Mkdir(filepath.Join(r.dir, "real"), 0o755))
	must(t, os.WriteFile(filepath.Join(r.dir, "real", "shadow"), []byte("harmless"), 0o644))
	must(t, os.Symlink(out, filepath.Join(r.dir, "evil")))
	must(t, os.WriteFile(filepath.Join(r.dir, "file"), []byte("harmless"), 0o644))
	must(t, os.Symlink(filepath.Join(out, "shadow"), filepath.Join(r.dir, "file-link")))
	must(t, unix.Mkfifo(filepath.Join(r.dir, "file-pipe"), 0o666))

	root, err := openDirectory(r.dir)
	must(t, err)
	defer root.Close()
	fd := int(root.Fd())
	swap := func(a, b string) { must(t, unix.Renameat2(fd, a, fd, b, unix.RENAME_EXCHANGE)) }
	const rounds = 10_000
	for i := range rounds {
		swap("real", "evil")
		swap("file", "file-link")
		swap("file", "file-pipe")
		if i%500 == 0 {
			r.Hint("real/shadow")
			r.flush()
		}
	}
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, list := range r.got {
		for _, d := range list {
			if string(d.data) != "harmless" {
				t.Errorf("%s was published with %q", p, d.data)
			}
		}
	}
	t.Logf("%d rounds, %d publications", rounds, len(r.order))
}

// TestOpenRaces opens and walks ten thousand times while what is opened is
// swapped for links that lead outside, without pause.
func TestOpenRaces(t *testing.T) {
	out, dir := outside(t), t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "real"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "real", "shadow"), []byte("harmless"), 0o644))
	must(t, os.Symlink(out, filepath.Join(dir, "evil")))
	root, err := openDirectory(dir)
	must(t, err)
	defer root.Close()
	fd := int(root.Fd())
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := unix.Renameat2(fd, "real", fd, "evil", unix.RENAME_EXCHANGE); err != nil {
				stopped <- err
				return
			}
		}
	}()
	hidden, err := os.Stat(filepath.Join(out, "shadow"))
	must(t, err)
	secretInode := hidden.Sys().(*syscall.Stat_t).Ino
	opened, refused, why := 0, 0, map[string]int{}
	for range 10_000 {
		f, st, err := openFile(fd, "real/shadow")
		if err != nil {
			refused++
			why[err.Error()]++
			continue
		}
		opened++
		f.Close()
		if st.id.Inode == secretInode {
			t.Fatal("the file outside was opened")
		}
		must(t, walk(fd, "", 4, visit{
			dir: func(Path, int, fileStat) bool { return true },
			file: func(p Path, st fileStat) bool {
				if st.id.Inode == secretInode {
					t.Errorf("the walk met the file outside at %s", p)
				}
				return true
			},
			unwalked: func(p Path, r Reason, err error) { t.Errorf("%s %s: %v", p, r, err) },
		}))
	}
	close(stop)
	must(t, <-stopped)
	if opened == 0 || refused == 0 {
		t.Errorf("%d opened, %d refused: there was no race", opened, refused)
	}
	t.Logf("%d opened, %d refused: %v", opened, refused, why)
}

// TestOpenBeneathNeverLeaves tries the ways out of a directory, one by one.
func TestOpenBeneathNeverLeaves(t *testing.T) {
	t.Parallel()
	out, dir := outside(t), t.TempDir()
	must(t, os.Symlink(filepath.Join(out, "shadow"), filepath.Join(dir, "link")))
	must(t, os.Symlink(out, filepath.Join(dir, "sub")))
	must(t, os.Symlink("/proc/self/root", filepath.Join(dir, "magic")))
	root, err := openDirectory(dir)
	must(t, err)
	defer root.Close()
	for _, name := range []string{
		"link", "sub/shadow", "../" + filepath.Base(out) + "/shadow", filepath.Join(out, "shadow"), "magic/etc/shadow", "/etc/shadow", "..",
	} {
		f, _, err := openFile(int(root.Fd()), name)
		if err == nil {
			f.Close()
			t.Errorf("%s was opened", name)
		}
		if _, err := statBeneath(int(root.Fd()), name); err == nil && name != "link" {
			t.Errorf("%s was looked at", name)
		}
	}
}

// TestLimits: more files, deeper directories and larger files than allowed.
func TestLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.MaxFiles, c.MaxDepth, c.MaxFileBytes, c.MaxWatches = 40, 3, 1000, 2 })
	must(t, os.MkdirAll(filepath.Join(r.dir, "1/2/3/4"), 0o755))
	must(t, os.WriteFile(filepath.Join(r.dir, "1/2/3/fine"), []byte("fine"), 0o644))
	must(t, os.WriteFile(filepath.Join(r.dir, "1/2/3/4/deep"), []byte("too deep"), 0o644))
	r.write("large", strings.Repeat("x", 1001))
	r.waitPath("1/2/3/fine") // not watched: found by scanning
	r.flush()
	r.flush()
	got := r.reasons()
	if !slices.Equal(got["1/2/3/4"], []Reason{ReasonDepth}) || !slices.Equal(got["large"], []Reason{ReasonTooLarge}) || len(got) != 2 {
		t.Errorf("reported %v", got)
	}

	for i := range 60 {
		r.write(fmt.Sprint("many-", i), "x")
	}
	left := r.flush()
	if !slices.ContainsFunc(left, func(s Skipped) bool { return s.Reason == ReasonTooMany }) {
		t.Errorf("left out %v, want a word of the limit", left)
	}
	r.flush()
	count := 0
	for _, reasons := range r.reasons() {
		if slices.Contains(reasons, ReasonTooMany) {
			count++
		}
	}
	if count != 1 {
		t.Errorf("the limit was reported %d times", count)
	}
	if n := r.Status().Files; n > 40 {
		t.Errorf("%d files are kept, at most 40", n)
	}
	// Once there is room again, the others come through.
	for i := range 30 {
		must(t, os.Remove(filepath.Join(r.dir, fmt.Sprint("many-", i))))
	}
	r.flush()
	for i := 30; i < 60; i++ {
		r.waitPath(Path(fmt.Sprint("many-", i)))
	}
}

// TestSparseBomb: a file of a terabyte that takes no room in the guest.
func TestSparseBomb(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, err := os.Create(filepath.Join(r.dir, "bomb"))
	must(t, err)
	if err := f.Truncate(1 << 40); errors.Is(err, unix.EFBIG) {
		must(t, f.Truncate(1<<36))
	}
	f.Close()
	r.flush()
	if got := r.reasons()["bomb"]; !slices.Equal(got, []Reason{ReasonTooLarge}) {
		t.Errorf("reported as %v", got)
	}
}

// TestDirectoriesMoveAndGo: watches follow directories that are renamed,
// removed and made again.
func TestDirectoriesMoveAndGo(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Rescan = time.Hour })
	at := func(name string) string { return filepath.Join(r.dir, name) }
	must(t, os.MkdirAll(at("a/b"), 0o755))
	r.write("a/b/1", "1")
	r.waitPath("a/b/1")
	must(t, os.Rename(at("a"), at("c")))
	r.waitPath("c/b/1")
	r.write("c/b/2", "2")
	r.waitPath("c/b/2")
	must(t, os.RemoveAll(at("c")))
	must(t, os.MkdirAll(at("c/b"), 0o755))
	r.write("c/b/3", "3")
	r.waitPath("c/b/3")
	must(t, os.Rename(at("c"), at("work.tmp")))
	r.write("work.tmp/b/4", "4")
	must(t, os.Rename(at("work.tmp"), at("d")))
	r.waitPath("d/b/4")
	r.write("d/b/5", "5")
	r.waitPath("d/b/5")
}
