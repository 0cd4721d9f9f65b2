package rootfs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// needRoot ends a test that cannot do its work. It does not skip it: a suite
// that did not build anything has not passed.
func needRoot(t *testing.T) {
	t.Helper()
	if err := checkHost(); err != nil {
		t.Fatal(err)
	}
}

// lines is a Writer that calls back when a piece of text was written to it.
type lines struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	waiting map[string]func()
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Write(p)
	for text, call := range l.waiting {
		if strings.Contains(l.buf.String(), text) {
			delete(l.waiting, text)
			call()
		}
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// wantOnly fails unless the cache directory holds just these names, nothing is
// mounted below it and no process has it in its arguments.
func wantOnly(t *testing.T, cache string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(cache)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(names)
	if !slices.Equal(got, names) {
		t.Errorf("the cache holds %q, want %q", got, names)
	}
	wantNoTrace(t, cache)
}

func wantNoTrace(t *testing.T, text string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), text) {
		t.Errorf("something is still mounted below %s", text)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		arguments, err := os.ReadFile(p)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
				continue
			}
			t.Fatal(err)
		}
		if bytes.Contains(arguments, []byte(text)) {
			t.Errorf("process %s is left: %q", p, arguments)
		}
	}
}

// TestBuild builds a tiny recipe in two caches. The first has two builders at
// once; the second builder runs with another umask, time zone and home. The
// images are the same to the bit.
func TestBuild(t *testing.T) {
	needRoot(t)
	recipe := mustParse(t, tinyRecipe)
	first := t.TempDir()
	var results [2]Result
	var outputs [2]lines
	var errs [2]error
	var group sync.WaitGroup
	for i := range results {
		group.Go(func() {
			b := Builder{Recipe: recipe, CacheDir: first, Progress: &outputs[i]}
			results[i], errs[i] = b.Build(t.Context())
		})
	}
	group.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	if results[0].Built == results[1].Built {
		t.Errorf("of two builders at once, built: %v and %v", results[0].Built, results[1].Built)
	}
	waiter := 0
	if results[0].Built {
		waiter = 1
	}
	if !strings.Contains(outputs[waiter].String(), "another build is running") {
		t.Errorf("the waiting builder said %q", outputs[waiter].String())
	}
	if got := outputs[1-waiter].String(); !strings.Contains(got, "[6/6] publish: ") {
		t.Errorf("the builder said %q", got)
	}
	wantOnly(t, first, lockName, logName, recipe.Digest())
	checkTiny(t, results[0].Image, recipe)

	// Later: the cache answers, without another build.
	again, err := (&Builder{Recipe: recipe, CacheDir: first}).Build(t.Context())
	if err != nil || again.Built || again.Image.Path != results[0].Image.Path {
		t.Errorf("a later build gives %+v, %v", again, err)
	}

	second := t.TempDir()
	if err := os.Chmod(second, 0o755); err != nil {
		t.Fatal(err)
	}
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	t.Setenv("TZ", "Pacific/Auckland")
	t.Setenv("HOME", second)
	t.Setenv("PYTHONHASHSEED", "7")
	other, err := (&Builder{Recipe: recipe, CacheDir: second}).Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, b := results[0].Image.Manifest.Image, other.Image.Manifest.Image
	if a != b {
		t.Errorf("built twice, the image is %+v and %+v", a, b)
	}
	info, err := os.Stat(other.Image.Path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o644 {
		t.Errorf("the image's mode is %v", info.Mode())
	}
}

// checkTiny looks at the image that the tiny recipe makes.
func checkTiny(t *testing.T, image Image, recipe *Recipe) {
	t.Helper()
	if _, err := Verify(t.Context(), image.Path); err != nil {
		t.Error(err)
	}
	m := image.Manifest
	if m.Tools["zip"] == "" || m.BuiltWith["mmdebstrap"] == "" || len(m.Sources) == 0 || m.Mtime != recipe.Mtime {
		t.Errorf("manifest is incomplete: %+v", m)
	}
	for _, name := range []string{"less", "zip", "libc6"} {
		if !slices.ContainsFunc(m.Packages, func(p Package) bool { return p.Name == name && p.Version != "" }) {
			t.Errorf("manifest lacks the package %s", name)
		}
	}
	root := extract(t, image)
	if bill, err := os.ReadFile(filepath.Join(image.Dir(), SBOMFile)); err != nil || !bytes.Contains(bill, []byte(m.Image.SHA256)) {
		t.Errorf("the bill of materials does not name the image (%v)", err)
	}
	want := map[string]string{
		"etc/hostname": "sandbox\n", "etc/prepared": "kept\n", "etc/motd": "welcome\n", "usr/lib/fetched/copy.txt": "pinned\n",
	}
	for name, content := range want {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != content {
			t.Errorf("%s holds %q, %v; want %q", name, got, err, content)
		}
	}
	for _, name := range []string{"var/log/trace", "tmp/trace", "etc/resolv.conf", "etc/machine-id", "etc/shadow-", "dev/null", "usr/share/info", "workspace/writable", "etc/lost"} {
		if _, err := os.Lstat(filepath.Join(root, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is in the image (%v)", name, err)
		}
	}
	shared, err := os.Stat(filepath.Join(root, "var/cache/shared"))
	if err != nil || shared.Mode() != fs.ModeDir|fs.ModeSticky|0o777 {
		t.Errorf("var/cache/shared: %v, %v", shared, err)
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := d.Info()
		if err == nil && d.Type().IsRegular() && info.ModTime().Unix() != recipe.Mtime {
			t.Errorf("%s has the time %v", path, info.ModTime())
			return fs.SkipAll
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// extract unpacks an image into a directory of the test.
func extract(t *testing.T, image Image) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	log := new(bytes.Buffer)
	err := command{
		argv: []string{"fsck.erofs", "--extract=" + root, "--preserve", image.Path},
		env:  []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, log: log,
	}.run(t.Context())
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	return root
}

func TestInterruptedBuildLeavesNothing(t *testing.T) {
	needRoot(t)
	cache := t.TempDir()
	// What a build that was killed outright left goes as well.
	if err := os.MkdirAll(filepath.Join(cache, buildPrefix+"killed", "root", "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	output := &lines{waiting: map[string]func(){
		"installing essential packages": func() { cancel(errors.New("interrupt signal received")) },
	}}
	_, err := (&Builder{Recipe: mustParse(t, tinyRecipe), CacheDir: cache, Progress: output}).Build(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("an interrupted build: %v\n%s", err, output)
	}
	for _, want := range []string{"interrupt signal received", "nothing is left of it", "run: sandboxctl image build"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if !strings.Contains(output.String(), "left-over of a killed build") {
		t.Errorf("the build said %q", output)
	}
	wantOnly(t, cache, lockName, logName)
}

func TestFailedBuildNamesItsLog(t *testing.T) {
	needRoot(t)
	recipe := mustParse(t, strings.Replace(tinyRecipe, `"less"`, `"no-such-package-anywhere"`, 1))
	cache := t.TempDir()
	_, err := (&Builder{Recipe: recipe, CacheDir: cache}).Build(t.Context())
	if err == nil {
		t.Fatal("a build with an unknown package succeeded")
	}
	for _, want := range []string{"install packages", filepath.Join(cache, logName), "Unable to locate package no-such-package-anywhere"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	wantOnly(t, cache, lockName, logName)
}

// TestCommandTakesEverythingWithIt cancels a command that mounted something and
// whose children went into sessions of their own.
func TestCommandTakesEverythingWithIt(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	output := &lines{waiting: map[string]func(){"ready": cancel}}
	script := `mount -t tmpfs tmpfs "$1"; setsid sh -c 'sleep 1000; :' "$1" & echo ready; wait`
	err := command{
		argv: []string{"/bin/sh", "-c", script, "sh", dir},
		env:  os.Environ(), offline: true, stdout: output, log: io.Discard,
	}.run(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	wantNoTrace(t, dir)
}

func TestBuildNamesWhatTheHostLacks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root")
	}
	t.Setenv("PATH", t.TempDir())
	cache := filepath.Join(t.TempDir(), "cache")
	_, err := (&Builder{Recipe: mustParse(t, tinyRecipe), CacheDir: cache}).Build(t.Context())
	if err == nil || !strings.Contains(err.Error(), "run: apt-get install mmdebstrap erofs-utils") {
		t.Errorf("a build on a host without tools: %v", err)
	}
	if exists(cache) {
		t.Error("the build made its cache directory all the same")
	}
}

func TestBuildNeedsSpace(t *testing.T) {
	err := checkSpace(t.TempDir(), 1<<40)
	if err == nil || !strings.Contains(err.Error(), "free some") || !strings.Contains(err.Error(), CacheEnv) {
		t.Errorf("a build without space: %v", err)
	}
}

func TestDamagedImageIsNotBuiltOver(t *testing.T) {
	cache := t.TempDir()
	recipe := mustParse(t, tinyRecipe)
	dir := fakeImage(t, cache, recipe)
	if err := os.Truncate(filepath.Join(dir, ImageFile), 100); err != nil {
		t.Fatal(err)
	}
	_, err := (&Builder{Recipe: recipe, CacheDir: cache}).Build(t.Context())
	if err == nil || !strings.Contains(err.Error(), "sandboxctl image build --force") {
		t.Errorf("a build over a damaged image: %v", err)
	}
}

func TestLockWaitEndsWithContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), lockName)
	unlock, err := lock(t.Context(), path, func() { t.Error("the first holder waited") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := lock(ctx, path, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting with a context that ended: %v", err)
	}
	unlock()
	unlock, err = lock(t.Context(), path, func() { t.Error("a free lock was waited for") })
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestRemoveTreeRefusesMounts(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	mount := filepath.Join(dir, "root", "dev")
	if err := os.MkdirAll(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	err := removeTree(dir)
	if err == nil || !strings.Contains(err.Error(), "is mounted below") {
		t.Errorf("removing a tree with a mount: %v", err)
	}
	if err := syscall.Unmount(mount, 0); err != nil {
		t.Fatal(err)
	}
	if err := removeTree(dir); err != nil {
		t.Fatal(err)
	}
}
